package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/yardmaster"
)

// explained returns how many explanations the questions since the last round have taken, without that of the job for
// which a node is reserved: somebody else may have asked about it. While a plan is due there are others than after it.
func (y *yard) explained() int {
	e := y.loop.newest.Load().explained.Load()
	e.mu.Lock()
	defer e.mu.Unlock()

	counts := map[yardmaster.Question]int{} // by what is asked of the plan alone
	for q := range e.made {
		if q.Job == "" {
			counts[yardmaster.Question{Due: q.Due, Reservation: q.Reservation}]++
		}
	}

	return slices.Max(slices.Collect(maps.Values(counts)))
}

// TestQuestionsAreAnsweredWhileTheLoopIsBlocked: a commit that hangs keeps the loop from everything, and what people
// ask is answered as of what was stored before.
func TestQuestionsAreAnsweredWhileTheLoopIsBlocked(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	c := y.researcher("ada")
	n := y.join("north")
	n.listen()
	y.must(n.report())
	y.submit(c, "run: a\nresources: {cpus: 8}")
	n.starts(n.awaitRun("j1", 1), 0)
	y.submit(c, "run: b\nresources: {cpus: 8}")
	y.submit(c, "run: c\nresources: {cpus: 8}")
	awaitReady(t, y)

	arrived := y.store.hang()
	submitted := make(chan error, 1)
	go func() {
		_, err := c.Submit(t.Context(), api.SubmitRequest{File: "run: d"}, "k")
		submitted <- err
	}()

	<-arrived

	// Nobody has noticed yet that it hangs, so a question that went to the loop would wait for it.
	ctx, cancel := context.WithTimeoutCause(t.Context(), 5*time.Minute, errors.New("the question waits for the loop"))
	defer cancel()

	page, err := c.Jobs(ctx, api.JobFilter{})
	if err != nil || len(page.Jobs) != 3 {
		t.Fatalf("the list has %d jobs, %v", len(page.Jobs), err)
	}

	if got := page.Jobs[2].Nodes; len(got) != 1 || got[0] != n.name {
		t.Errorf("j1 runs on %v", got)
	}

	for _, j := range page.Jobs[:2] {
		if !strings.Contains(j.Reason, "8 CPUs needed") {
			t.Errorf("the list says %q of %s", j.Reason, j.ID)
		}
	}

	detail, err := c.Job(ctx, "j3")
	if err != nil || detail.Why == nil || detail.Why.Blocker != string(place.BlockResources) || detail.Why.Position != 2 ||
		len(detail.Why.Holders) != 1 || detail.Why.Holders[0].Job != "j1" {
		t.Errorf("got %+v, %v", detail.Why, err)
	}

	if detail.Forecast == nil {
		t.Error("it has no forecast")
	}

	y.store.mend()
	y.must(<-submitted)
}

// TestAlikeJobsAreExplainedOnce: one explanation for all jobs of a shape and a round, for whoever asks.
func TestAlikeJobsAreExplainedOnce(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	c := y.researcher("ada")
	n := y.join("north")
	n.listen()
	y.must(n.report())
	y.submit(c, "run: a\nresources: {cpus: 8}")
	n.starts(n.awaitRun("j1", 1), 0)

	for i := range 51 { // the first is the one for which the node is reserved
		file := fmt.Sprintf("name: train-%d\nrun: python train.py --seed %d\nexpect: %dh\nresources: {cpus: 8}", i, i, i+1)
		y.submit(c, file)
	}

	list := func() {
		t.Helper()
		page, err := c.Jobs(t.Context(), api.JobFilter{Page: api.Page{Limit: 50}})
		y.must(err)

		for _, j := range page.Jobs {
			if !strings.HasPrefix(j.Reason, "8 CPUs needed") && !strings.HasPrefix(j.Reason, "4 CPUs needed") {
				t.Errorf("the list says %q of %s", j.Reason, j.ID)
			}
		}
	}

	var asking sync.WaitGroup
	for range 4 {
		asking.Go(list)
	}

	asking.Wait()

	if got := y.explained(); got != 1 {
		t.Errorf("a page of 50 alike jobs took %d explanations", got)
	}

	// Another shape has one of its own, and another round has new ones.
	y.submit(c, "run: x\nresources: {cpus: 4}")
	list()

	if got := y.explained(); got != 2 {
		t.Errorf("jobs of two shapes took %d explanations", got)
	}

	before := y.loop.newest.Load().explained.Load()
	y.advance(explainFor)
	list()

	if now := y.loop.newest.Load().explained.Load(); now == before {
		t.Error("the explanations are as old as they were, although time has passed")
	}
}

// TestWhoSubmitsSeesTheirJobsAtOnce: an answer of the loop comes after what it has changed is seen by questions, while
// others ask all the time. With the race detector it also finds what the loop changes and questions read.
func TestWhoSubmitsSeesTheirJobsAtOnce(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	c := y.researcher("ada")
	n := y.join("north")
	n.listen()
	y.must(n.report())

	var over atomic.Bool
	var others sync.WaitGroup
	t.Cleanup(func() {
		over.Store(true)
		others.Wait()
	})

	for range 3 {
		others.Go(func() {
			for !over.Load() {
				page, err := c.Jobs(t.Context(), api.JobFilter{Page: api.Page{Limit: 20}})
				if err != nil || len(page.Jobs) == 0 {
					continue
				}

				_, _ = c.Job(t.Context(), page.Jobs[len(page.Jobs)-1].ID)
			}
		})
	}

	for i := range 25 {
		jobs := y.submit(c, "run: a\nresources: {cpus: 8}")
		if got := y.seen(c, jobs[0].ID); got == nil {
			t.Fatalf("job %d of its owner has no node and no reason to wait", i)
		}

		switch i % 5 {
		case 1:
			_, err := c.PauseJob(t.Context(), jobs[0].ID)
			y.must(err)

			if detail, err := c.Job(t.Context(), jobs[0].ID); err != nil || detail.Why == nil ||
				detail.Why.Blocker != string(place.BlockPaused) {
				t.Fatalf("the job that was paused: %+v, %v", detail.Why, err)
			}
		case 2:
			y.do(yardmaster.Cordon{Node: n.name, On: true, By: "root"})
		case 3:
			y.do(yardmaster.Cordon{Node: n.name, By: "root"})
		}
	}
}

// TestAnAnswerComesAfterTheSnapshot holds the loop between two answers of a batch: whoever has the first one finds
// what it says in lists, with why it waits, although the loop does nothing more.
func TestAnAnswerComesAfterTheSnapshot(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	c := y.researcher("ada")
	n := y.join("north")
	n.listen()
	y.must(n.report())
	y.submit(c, "run: a\nresources: {cpus: 8}")
	n.starts(n.awaitRun("j1", 1), 0)

	ctx, cancel := context.WithTimeoutCause(t.Context(), 5*time.Minute, errors.New("the loop or a question hangs"))
	defer cancel()

	// The loop looks at something until both messages are there, so that they share a batch.
	looks, release := make(chan struct{}), make(chan struct{})
	looked := make(chan error, 1)
	go func() {
		looked <- y.loop.Query(ctx, func(*yardmaster.Yard) {
			close(looks)
			<-release
		})
	}()

	<-looks

	asks := job.Resources{Nodes: job.Range{Min: 1, Max: 1}, CPUs: 8000}
	spec := &job.Spec{Run: "b", Place: job.PlaceAny, Resources: asks}
	first, second := make(chan answer), make(chan answer) // the loop waits until an answer is received
	for _, done := range []chan answer{first, second} {
		y.loop.in <- request{message: yardmaster.Submit{Owner: "ada", Jobs: []yardmaster.NewJob{{Spec: spec}}}, done: done}
	}

	close(release)
	y.must(<-looked)
	y.must((<-first).err)

	page, err := c.Jobs(ctx, api.JobFilter{})
	if err != nil || len(page.Jobs) != 3 {
		t.Fatalf("the list has %d jobs, %v", len(page.Jobs), err)
	}

	for _, j := range page.Jobs[:2] {
		if !strings.Contains(j.Reason, "8 CPUs needed") {
			t.Errorf("the list says %q of %s", j.Reason, j.ID)
		}
	}

	if detail, err := c.Job(ctx, "j2"); err != nil || detail.Why == nil || detail.Why.Position != 1 {
		t.Errorf("the job that was submitted: %+v, %v", detail.Why, err)
	}

	y.must((<-second).err)
}

// seen returns why a job waits or where it runs, nil if neither is known.
func (y *yard) seen(c *api.Client, j id.Job) any {
	y.t.Helper()
	detail, err := c.Job(y.t.Context(), j)
	y.must(err)

	switch {
	case detail.Why != nil:
		return detail.Why
	case len(detail.Nodes) > 0:
		return detail.Nodes
	}

	return nil
}
