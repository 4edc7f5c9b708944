package yardmaster_test

import (
	"testing"

	"trainyard/internal/id"
	"trainyard/internal/place"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// edited asks what an edit would change.
func (y *yard) edited(j id.Job, set ...string) yardmaster.EditPreview {
	y.t.Helper()

	h, err := y.RehearseEdit(y.now, yardmaster.Edit{Job: j, By: "alice", Set: set})
	if err != nil {
		y.t.Fatal(err)
	}

	return h.Preview(nil)
}

// TestAnEditIsAsItWasRehearsed: the positions of a preview are those that the edit then gives, and the preview changes
// nothing.
func TestAnEditIsAsItWasRehearsed(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.node("a", 4)
	y.ok(yardmaster.PutUser{User: "bob", Role: tenant.Researcher, By: "test"})
	y.submit("alice", spec(4)) // j1 runs
	y.Round(y.now)

	for range 3 { // j2 to j4
		y.submit("alice", spec(4))
	}

	y.submit("bob", spec(4)) // j5
	y.Round(y.now)

	position := func(j id.Job) int {
		why, _ := y.Why(y.now, j)
		return why.Position
	}

	before := position("j4")
	p := y.edited("j4", "priority=50")

	if got := position("j4"); got != before || p.Before != before {
		t.Errorf("j4 is at %d and was at %d before it was asked; the preview says %d", got, before, p.Before)
	}

	y.ok(yardmaster.Edit{Job: "j4", By: "alice", Set: []string{"priority=50"}})
	y.Round(y.now)

	if got := position("j4"); got != p.After || got != 1 {
		t.Errorf("j4 is at %d, and %d was said", got, p.After)
	}
	if len(p.Passed) != before-1 || len(p.Passing) != 0 {
		t.Errorf("it passes %d and is passed by %d, want %d and none", len(p.Passed), len(p.Passing), before-1)
	}

	back := y.edited("j4", "priority=0")
	if back.After != before || len(back.Passing) != before-1 || len(back.Passed) != 0 {
		t.Errorf("back to %d, passed by %d: want %d and %d", back.After, len(back.Passing), before, before-1)
	}
}

func TestTheRehearsalOfAnEditSaysWhatStarts(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.node("a", 4)
	y.submit("alice", spec(3)) // j1 runs
	y.Round(y.now)
	y.submit("alice", spec(4)) // j2
	y.Round(y.now)

	if p := y.edited("j2", "priority=9"); p.Starts || p.Why.Blocker != place.BlockResources {
		t.Errorf("it starts: %t, because of %+v; want it to wait for j1", p.Starts, p.Why)
	}
	if p := y.edited("j2", "resources.gpus=1"); !p.Starts || p.Why.Blocker != place.BlockNone {
		t.Errorf("it starts: %t, because of %+v; want it to start", p.Starts, p.Why)
	}

	y.ok(yardmaster.Pause{Job: "j2", By: "alice"})

	if p := y.edited("j2", "priority=9"); p.Starts || p.Before != 0 || p.After != 0 || p.Why.Blocker != place.BlockPaused {
		t.Errorf("a paused job: %+v", p)
	}
}

// TestARehearsalNamesWhomAnEditPreempts: those that are stopped where the job starts, and no others.
func TestARehearsalNamesWhomAnEditPreempts(t *testing.T) {
	t.Parallel()
	y, p := scripted(t)

	for _, n := range []id.Node{"a", "b"} { // j1 on a, j2 on b
		y.submit("alice", elastic())
		y.plan(p, func(v *place.View) place.Plan { return startOn(v, n, 0b1111) })
	}

	y.runs("a", "j1.1")
	y.runs("b", "j2.1")
	y.submit("alice", spec(4)) // j3
	y.plan(p, func(*place.View) place.Plan { return place.Plan{} })

	p.plan = func(v *place.View) place.Plan {
		plan := startOn(v, "b", 0b1111)
		for _, rn := range v.Running {
			plan.Stops = append(plan.Stops, place.Stop{Running: rn, Reason: "for a job of a higher priority"})
		}

		return plan
	}

	got := y.edited("j3", "priority=90")
	if !got.Starts || len(got.Preempted) != 1 || got.Preempted[0].Job != "j2" {
		t.Errorf("starts %t, preempts %d", got.Starts, len(got.Preempted))
	}
}
