package server

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/retention"
	"trainyard/internal/server/collector"
	"trainyard/internal/store"
)

// logBlobs lists the blobs of output.
func (y *yard) logBlobs() []string {
	y.t.Helper()
	var names []string
	for info, err := range y.blobs.List(y.t.Context(), "logs/") {
		y.must(err)
		names = append(names, info.Name)
	}

	return names
}

// hasPrinted is a job that has ended and printed this.
func (n *node) hasPrinted(c *api.Client, text []byte) id.Job {
	n.y.t.Helper()
	j, run := n.started(c)
	n.upload(run, 0, 0, text, true)
	n.ends(run, 0, 0)

	return j
}

// A yard that was upgraded gets the layout of this version, and what says nothing goes.
func TestOutputOfEarlierVersionsIsTidied(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada, n := y.researcher("ada"), y.join("node")
	n.listen()

	// Output of jobs that were removed long ago, as an earlier version has archived it: that of one was removed, too.
	stray := "logs/j7777/j7777.1-f/0/000000000000000-000000000000001.gz"
	y.must(y.blobs.Put(t.Context(), stray, bytes.NewReader([]byte("x"))))
	y.must(y.blobs.Put(t.Context(), "logs/j7778/j7778.1-f/0/000000000000000-000000000000000.gz", bytes.NewReader(nil)))

	silent := n.hasPrinted(ada, nil) // as an agent of an earlier version reports it
	kept := n.hasPrinted(ada, output(t, "o:new\n"))

	// One that is kept.
	text := output(t, "o:old\n")
	former, run := n.started(ada)
	n.ends(run, 0, 0)

	r, err := y.store.Run(t.Context(), run)
	y.must(err)

	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err = z.Write(text)
	y.must(errors.Join(err, z.Close()))

	folder := string(run)
	if r.UID != "" {
		folder += "-" + string(r.UID)
	}

	y.must(y.blobs.Put(t.Context(), fmt.Sprintf("logs/%s/%s/0/%015d-%015d.gz", former, folder, 0, len(text)), &packed))

	read := func() {
		t.Helper()
		for j, want := range map[id.Job]string{kept: "new", former: "old"} {
			page, err := ada.Logs(t.Context(), j, api.LogFilter{})
			y.must(err)

			if len(page.Lines) != 1 || page.Lines[0].Text != want || !page.Ended {
				t.Errorf("the output of %s: %+v", j, page)
			}
		}
	}

	read()
	y.pruned(retention.Limits{Unused: time.Hour})
	read()

	if names := y.logBlobs(); len(names) != 2 {
		t.Errorf("two jobs have printed something, and there are %q", names)
	}

	page, err := ada.Logs(t.Context(), silent, api.LogFilter{})
	y.must(err)

	if len(page.Lines) > 0 || !page.Ended {
		t.Errorf("of the one that printed nothing there is %+v", page)
	}
}

// Nobody waits for output that was removed under limits that were lifted since.
func TestRemovedOutputIsComplete(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada, n := y.researcher("ada"), y.join("node")
	n.listen()

	j := n.hasPrinted(ada, output(t, "o:hello\n"))
	y.pruned(retention.Limits{Unused: time.Hour, Output: time.Hour})

	if names := y.logBlobs(); len(names) > 0 {
		t.Errorf("it left %q", names)
	}

	page, err := ada.Logs(t.Context(), j, api.LogFilter{})
	y.must(err)

	if len(page.Lines) > 0 || !page.Ended {
		t.Errorf("there is %+v", page)
	}
}

// killed is a loop of a server that is killed when it is asked for the n-th time whether it leads.
type killed struct {
	collector.Loop
	left int
}

var errKilled = errors.New("killed")

func (k *killed) Held() error {
	k.left--
	if k.left < 0 {
		return errKilled
	}

	return k.Loop.Held()
}

// Whenever a server is killed while it removes what is old, the next one removes the rest and nothing is left behind.
func TestARemovalContinuesAfterACrash(t *testing.T) {
	t.Parallel()
	limits := retention.Limits{Unused: time.Hour, Jobs: 24 * time.Hour, Events: 24 * time.Hour, Postings: 24 * time.Hour}
	y := newYard(t, provisioning)
	ada, n := y.researcher("ada"), y.join("node")
	n.listen()

	var jobs []id.Job
	for range 3 {
		jobs = append(jobs, n.hasPrinted(ada, output(t, "o:hello\n")))
		y.advance(time.Minute)
	}

	y.submit(ada, "run: newest\nresources: {memory: 900GB}")
	y.advance(100 * time.Hour)
	y.srv.rollUpAll(t.Context())

	months := api.UsageQuery{To: y.clock.Now().Add(-time.Hour), By: []string{"month"}}
	root := y.admin()

	want, err := root.UsageReport(t.Context(), months)
	y.must(err)

	for steps := 0; ; steps++ {
		c := y.collector(limits)
		c.Loop = &killed{c.Loop, steps}

		_, err := c.Collect(t.Context())
		if err == nil && steps > 3 {
			break
		}
		if err != nil && !errors.Is(err, errKilled) || steps > 1000 {
			t.Fatalf("killed after %d steps: %v", steps, err)
		}
	}

	if names := y.logBlobs(); len(names) > 0 {
		t.Errorf("output is left: %q", names)
	}

	for _, j := range jobs {
		_, err := ada.Job(t.Context(), j)
		wantFault(t, err, fault.NotFound, "job_not_found")

		for _, kind := range []store.DocumentKind{store.CurveDocument, store.OutputsDocument, store.RemovedDocument} {
			docs, err := y.store.Documents(t.Context(), store.DocumentFilter{Kind: kind, ID: string(j), Limit: 1})
			if err != nil || len(docs) > 0 {
				t.Errorf("documents of %s are left: %v, %v", j, docs, err)
			}
		}
	}

	got, err := root.UsageReport(t.Context(), months)
	y.must(err)

	if got.Total != want.Total {
		t.Errorf("usage was %+v and is %+v", want.Total, got.Total)
	}
}
