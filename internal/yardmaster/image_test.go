package yardmaster_test

import (
	"slices"
	"strings"
	"testing"

	"trainyard/internal/checkpoint"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/yardmaster"
)

// saverNode adds a node with one GPU that takes snapshots.
func (y *yard) saverNode(name, driver string) {
	y.t.Helper()
	can := fleet.Ability{OK: true}
	y.ok(yardmaster.Join{Token: "join", Name: name, Inventory: fleet.Inventory{
		Address: name, Arch: "x86_64", Kernel: "6.12.1", CPUs: 64000, Memory: 256 << 30, Restores: true,
		GPUs:      []fleet.GPU{{UUID: name, Model: "NVIDIA H200", Memory: 141 << 30, Driver: driver}},
		Snapshots: &fleet.Snapshots{CRIU: "4.1", Suspend: can, Process: can, GPU: can},
	}})
}

// snapshotted returns a yard whose job j1 was saved by a snapshot on node a, driver 580.1, and is queued again. Nodes
// are tried in the order of their names.
func snapshotted(t *testing.T, before func(y *yard)) *yard {
	t.Helper()
	y := newYard(t)
	y.saverNode("a", "580.1")

	s := spec(1)
	s.Checkpoint = &job.Checkpoint{Snapshot: true}
	y.submit("alice", s)
	y.round()
	y.runs("a", "j1.1")
	before(y)

	y.ok(yardmaster.Cordon{Node: "a", By: "alice", On: true, Stop: true})
	y.ok(yardmaster.AddCheckpoint{Checkpoint: checkpoint.Checkpoint{
		Run: "j1.1", Name: "snapshot-1", Step: -1, Ranks: 1, Written: y.now, Found: checkpoint.BySnapshot,
		Parts: []checkpoint.Part{{Node: "a", Manifest: "m", Size: 1}},
	}})
	y.ok(yardmaster.NodeReport{Node: "a", Restores: true, Ranks: []yardmaster.RankReport{
		{Run: "j1.1", State: job.RunEnded, Signalled: true, Started: start, Ended: y.now},
	}})
	y.Take()

	return y
}

// restored returns where the second run of j1 was ordered, and from which checkpoint.
func restored(t *testing.T, orders []yardmaster.Order) (id.Node, id.Checkpoint) {
	t.Helper()
	at := slices.IndexFunc(orders, func(o yardmaster.Order) bool { return o.Run == "j1.2" })
	if at < 0 {
		return "", ""
	}

	if r := orders[at].Launch.Restore; r != nil {
		return orders[at].Node, r.Checkpoint
	}

	return orders[at].Node, ""
}

func TestASnapshotIsContinuedOnANodeThatFits(t *testing.T) {
	t.Parallel()
	y := snapshotted(t, func(*yard) {})
	y.saverNode("b", "570.1")
	y.round()

	if node, _ := restored(t, y.Take().Orders); node != "" {
		t.Fatalf("started on %s, whose driver cannot continue the snapshot, though a could", node)
	}

	y.saverNode("c", "580.1")
	y.round()

	b := y.Take()
	if node, from := restored(t, b.Orders); node != "c" || from != "j1.c1" {
		t.Errorf("started on %q from %q, want on c from the snapshot j1.c1", node, from)
	}

	if skipped := eventsOf(b, "checkpoint.skipped"); len(skipped) > 0 {
		t.Errorf("events %q", skipped)
	}
}

func TestASnapshotThatNoNodeCanContinueIsSkipped(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		before     func(y *yard)
		from       id.Checkpoint
		snap, next string
	}{
		"for the checkpoint before": {func(y *yard) { y.stores("j1.1") }, "j1.c1", "j1.c2", "the job continues from j1.c1"},
		"and the job begins anew":   {func(*yard) {}, "", "j1.c1", "the job begins anew"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := snapshotted(t, tc.before)
			y.saverNode("b", "570.1")
			y.ok(yardmaster.NodeGone{Node: "a", By: "test", Reason: "it burned"})
			y.round()

			b := y.Take()
			if node, from := restored(t, b.Orders); node != "b" || from != tc.from {
				t.Fatalf("started on %q from %q, want on b from %q", node, from, tc.from)
			}

			want := "snapshot " + tc.snap +
				" cannot be continued on node b: it needs GPU driver 580.1, the node has 570.1; " + tc.next
			if got := eventsOf(b, "checkpoint.skipped"); len(got) != 1 || got[0] != want {
				t.Errorf("events %q, want %q", got, want)
			}
		})
	}
}

// TestARunningJobMovesOnlyToWhereItsSnapshotFits lets a plan move a job before a snapshot of it was taken.
func TestARunningJobMovesOnlyToWhereItsSnapshotFits(t *testing.T) {
	t.Parallel()
	y, p := scripted(t)
	y.saverNode("one", "580.1")
	y.saverNode("other", "570.1")

	s := elastic()
	s.Resources.GPUs = job.Range{Min: 1, Max: 1}
	s.Checkpoint = &job.Checkpoint{Snapshot: true}
	y.submit("alice", s)
	y.plan(p, func(v *place.View) place.Plan { return startOn(v, "one", 1) })
	y.runs("one", "j1.1")
	y.Take()

	b := y.plan(p, func(v *place.View) place.Plan {
		plan := moveTo("other")(v)
		plan.Starts[0].Allocations[0].GPUs = 1

		return plan
	})

	dropped := strings.Join(eventsOf(b, "plan.dropped"), "\n")
	if len(b.Orders) > 0 || !strings.Contains(dropped, "it does not fit on node other") {
		t.Errorf("orders %+v, dropped %q", b.Orders, dropped)
	}
}
