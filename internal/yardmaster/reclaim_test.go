package yardmaster_test

import (
	"strings"
	"testing"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/yardmaster"
)

// noticed lets the agent of a node report that its machine is taken back.
func (y *yard) noticed(n id.Node, left time.Duration) {
	y.t.Helper()
	y.ok(yardmaster.NodeReport{Node: n, Restores: true, Reclaim: &left})
	y.check()
}

// spotJob returns a yard whose job j1 runs on a, with a grace period of 30 seconds.
func spotJob(t *testing.T) (*yard, *script) {
	t.Helper()
	y, p := scripted(t)
	s := elastic()
	s.Grace = job.Duration(30 * time.Second)
	y.submit("alice", s)
	y.plan(p, func(v *place.View) place.Plan { return startOn(v, "a", 1) })
	y.runs("a", "j1.1")
	p.plan = func(*place.View) place.Plan { return place.Plan{} }
	y.Take()

	return y, p
}

// stopOrder returns how the only run is to be stopped.
func stopOrder(t *testing.T, y *yard) job.StopMode {
	t.Helper()

	list := y.Orders()
	if len(list) != 1 {
		t.Fatalf("orders %+v, want one", list)
	}

	return list[0].Stop
}

// TestAJobSavesWithinTheNotice: a job that saves on request is asked to, is stopped when that is stored, and continues
// elsewhere. None of its attempts is used up.
func TestAJobSavesWithinTheNotice(t *testing.T) {
	t.Parallel()
	y, p := spotJob(t)
	y.stores("j1.1")
	y.Take()
	y.noticed("a", 2*time.Minute)

	b := y.Take()
	if len(b.Orders) != 1 || b.Orders[0].Save != 1 || b.Orders[0].Stop != job.StopNone {
		t.Fatalf("orders %+v, want that it is asked to save and continues", b.Orders)
	}

	if got := eventsOf(b, "node.reclaim_notice"); len(got) != 1 || !strings.Contains(got[0], fleet.SpotReclaimed) {
		t.Errorf("events %q", got)
	}

	if v := y.View(y.now); v.Rooms[0].Open || !v.Running[0].Stopping {
		t.Errorf("node open %v, job about to stop %v; want cordoned and true", v.Rooms[0].Open, v.Running[0].Stopping)
	}

	y.now = y.now.Add(5 * time.Second)
	y.noticed("a", 115*time.Second) // again

	if b := y.Take(); len(b.Orders) != 0 || len(eventsOf(b, "node.reclaim_notice")) != 0 {
		t.Fatalf("orders %+v, events %+v after the same notice", b.Orders, b.Events)
	}

	y.stores("j1.1")

	if got := stopOrder(t, y); got != job.StopTerm {
		t.Fatalf("stop %q after its checkpoint was stored", got)
	}

	y.stops("a", "j1.1")
	y.Take()

	got := y.job("j1")
	if got.State != job.Recovering || !strings.Contains(got.Reason, fleet.SpotReclaimed) || !got.NotBefore.IsZero() {
		t.Errorf("j1 is %s (%s), not before %v", got.State, got.Reason, got.NotBefore)
	}

	b = y.plan(p, func(v *place.View) place.Plan { return startOn(v, "b", 1) })
	if len(b.Orders) != 1 || b.Orders[0].Run != "j1.2" || b.Orders[0].Node != "b" || b.Orders[0].Launch.Restore == nil {
		t.Errorf("orders %+v, want j1.2 on b from its checkpoint", b.Orders)
	}
}

// TestRunsAreStoppedBeforeTheNoticeEnds: in time for the grace period and the upload, whether or not something was
// saved.
func TestRunsAreStoppedBeforeTheNoticeEnds(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		saves  bool // on request
		notice time.Duration
		passes time.Duration
		want   job.StopMode
	}{
		"it saves on request and has time":  {true, 2 * time.Minute, 74 * time.Second, job.StopNone},
		"it has not saved, and time is up":  {true, 2 * time.Minute, 75 * time.Second, job.StopTerm},
		"the notice is too short for that":  {true, 45 * time.Second, 0, job.StopTerm},
		"it does not save on request":       {false, 2 * time.Minute, 0, job.StopTerm},
		"the notice has come after its end": {true, 0, 0, job.StopTerm},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y, _ := spotJob(t)
			if tc.saves {
				y.stores("j1.1")
			}

			y.noticed("a", tc.notice)
			y.pass(tc.passes, "b")

			if got := stopOrder(t, y); got != tc.want {
				t.Errorf("stop %q, want %q", got, tc.want)
			}
		})
	}
}

// TestALostSpotInstanceUsesUpNoAttempt: if the machine is gone before its runs have ended, their jobs are requeued at
// once. Without a notice it is a failure of the node like any other.
func TestALostSpotInstanceUsesUpNoAttempt(t *testing.T) {
	t.Parallel()

	for _, notice := range []bool{true, false} {
		y, _ := spotJob(t)
		y.stores("j1.1")

		if notice {
			y.noticed("a", 2*time.Minute)
		}

		y.ok(yardmaster.NodeGone{Node: "a", By: "test", Reason: fleet.SpotReclaimed})
		y.check()

		got, tries := y.job("j1"), 1
		if notice {
			tries = 0
		}

		if got.State != job.Recovering || got.Tried[job.CauseNodeLost] != tries || got.NotBefore.IsZero() != notice {
			t.Errorf("notice %v: j1 is %s, tried %v, not before %v", notice, got.State, got.Tried, got.NotBefore)
		}
	}
}

// TestANodeIsReleasedWhenItsJobsHaveLeft: its provider need not be paid until it takes the machine back.
func TestANodeIsReleasedWhenItsJobsHaveLeft(t *testing.T) {
	t.Parallel()
	y, _, node := rented(t)
	y.noticed(node, 2*time.Minute)

	if got := y.leases(); got != "l1 active" || stopOrder(t, y) != job.StopTerm {
		t.Fatalf("leases %q, orders %+v", got, y.Orders())
	}

	y.stops(node, "j1.1")

	if got := y.leases(); got != "l1 releasing" {
		t.Errorf("leases %q", got)
	}
}

// TestAMoveGoesOnWithinTheNotice: a job that saves to move elsewhere is stopped for that, and goes there.
func TestAMoveGoesOnWithinTheNotice(t *testing.T) {
	t.Parallel()
	y, _ := moving(t)
	y.noticed("a", 2*time.Minute)
	y.stores("j1.1")

	if got := stopOrder(t, y); got != job.StopTerm {
		t.Fatalf("stop %q after its checkpoint was stored", got)
	}

	y.stops("a", "j1.1")

	if list := y.Orders(); len(list) != 1 || list[0].Node != "b" || list[0].Run != "j1.2" {
		t.Errorf("orders %+v, want j1.2 on b", list)
	}
}
