package server

import (
	"slices"
	"testing"

	"trainyard/internal/api"
	"trainyard/internal/checkpoint"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/yardmaster"
)

// withShared declares the shared file system lab.
func withShared(c *Config, k *yardmaster.Config) {
	c.HasShared, k.Shared = true, fleet.SharedFolders{{Name: "lab", Path: "/mnt/lab"}}
}

// finds reports what a node found of lab, and returns what it is told.
func (n *node) finds(reason string) api.SharedFolder {
	n.y.t.Helper()
	var inv fleet.Inventory
	n.y.must(n.y.loop.Query(n.y.t.Context(), func(core *yardmaster.Yard) {
		info, err := core.NodeByName(n.name)
		if err == nil {
			inv = info.Inventory
		}
	}))

	inv.Shared = []fleet.Shared{{Name: "lab", Path: "/mnt/lab", OK: reason == "", Reason: reason}}
	reply, err := n.Report(n.y.t.Context(), api.Report{Capability: api.Capability, Boot: "b", Inventory: &inv})
	n.y.must(err)

	if len(reply.Shared) != 1 || reply.Shared[0].Name != "lab" || reply.Shared[0].Path != "/mnt/lab" {
		n.y.t.Fatalf("node %s is told of %+v", n.name, reply.Shared)
	}

	return reply.Shared[0]
}

func TestNodesAreToldOfTheirSharedFileSystem(t *testing.T) {
	t.Parallel()
	y := newYard(t, withShared)
	first, second := y.join("first"), y.join("second")
	asked := first.finds("not found")
	other := second.finds("not found")

	if !asked.Create || other.Create || len(asked.Nonce) != 32 || other.Nonce != asked.Nonce {
		t.Errorf("told: %+v and %+v, want the first alone to make it", asked, other)
	}

	if got := first.finds(""); got.Create || !got.Keeper || !got.Known {
		t.Errorf("when it has found it: %+v", got)
	}

	if got := second.finds("not found"); got.Create || got.Keeper || !got.Known {
		t.Errorf("one that has not found it: %+v", got)
	}
}

func TestWhatIsNeededOnASharedFileSystem(t *testing.T) {
	t.Parallel()
	y := newYard(t, withShared)
	ada := y.researcher("ada")
	n, blind := y.join("first"), y.join("second")
	n.finds("")
	y.do(yardmaster.Cordon{Node: "second", By: "test", On: true})
	n.listen()

	j, run := n.started(ada)
	uid := n.assigned(run).Launch.UID

	if on := n.assigned(run).Launch.Shared; on != "lab" {
		t.Fatalf("its checkpoints are on %q", on)
	}

	// The files are not uploaded, but the manifest must be there.
	manifest, _ := twoFiles()
	in := n.newCheckpoint(run, manifest)
	in.Shared, in.Path = "lab", "trainyard/one"
	_, err := n.AddCheckpoint(t.Context(), in)
	wantFault(t, err, fault.Conflict, "chunk_missing")
	y.must(n.PutChunk(t.Context(), run, digestOf(manifest), []byte(manifest)))

	bad := in
	bad.Path = "../elsewhere"
	_, err = n.AddCheckpoint(t.Context(), bad)
	wantFault(t, err, fault.Invalid, "bad_path")

	added, err := n.AddCheckpoint(t.Context(), in)
	y.must(err)

	if added.State != checkpoint.Stored {
		t.Fatalf("added as %+v", added)
	}

	unneeded := func(c *node, dirs ...api.SharedDir) []string {
		t.Helper()
		reply, err := c.UnneededDirs(t.Context(), api.SharedDirs{Shared: "lab", Dirs: dirs})
		y.must(err)

		return reply.Remove
	}

	dirs := []api.SharedDir{
		{Run: run, UID: uid, Path: "trainyard/one", Kept: true},
		{Run: run, UID: uid, Path: "trainyard/run"},
		{Run: run, UID: uid, Path: "trainyard/lost", Kept: true},
		{Run: run, UID: "of-another-history", Path: "trainyard/other", Kept: true},
		{Run: "j99.1", UID: "unknown", Path: "trainyard/unknown"},
	}

	if got := unneeded(n, dirs...); len(got) > 0 {
		t.Errorf("%v can be removed while the run works", got)
	}

	_, err = blind.UnneededDirs(t.Context(), api.SharedDirs{Shared: "lab", Dirs: dirs})
	wantFault(t, err, fault.Denied, "not_your_shared_fs")

	// The next run has a directory of its own, and continues from what is kept.
	now := y.clock.Now()
	n.tell(api.RankReport{Run: run, State: job.RunEnded, Started: now, Ended: now, Signalled: true})

	next := id.NewRun(j, 2)
	if part := n.assigned(next).Launch.Restore.Parts[0]; part.Shared != "lab" || part.Path != "trainyard/one" {
		t.Fatalf("it is restored from %+v", part)
	}

	if got := unneeded(n, dirs...); !slices.Equal(got, []string{"trainyard/run", "trainyard/lost"}) {
		t.Errorf("%v can be removed when a newer run exists", got)
	}

	n.starts(next, 0)
	newer := n.newCheckpoint(next, manifest)
	newer.Shared, newer.Path = "lab", "trainyard/two"
	_, err = n.AddCheckpoint(t.Context(), newer)
	y.must(err)
	y.do(yardmaster.RemoveCheckpoint{Checkpoint: added.ID, Owner: "ada", By: "ada", Why: "test"})

	if got := unneeded(n, dirs[0]); !slices.Equal(got, []string{"trainyard/one"}) {
		t.Errorf("%v can be removed when the catalogue has removed it", got)
	}
}
