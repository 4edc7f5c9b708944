package yardmaster_test

import (
	"strings"
	"testing"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/yardmaster"
)

// progresses lets time pass and the program report how much it has done.
func (y *saves) progresses(epoch int, after time.Duration, done float64) {
	y.t.Helper()
	y.now = y.now.Add(after)
	y.report(epoch, yardmaster.RankReport{
		State: job.RunRunning, Started: y.now, Progress: &job.Progress{Done: done, Work: 1000, At: y.now},
	})
}

func (y *saves) done() float64 {
	y.t.Helper()
	j, _ := yardmaster.JobOf(y.Yard, y.job)

	return j.Done
}

func TestSavedWorkIsWhatTheNewestCheckpointHas(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		step int64
		want float64
	}{
		"the step is the work":        {step: 390, want: 390},
		"the step counts other units": {step: 39_000, want: 400},
		"a step far from the work":    {step: 4, want: 400},
		"no step":                     {step: -1, want: 400},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newSaves(t)
			y.starts(1)
			y.progresses(1, 40*time.Second, 400)

			c := y.checkpointOf(1, tc.step)
			y.progresses(1, 40*time.Second, 800)

			if _, err := y.add(c); err != nil {
				t.Fatal(err)
			}

			if got := y.View(y.now).Running[0].Outlook.Saved.Work; got != tc.want {
				t.Errorf("policies see that %v is saved, want %v", got, tc.want)
			}

			// The run dies: 800 was done, and the rest of that is lost.
			y.preempted(1)

			if got := y.done(); got != tc.want {
				t.Errorf("%v is done after the run died, want %v", got, tc.want)
			}
		})
	}
}

func TestACorruptCheckpointTakesItsWorkAlong(t *testing.T) {
	t.Parallel()
	y := newSaves(t)
	y.starts(1)
	y.progresses(1, 20*time.Second, 200)
	y.saved(1, 200)
	y.progresses(1, 20*time.Second, 400)
	bad := y.saved(1, 400)
	y.preempted(1)

	if got := y.done(); got != 400 {
		t.Fatalf("%v is done, want 400", got)
	}

	fails := func(epoch int, c id.Checkpoint) {
		y.report(epoch, yardmaster.RankReport{
			State: job.RunEnded, Ended: y.now, Cause: job.CauseRestoreFailed, Reason: "a chunk has another digest",
			Restore: &job.RestoreFailure{Checkpoint: c, Corrupt: true},
		})
	}

	fails(2, bad)

	if got := y.done(); got != 200 {
		t.Errorf("%v is done after the newest checkpoint was lost, want 200", got)
	}

	fails(3, y.restore(3))

	if got := y.done(); got != 0 {
		t.Errorf("%v is done after all checkpoints were lost", got)
	}
}

// TestAJobThatLeavesItsCheckpointsBeginsAnew has agents that are too old for checkpoints that travel.
func TestAJobThatLeavesItsCheckpointsBeginsAnew(t *testing.T) {
	t.Parallel()
	y := newSaves(t)
	first := y.orders[y.run(1)].Node
	old := func(n id.Node, ranks ...yardmaster.RankReport) {
		y.ok(yardmaster.NodeReport{Node: n, Ranks: ranks})
		y.round()
	}

	for _, n := range []id.Node{"a", "b"} {
		old(n)
	}

	old(first, yardmaster.RankReport{Run: y.run(1), State: job.RunRunning, Started: y.now})
	y.now = y.now.Add(40 * time.Second)
	report := yardmaster.RankReport{
		Run: y.run(1), State: job.RunRunning, Started: y.now, Progress: &job.Progress{Done: 400, Work: 1000, At: y.now},
	}
	old(first, report)
	ended := yardmaster.RankReport{Run: y.run(1), State: job.RunEnded, Ended: y.now, Signalled: true}
	old(first, ended)

	// On its node it continues.
	if o := y.orders[y.run(2)]; o.Node != first || y.done() != 400 {
		t.Fatalf("run 2 is on %s with %v done", o.Node, y.done())
	}

	if o := y.View(y.now).Running[0].Outlook; !o.Saved.Stays || o.Saved.Travels || o.Done != 400 {
		t.Errorf("policies see %+v", o)
	}

	// On another one it does not.
	y.ok(yardmaster.Cordon{Node: first, By: "test", On: true, Stop: true})
	ended.Run = y.run(2)
	old(first, ended)

	o := y.orders[y.run(3)]
	if o.Node == first || o.Launch.Restore != nil || y.done() != 0 {
		t.Errorf("run 3 is on %s with %v done", o.Node, y.done())
	}

	if r := y.View(y.now).Running[0]; r.Done(y.now) != 0 {
		t.Errorf("policies see that %v is done", r.Done(y.now))
	}

	if why := y.reasons("checkpoint.left"); len(why) != 1 || !strings.Contains(why[0], "on node "+string(first)) {
		t.Errorf("said: %q", why)
	}
}

// TestAMoveThatLosesWorkIsPaidForByTheDecision lets a plan stop a job on a, which saves nothing, and start it on b
// later.
func TestAMoveThatLosesWorkIsPaidForByTheDecision(t *testing.T) {
	t.Parallel()
	saved := func(saves bool) time.Duration {
		y, p, _ := pricedYard(t)
		y.submit("alice", elastic())
		y.plan(p, comparedStart)
		y.runs("a", "j1.1")
		y.now = y.now.Add(40 * time.Second)
		y.plan(p, func(v *place.View) place.Plan {
			return place.Plan{Stops: []place.Stop{{Running: v.Running[0], Reason: "for others"}}}
		})

		if saves {
			y.stops("a", "j1.1")
		} else {
			y.ok(yardmaster.NodeReport{Node: "a", Restores: true, Ranks: []yardmaster.RankReport{
				{Run: "j1.1", State: job.RunEnded, Signalled: true, Started: start, Ended: y.now},
			}})
		}

		b := y.plan(p, func(v *place.View) place.Plan { return startOn(v, "b", 1) })
		for i := range b.Ledger.Decisions {
			for _, saving := range b.Ledger.Decisions[i].Closed {
				if saving.Kind == "preemption" {
					return saving.Time.Duration()
				}
			}
		}

		t.Fatalf("no decision about the stop: %+v", b.Ledger.Decisions)

		return 0
	}

	with, without := saved(true), saved(false)
	if with-without != 30*time.Second { // 40 s less ten to start
		t.Errorf("the stop saved %s with a checkpoint and %s without", with, without)
	}
}
