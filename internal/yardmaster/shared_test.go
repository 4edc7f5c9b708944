package yardmaster_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place/ordered"
	"trainyard/internal/yardmaster"
)

// found is what a node says of the shared file system lab.
func (y *saves) found(n id.Node, reason string) {
	y.t.Helper()
	info, err := y.NodeByName(n)
	if err != nil {
		y.t.Fatal(err)
	}

	inv := info.Inventory
	inv.Shared = []fleet.Shared{{Name: "lab", Path: "/mnt/lab", OK: reason == "", Reason: reason}}
	y.ok(yardmaster.NodeReport{Node: n, Restores: true, Inventory: &inv})
	y.round()
}

// keptBy adds a checkpoint that a run has kept on the shared file system lab.
func (y *saves) keptBy(epoch int, step int64) id.Checkpoint {
	y.t.Helper()
	y.now = y.now.Add(time.Second)
	c := y.checkpointOf(epoch, step)
	c.Parts[0].Shared, c.Parts[0].Path = "lab", "trainyard/kept"

	entry, err := y.add(c)
	if err != nil {
		y.t.Fatal(err)
	}

	return entry.ID
}

func TestAJobContinuesOnlyWhereItsSharedCheckpointIs(t *testing.T) {
	t.Parallel()
	y := newSaves(t)
	y.found("a", "")
	y.preempted(1) // its next run is launched knowing the file system

	second := y.orders[y.run(2)]
	if second.Node != "a" || second.Launch.Shared != "lab" {
		t.Fatalf("the second run is on %s with its checkpoints on %q", second.Node, second.Launch.Shared)
	}

	y.starts(2)
	kept := y.keptBy(2, 7)
	y.ok(yardmaster.Cordon{Node: "a", By: "alice", On: true})
	y.preempted(2)

	if _, launched := y.orders[y.run(3)]; launched {
		t.Fatal("it was launched on a node that does not see its checkpoint")
	}

	// The reason names what is missing.
	y.found("a", "not mounted")
	y.found("b", "nonce not found")

	if why, ok := y.Why(y.now, y.job); !ok || !strings.Contains(why.Sentence, "shared file system lab") ||
		!strings.Contains(why.Sentence, "a: not mounted") {
		t.Errorf("it is queued because %+v", why)
	}

	y.found("b", "")

	if y.orders[y.run(3)].Node != "b" || y.restore(3) != kept {
		t.Errorf("the third run is on %s from %q, want b from %s", y.orders[y.run(3)].Node, y.restore(3), kept)
	}
}

func TestAnUploadedCheckpointGoesOnASharedFileSystemToo(t *testing.T) {
	t.Parallel()
	y := newSaves(t)
	y.starts(1)
	uploaded := y.saved(1, 3)
	y.found("b", "")
	y.ok(yardmaster.Cordon{Node: "a", By: "alice", On: true})
	y.preempted(1)

	if o := y.orders[y.run(2)]; o.Node != "b" || o.Launch.Shared != "lab" || y.restore(2) != uploaded {
		t.Errorf("the second run is on %s, on %q, from %q", o.Node, o.Launch.Shared, y.restore(2))
	}
}

func TestAJobWhoseSharedCheckpointIsCorruptRunsAnywhere(t *testing.T) {
	t.Parallel()
	y := newSaves(t)
	y.found("a", "")
	y.preempted(1)
	y.starts(2)
	kept := y.keptBy(2, 7)
	y.preempted(2)
	y.ok(yardmaster.Cordon{Node: "a", By: "alice", On: true})
	y.report(3, yardmaster.RankReport{
		State: job.RunEnded, Ended: y.now, Cause: job.CauseRestoreFailed, Reason: "damaged",
		Restore: &job.RestoreFailure{Checkpoint: kept, Corrupt: true},
	})
	y.now = y.now.Add(time.Hour)
	y.round()

	if o, ok := y.orders[y.run(4)]; !ok || o.Node != "b" || o.Launch.Restore != nil {
		t.Errorf("after its only checkpoint is gone it runs on %q from %v", o.Node, o.Launch.Restore)
	}
}

func TestANodeThatLosesASharedFileSystemSaysSo(t *testing.T) {
	t.Parallel()
	y := newSaves(t)
	y.found("a", "")
	y.found("a", "/mnt/lab is not mounted")
	y.found("a", "/mnt/lab is not mounted") // it is said once
	y.found("a", "")

	if got := y.reasons("node.shared_found"); len(got) != 2 || !strings.Contains(got[0], "lab is at /mnt/lab") {
		t.Errorf("found: %q", got)
	}

	if got := y.reasons("node.shared_missing"); len(got) != 1 || !strings.Contains(got[0], "/mnt/lab is not mounted") {
		t.Errorf("missing: %q", got)
	}

	y.found("a", "/mnt/lab is not mounted")
	y.preempted(1)

	if o := y.orders[y.run(2)]; o.Launch.Shared != "" {
		t.Errorf("the next run has its checkpoints on %q, which is not there", o.Launch.Shared)
	}
}

func TestOneNodeAloneMakesASharedFileSystem(t *testing.T) {
	t.Parallel()
	cfg := yardmaster.Defaults(ordered.FIFO{})
	cfg.Shared = fleet.SharedFolders{{Name: "lab", Path: "/mnt/lab"}}
	y := &saves{yard: newYardOf(t, cfg)}

	for _, n := range []string{"b", "a"} { // b joined first
		y.yard.node(n, 1)
		y.now = y.now.Add(time.Second)
	}

	creators := func() []id.Node {
		var list []id.Node
		for _, n := range []id.Node{"a", "b"} {
			if f := y.SharedFolders(n); len(f) != 1 || f[0].Path != "/mnt/lab" {
				t.Fatalf("node %s is told of %+v", n, f)
			} else if f[0].Create {
				list = append(list, n)
			}
		}

		return list
	}

	if got := creators(); got != nil {
		t.Errorf("%v make it before they have looked", got)
	}

	y.found("a", "not found")
	y.found("b", "not found")

	if got := creators(); !slices.Equal(got, []id.Node{"b"}) {
		t.Errorf("%v make it, want b alone", got)
	}

	y.found("b", "")

	if got := creators(); got != nil || !y.SharedFolders("b")[0].Keeper || y.SharedFolders("a")[0].Keeper {
		t.Errorf("%v make it again", got)
	}

	y.found("b", "not mounted") // an empty folder is not made another one

	if got := creators(); got != nil {
		t.Errorf("%v make it again although it was there", got)
	}
}
