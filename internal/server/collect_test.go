package server

import (
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/retention"
	"trainyard/internal/server/collector"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/yardmaster"
)

func (y *yard) collector(limits retention.Limits) *collector.Collector {
	return collector.New(collector.Deps{
		Guard: y.guard, Store: y.store, Logs: y.srv.Logbook, Loop: y.loop, Yard: y.ca.Hash(), Limits: limits, Clock: y.clock,
		Log: slog.New(slog.DiscardHandler),
	})
}

// pruned lets a day pass and collects blobs, twice: what was used lately outlives the first time.
func (y *yard) pruned(limits retention.Limits) []string {
	y.t.Helper()
	c := y.collector(limits)

	var reports []string
	for range 2 {
		y.advance(25 * time.Hour)

		report, err := c.Collect(y.t.Context())
		y.must(err)

		reports = append(reports, report.String())
	}

	stock := c.Stock()
	y.stock.stock.Store(&stock)

	return reports
}

func (y *yard) wantBlobs(there bool, names ...string) {
	y.t.Helper()
	for _, name := range names {
		if has, err := y.blobs.Has(y.t.Context(), name); has != there || err != nil {
			y.t.Errorf("%s is there: %v (%v), want %v", name, has, err, there)
		}
	}
}

func TestOnlyWhatNobodyNeedsIsCollected(t *testing.T) {
	t.Parallel()
	limits := retention.Limits{
		Unused: 24 * time.Hour, Workdirs: time.Hour, Output: time.Hour, Checkpoints: time.Hour,
	}
	y := newYard(t, withConfig(func(c *Config) { c.Limits = limits }))
	ada := y.researcher("ada")

	put := func(content string) string {
		y.must(ada.PutFile(t.Context(), digestOf(content), "", strings.NewReader(content)))
		return digestOf(content)
	}

	text, err := json.Marshal(api.Manifest{Files: []api.ManifestFile{{Path: "train.py", Size: 5, Digest: put("train")}}})
	y.must(err)

	workdir := put(string(text))
	abandoned := put("never submitted")

	n := y.join("node")
	n.listen()

	reply, err := ada.Submit(t.Context(), api.SubmitRequest{File: "run: train", Workdir: workdir}, "")
	y.must(err)

	j := reply.Jobs[0].ID
	run := n.awaitRun(j, 1)
	n.starts(run, 0)
	n.saves(run)
	y.must(n.PutChunk(t.Context(), run, digestOf("left"), []byte("left")))
	n.upload(run, 0, 0, output(t, "o:hello"), true)

	manifest, chunks := twoFiles()
	needed := []string{
		httpapi.FileBlob(workdir), httpapi.FileBlob(digestOf("train")), httpapi.ChunkBlob(digestOf(manifest)),
	}
	for _, c := range chunks {
		needed = append(needed, httpapi.ChunkBlob(digestOf(c)))
	}

	y.wantBlobs(true, httpapi.FileBlob(abandoned), httpapi.ChunkBlob(digestOf("left")))

	if got := y.pruned(limits); got[0] != "" || got[1] != "removed 1 unused file and 1 unused chunk, 19 B in total" {
		t.Errorf("removed %q", got)
	}

	y.wantBlobs(true, needed...)
	y.wantBlobs(false, httpapi.FileBlob(abandoned), httpapi.ChunkBlob(digestOf("left")))

	// When the job has ended nothing of it is kept for longer than the limits say.
	y.do(yardmaster.Cancel{Job: j, By: "ada", Kill: true})
	n.ends(run, 0, 1)
	eventually(t, "the end of the job", func() bool {
		now, err := y.store.Job(t.Context(), j)
		return err == nil && now.State.Final()
	})

	_, err = ada.Logs(t.Context(), j, api.LogFilter{})
	y.must(err)
	y.pruned(limits)
	y.wantBlobs(false, needed...)

	removed := y.eventsOf("checkpoint.removed")
	if len(removed) != 1 || !strings.Contains(removed[0], "ended more than 1h ago") {
		t.Errorf("removed for %q", removed)
	}

	_, err = ada.Logs(t.Context(), j, api.LogFilter{})
	wantFault(t, err, fault.NotFound, "output_removed")
}

func TestOldJobsAndEventsAreForgotten(t *testing.T) {
	t.Parallel()
	limits := retention.Limits{Unused: 24 * time.Hour, Jobs: 40 * time.Hour, Events: 40 * time.Hour}
	y := newYard(t, withConfig(func(c *Config) { c.Limits = limits }))
	ada, n := y.researcher("ada"), y.join("node")
	n.listen()

	old, run := n.started(ada)
	n.upload(run, 0, 0, output(t, "o:hello\n"), true)
	n.ends(run, 0, 0)

	// A job that succeeded long ago may be needed by one that waits.
	first := y.submit(ada, "name: first\nrun: a\n---\nname: second\nrun: b\nneeds: [first]")
	needed := n.awaitRun(first[0].ID, 1)
	n.starts(needed, 0)
	n.ends(needed, 0, 0)

	waiting := y.submit(ada, "run: x\nresources: {memory: 900GB}")[0].ID
	reports := y.pruned(limits)

	if reports[0] != "" || !strings.Contains(reports[1], "1 output of ended jobs") || !strings.Contains(reports[1],
		"1 old job") ||
		!strings.Contains(reports[1], "old events") {
		t.Errorf("removed %q", reports)
	}

	_, err := ada.Job(t.Context(), old)
	wantFault(t, err, fault.NotFound, "job_not_found")

	for _, kept := range []api.Job{first[0], first[1]} {
		if _, err := ada.Job(t.Context(), kept.ID); err != nil {
			t.Errorf("job %s: %v", kept.ID, err)
		}
	}

	// What has happened lately is there, and numbers go on.
	y.submit(ada, "run: another")

	events, err := ada.Events(t.Context(), api.EventFilter{Page: api.Page{Limit: 100}, Specs: true})
	y.must(err)

	if len(events.Events) == 0 || events.Events[0].Kind == "user.added" {
		t.Errorf("%d events, from %+v on", len(events.Events), events.Events)
	}

	report, err := ada.Retention(t.Context())
	y.must(err)

	if len(report.Users) != 1 || report.Users[0].User != "ada" || report.Users[0].Jobs != 4 ||
		report.Users[0].Output != 0 {
		t.Errorf("ada has %+v", report.Users)
	}

	if report.Limits.Jobs != job.Duration(limits.Jobs) || report.Collected != nil || report.Disks != nil {
		t.Errorf("ada sees %+v", report)
	}

	all, err := y.admin().Retention(t.Context())
	y.must(err)

	if all.Collected == nil || all.Collected.Removed != reports[1] || all.Collected.Jobs != 4 {
		t.Errorf("an admin sees %+v", all.Collected)
	}

	_, err = ada.CancelJob(t.Context(), waiting)
	y.must(err)
}

func TestTooMuchOutputOfAUserIsRemoved(t *testing.T) {
	t.Parallel()
	limits := retention.Limits{Unused: 24 * time.Hour}
	y := newYard(t, withConfig(func(c *Config) { c.Limits.UserOutput = 1 }))
	ada, bob, n := y.researcher("ada"), y.researcher("bob"), y.join("node")
	n.listen()

	prints := func(c *api.Client) id.Job {
		j, run := n.started(c)
		n.upload(run, 0, 0, output(t, "o:hello\n"), true)
		n.ends(run, 0, 0)

		return j
	}

	first, second, other := prints(ada), prints(ada), prints(bob)

	// Each has room for the output of one job.
	y.pruned(limits)

	report, err := bob.Retention(t.Context())
	y.must(err)
	limits.UserOutput = report.Users[0].Output

	if limits.UserOutput == 0 {
		t.Fatalf("bob has %+v", report.Users)
	}

	y.pruned(limits)

	_, err = ada.Logs(t.Context(), first, api.LogFilter{})
	wantFault(t, err, fault.NotFound, "output_removed")

	if !strings.Contains(err.Error(), "the output of ended jobs of ada takes more than") {
		t.Errorf("it says %v", err)
	}

	for j, c := range map[id.Job]*api.Client{second: ada, other: bob} {
		if page, err := c.Logs(t.Context(), j, api.LogFilter{}); err != nil || len(page.Lines) != 1 {
			t.Errorf("the output of %s: %+v, %v", j, page, err)
		}
	}
}
