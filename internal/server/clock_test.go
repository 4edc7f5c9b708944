package server

import (
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// A step of the wall clock, forward or back, ends no patience and no time limit, and changes no
// duration, no cost and no order of events.
func TestStepsOfTheWallClockChangeNothing(t *testing.T) {
	t.Parallel()

	for _, step := range []time.Duration{3 * time.Hour, -3 * time.Hour, 10 * time.Minute, -10 * time.Minute} {
		t.Run(step.String(), func(t *testing.T) {
			t.Parallel()
			y := newYard(t)
			c, n := y.admin(), y.join("n1")
			j := y.submit(c, "run: a\nmax_duration: 9m")[0].ID
			n.listen()
			run := n.awaitRun(j, 1)
			n.starts(run, 0)

			y.clock.step(step)
			y.advance(10 * time.Second)
			n.tell(api.RankReport{Run: run, Rank: 0, State: job.RunRunning, Started: y.clock.Now()})

			// A job that came after the step is placed, so the loop has seen it and its timers.
			later := y.submit(c, "run: b")[0].ID
			n.awaitRun(later, 1)

			node, err := c.Node(t.Context(), n.name)
			y.must(err)

			if node.State != "running" {
				t.Errorf("the node is %s (%s)", node.State, node.Reason)
			}

			y.clock.step(-2 * step)
			y.advance(10 * time.Second)
			n.ends(run, 0, 0)

			checkTimes(t, y, c, j)
		})
	}
}

// checkTimes looks at a job that ran for 20 seconds.
func checkTimes(t *testing.T, y *yard, c *api.Client, j id.Job) {
	t.Helper()
	detail, err := c.Job(t.Context(), j)
	y.must(err)

	if detail.State != job.Succeeded {
		t.Fatalf("the job is %s: %s", detail.State, detail.Reason)
	}

	// What the test itself takes counts too.
	const least, most = 20 * time.Second, 5 * time.Minute
	if ran := detail.Ended.Sub(*detail.Started); ran < least-time.Second || ran > most {
		t.Errorf("it ran for %s, want 20s", ran)
	}

	usage, err := c.Usage(t.Context(), api.UsageQuery{})
	y.must(err)

	for _, u := range usage.UseRate {
		if busy := time.Duration(u.BusyNode * float64(time.Second)); busy < least-time.Second || busy > most {
			t.Errorf("%s is charged, want 20s", busy)
		}
	}

	events, err := c.Events(t.Context(), api.EventFilter{})
	y.must(err)

	for i := 1; i < len(events.Events); i++ {
		if before, e := events.Events[i-1], events.Events[i]; e.At.Before(before.At) {
			t.Errorf("%s at %s comes after %s at %s", e.Kind, e.At, before.Kind, before.At)
		}
	}
}
