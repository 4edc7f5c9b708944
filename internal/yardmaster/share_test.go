package yardmaster_test

import (
	"math"
	"testing"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/queue"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// TestProjectsAreChargedAcrossARestart: the use of a project is counted beside that of
// its people, weighted by the speed of what it holds, and kept.
func TestProjectsAreChargedAcrossARestart(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.node("a", 4)

	inv := fleet.Inventory{CPUs: 64000, Memory: 1 << 40}
	for i := range 4 {
		inv.GPUs = append(
			inv.GPUs,
			fleet.GPU{Index: i, Model: "NVIDIA H100", Memory: 80 << 30, Measured: 2 * queue.ReferenceTFLOPS},
		)
	}

	y.ok(yardmaster.NodeReport{Node: "a", Inventory: &inv})
	y.ok(yardmaster.AcceptNode{Node: "a", By: "admin"})
	y.ok(yardmaster.PutUser{User: "bob", Role: tenant.Researcher, By: "admin"})

	for _, owner := range []id.User{"alice", "bob"} {
		s := spec(2)
		s.Project = "vision"
		y.submit(owner, s)
	}

	y.round()

	store := newRecord()
	if err := store.commit(y.Take()); err != nil {
		t.Fatal(err)
	}

	y.pass(time.Hour, "a")

	want := queue.Decayed(0, 4*2+2.0/16, time.Hour)
	if got := y.View(y.now).ProjectUsage["vision"]; math.Abs(got-want) > 1e-3*want {
		t.Errorf("the project has used %g, want %g", got, want)
	}

	if got := yardmaster.UsageOf(y.Yard, "alice"); math.Abs(got-want/2) > 1e-3*want {
		t.Errorf("alice has used %g, want half of her project's %g", got, want)
	}

	state, err := store.load(y.now)
	if err != nil {
		t.Fatal(err)
	}

	again := yardmaster.New(yardmaster.Defaults(nil))
	again.Load(y.now, state)

	if got := again.View(y.now).ProjectUsage["vision"]; math.Abs(got-want) > 1e-3*want {
		t.Errorf("after a restart the project has used %g, want %g", got, want)
	}

	if err := yardmaster.CheckInvariants(again, nil); err != nil {
		t.Error(err)
	}

	// What a GPU is worth may change while a run holds it: it gives back what it was charged.
	for i := range inv.GPUs {
		inv.GPUs[i].Measured = queue.ReferenceTFLOPS
	}

	y.ok(yardmaster.NodeReport{Node: "a", Inventory: &inv})
	y.check()
	y.ends("j1", 0, yardmaster.RankReport{Cause: job.CauseNone})
	y.ends("j2", 0, yardmaster.RankReport{Cause: job.CauseNone})

	if rate := yardmaster.RateOf(y.Yard, "alice"); rate != 0 {
		t.Errorf("alice is charged for %g GPUs and nothing runs", rate)
	}
}
