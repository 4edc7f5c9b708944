package server

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/yardmaster"
)

// watcher follows a job's output in the background.
type watcher struct {
	t      *testing.T
	items  chan api.LogItem
	done   chan error
	cancel context.CancelFunc
	states []job.State
	cursor string
}

func watch(t *testing.T, c *api.Client, j id.Job, f api.LogFilter) *watcher {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &watcher{t: t, items: make(chan api.LogItem, 100_000), done: make(chan error, 1), cancel: cancel}
	go func() {
		w.done <- c.FollowLogs(ctx, j, f, func(i api.LogItem) error {
			w.items <- i
			return nil
		})
	}()

	t.Cleanup(cancel)

	return w
}

// until returns the lines that come until ok is true of an item.
func (w *watcher) until(ok func(api.LogItem) bool) []string {
	w.t.Helper()
	var lines []string
	for {
		select {
		case i := <-w.items:
			if i.Cursor != "" {
				w.cursor = i.Cursor
			}

			if i.Line != nil {
				lines = append(lines, fmt.Sprintf("%s %d %s %s", i.Line.Run, i.Line.Rank, i.Line.Stream, i.Line.Text))
			}

			if i.Job != nil {
				w.states = append(w.states, i.Job.State)
			}

			if ok(i) {
				return lines
			}
		case <-time.After(5 * time.Minute):
			w.t.Fatalf("it did not come; so far %q, states %v", lines, w.states)
		}
	}
}

func (w *watcher) line(text string) []string {
	w.t.Helper()
	return w.until(func(i api.LogItem) bool { return i.Line != nil && i.Line.Text == text })
}

func (w *watcher) end() []string {
	w.t.Helper()
	lines := w.until(func(i api.LogItem) bool { return i.End })

	if err := <-w.done; err != nil {
		w.t.Errorf("after the end: %v", err)
	}

	return lines
}

func TestFollowingAJobFromItsLineToItsEnd(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	c, n := y.researcher("ada"), y.join("n1")
	j := y.submit(c, "run: a\nretry: 1")[0].ID
	n.listen()
	w := watch(t, c, j, api.LogFilter{})
	run := n.awaitRun(j, 1)
	n.starts(run, 0)
	first := output(t, "o:one\n", "e:two\nthree\n")
	n.upload(run, 0, 0, first, false)

	if diff := cmp.Diff(
		[]string{"j1.1 0 stdout one", "j1.1 0 stderr two", "j1.1 0 stderr three"},
		w.line("three"),
	); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	if err := y.srv.Logbook.Sweep(); err != nil { // nothing is to be swept
		t.Error(err)
	}

	y.advance(time.Hour)

	if err := y.srv.Logbook.Sweep(); err != nil {
		t.Error(err)
	}

	second := output(t, "o:four\n")
	n.upload(run, 0, int64(len(first)), second, false)
	w.line("four")

	// The run fails and is followed by another; its last words come late.
	n.ends(run, 0, 1)
	n.upload(run, 0, int64(len(first)+len(second)), output(t, "o:five\n"), true)
	w.line("five")
	y.advance(time.Hour) // over the back-off
	n.tell()             // it lives
	again := n.awaitRun(j, 2)
	n.starts(again, 0)
	n.upload(again, 0, 0, output(t, "o:once more\n"), false)

	if got := w.line("once more"); got[len(got)-1] != "j1.2 0 stdout once more" {
		t.Errorf("got %q", got)
	}

	n.ends(again, 0, 0)
	n.upload(again, 0, int64(len(output(t, "o:once more\n"))), output(t, "o:bye"), true)

	if diff := cmp.Diff([]string{"j1.2 0 stdout bye"}, w.end()); diff != "" {
		t.Errorf("at the end (-want +got):\n%s", diff)
	}

	if got := slices.Compact(w.states); got[len(got)-1] != job.Succeeded || !slices.Contains(got, job.Running) ||
		!slices.Contains(got, job.Recovering) {
		t.Errorf("the states were %v", got)
	}

	// Who comes later sees the same, all of it or from a cursor on.
	if late := watch(t, c, j, api.LogFilter{}).end(); len(late) != 7 {
		t.Errorf("later there are %q", late)
	}

	if rest := watch(t, c, j, api.LogFilter{Page: api.Page{Cursor: w.cursor}}).end(); len(rest) != 0 {
		t.Errorf("after the last cursor there are %q", rest)
	}

	if one := watch(t, c, j, api.LogFilter{Run: "j1.1", Tail: 2}).end(); len(one) != 2 || one[1] != "j1.1 0 stdout five" {
		t.Errorf("the tail of the first run is %q", one)
	}
}

func TestTheLogOfALostNodeEndsTheFollowing(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	c, n := y.researcher("ada"), y.join("n1")
	n.listen()
	j, run := n.started(c)
	n.upload(run, 0, 0, output(t, "o:last words\n"), false)
	w := watch(t, c, j, api.LogFilter{Run: run})
	w.line("last words")
	loseNodes(t, y)
	w.until(func(i api.LogItem) bool { return i.End })
}

// loseNodes lets all nodes be silent for so long that they are given up.
func loseNodes(t *testing.T, y *yard) {
	t.Helper()
	root := y.admin()
	eventually(t, "the nodes are lost", func() bool {
		y.advance(2 * time.Second) // a longer step is taken for the yard's own sleep
		y.do(yardmaster.Tick{})
		page, err := root.Nodes(t.Context(), api.Page{})
		y.must(err)

		return !slices.ContainsFunc(page.Nodes, func(n api.Node) bool { return n.State != "lost" })
	})
}

func TestTheLogOfANodeThatDiedAfterItsRunEndsTheFollowing(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	c, n := y.researcher("ada"), y.join("n1")
	n.listen()
	j, run := n.started(c)
	n.upload(run, 0, 0, output(t, "o:last words\n"), false)
	n.ends(run, 0, 0) // and the rest of its output never comes
	w := watch(t, c, j, api.LogFilter{})
	w.line("last words")
	loseNodes(t, y)
	w.end()
}

func TestAJobThatNeverRanEndsTheFollowing(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	c, n := y.researcher("ada"), y.join("n1")
	waits := y.submit(c, "run: a\nresources: {memory: 900GB}")[0].ID
	w := watch(t, c, waits, api.LogFilter{})
	w.until(func(i api.LogItem) bool { return i.Job != nil })
	_, err := c.CancelJob(t.Context(), waits)
	y.must(err)

	if lines := w.end(); len(lines) != 0 {
		t.Errorf("it printed %q", lines)
	}

	// One that was placed and stopped before it began has no log.
	n.listen()
	placed := y.submit(c, "run: a")[0].ID
	run := n.awaitRun(placed, 1)
	w = watch(t, c, placed, api.LogFilter{})
	_, err = c.CancelJob(t.Context(), placed)
	y.must(err)
	n.tell(api.RankReport{Run: run, State: job.RunEnded, Cause: job.CauseCancelled, Signalled: true})
	w.end()

	// What a failed set-up printed is waited for.
	failed := y.submit(c, "setup: x\nrun: a")[0].ID
	run = n.awaitRun(failed, 1)
	w = watch(t, c, failed, api.LogFilter{})
	n.tell(api.RankReport{Run: run, State: job.RunEnded, Cause: job.CauseSetupFailed, ExitCode: 1})
	w.until(func(i api.LogItem) bool { return i.Job != nil && i.Job.State == job.Failed })
	n.upload(run, 0, 0, output(t, "e:no such package\n"), true)

	if lines := w.end(); len(lines) != 1 {
		t.Errorf("it printed %q", lines)
	}
}

func TestOutputOfSeveralRanks(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	c, a, b := y.researcher("ada"), y.join("a"), y.join("b")
	a.listen()
	b.listen()
	j := y.submit(c, "run: a\nresources: {nodes: 2}")[0].ID
	run := a.awaitRun(j, 1)
	b.awaitRun(j, 1)
	a.starts(run, 0)
	b.starts(run, 1)
	w := watch(t, c, j, api.LogFilter{})
	one := 1
	only := watch(t, c, j, api.LogFilter{Rank: &one, Stream: "stdout", Grep: "^[a-z]"})

	var sizes [2]int64
	for i := range 20 {
		for rank, n := range []*node{a, b} {
			sizes[rank] = n.upload(
				run,
				rank,
				sizes[rank],
				output(t, fmt.Sprintf("o:r%d line %d\n", rank, i), "e:other\n", "o:7\n"),
				false,
			)
		}
	}

	a.upload(run, 0, sizes[0], nil, true)
	b.upload(run, 1, sizes[1], nil, true)
	a.ends(run, 0, 0)
	b.ends(run, 1, 0)

	got := w.end()
	if len(got) != 2*20*3 {
		t.Errorf("there were %d lines", len(got))
	}

	for rank := range 2 {
		at := 0
		for _, l := range got {
			if strings.Contains(l, fmt.Sprintf(" stdout r%d line ", rank)) {
				if !strings.HasSuffix(l, fmt.Sprintf(" line %d", at)) {
					t.Fatalf("rank %d: %q came when line %d was due", rank, l, at)
				}

				at++
			}
		}
	}

	if lines := only.end(); len(lines) != 20 || lines[19] != "j1.1 1 stdout r1 line 19" {
		t.Errorf("of rank 1 there were %q", lines)
	}

	// A rank that it does not have is an error, not output that never comes (newcomer 35).
	seven := 7
	_, err := c.Logs(t.Context(), j, api.LogFilter{Rank: &seven})
	wantFault(t, err, fault.NotFound, "rank_not_found")

	// The same in pages.
	var paged []string

	for f := (api.LogFilter{Page: api.Page{Limit: 7}}); ; {
		page, err := c.Logs(t.Context(), j, f)
		y.must(err)

		for _, l := range page.Lines {
			paged = append(paged, fmt.Sprintf("%s %d %s %s", l.Run, l.Rank, l.Stream, l.Text))
		}

		if page.Ended != (page.Next == "") {
			t.Fatalf("it ended is %v and the next page is %q", page.Ended, page.Next)
		}

		f.Cursor = page.Next

		if page.Ended {
			break
		}
	}

	slices.Sort(got)

	slices.Sort(paged)
	if diff := cmp.Diff(got, paged); diff != "" {
		t.Errorf("(-followed +paged):\n%s", diff)
	}
}

// TestAFeedSaysWhyAJobWaits is newcomer 9: whoever followed a job that waited was told once that it was queued.
func TestAFeedSaysWhyAJobWaits(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	c := y.researcher("ada")
	j := y.submit(c, "run: a\nresources: {gpus: 1, cpus: 0.1}")[0].ID
	w := watch(t, c, j, api.LogFilter{})

	reason := func(text string) {
		t.Helper()
		w.until(func(i api.LogItem) bool { return i.Job != nil && strings.Contains(i.Job.Reason, text) })
	}

	reason("no node has joined the yard")

	n := y.join("n1") // without GPUs
	n.listen()
	reason("GPU")

	d, err := c.Job(t.Context(), j)
	y.must(err)

	if d.Why == nil || d.Why.Blocker != "no_fit" {
		t.Errorf("it waits because of %+v", d.Why)
	}
}

// TestAFeedLeavesNoStateOut is newcomer 8: between two looks at a job that ran out of memory it was in the queue and
// started again with more, and whoever followed it saw the start alone.
func TestAFeedLeavesNoStateOut(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	c, n := y.researcher("ada"), y.join("n1")
	n.listen()
	j, run := n.started(c, "resources: {cpus: 0.1, memory: 200MB}")
	w := watch(t, c, j, api.LogFilter{})
	w.until(func(i api.LogItem) bool { return i.Job != nil && i.Job.State == job.Running })

	n.tell(api.RankReport{Run: run, State: job.RunEnded, Started: y.clock.Now(), Ended: y.clock.Now(), ExitCode: 1,
		Cause: job.CauseHostOOM, Reason: "out of memory"})
	w.until(func(i api.LogItem) bool {
		return i.Job != nil && i.Job.State == job.Recovering &&
			strings.Contains(i.Job.Reason, "the next run gets 400 MB of memory")
	})
	w.until(func(i api.LogItem) bool {
		return i.Job != nil && i.Job.State == job.Starting &&
			slices.Contains(i.Job.Remarks, "memory raised from 200 MB to 400 MB after it ran out of memory")
	})
}
