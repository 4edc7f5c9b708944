package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"trainyard/internal/api"
)

func TestCheckpointsStayOnASharedFileSystem(t *testing.T) {
	t.Parallel()
	lab, wrong := t.TempDir(), t.TempDir()
	y := newYard(t, "--shared-fs", fmt.Sprintf("lab=%s,lab=%s@elsewhere", lab, wrong))
	y.join(t, []string{"north", "south"})

	shared := func(node string) string {
		var n api.Node
		y.decode(t, &n, "nodes", node, "-o", "json")

		if len(n.Shared) != 1 {
			return "none"
		}

		return n.Shared[0].Reason
	}

	y.await(t, "both nodes to find the shared file system", func() bool { return shared("north")+shared("south") == "" })

	// One whose folder is another one says so, and gets nothing of it.
	token := strings.TrimSpace(y.succeed(t, "tokens", "create", "--join", "--pool", "elsewhere", "-q").out)
	if _, err := y.StartAgent("west", token); err != nil {
		t.Fatal(err)
	}

	y.await(t, "the wrong folder to be reported", func() bool {
		all := y.events(t, "node.shared_missing")
		return strings.Contains(strings.Join(all, " "), wrong)
	})

	id := y.submit(t, script(strings.Split(strings.TrimSpace(saving), "\n")...))
	y.awaitOutput(t, id, "begins at 0")
	y.await(t, "a checkpoint in the catalogue", func() bool { return len(y.events(t, "checkpoint.stored")) > 0 })

	first := nodeOf(t, y.job(t, id), 1)
	for _, n := range []string{first, "west"} {
		y.succeed(t, "cordon", n)
	}

	y.succeed(t, "drain", first)
	y.succeed(t, "wait", id)

	d := y.job(t, id)
	if len(d.Runs) != 2 || nodeOf(t, d, 2) == first || nodeOf(t, d, 2) == "west" {
		t.Fatalf("the job did not move: %+v", d.Runs)
	}

	want := fmt.Sprintf("stopped at %d", y.beginning(t, id+".2"))
	if out := y.succeed(t, "logs", id+".1").out; !strings.Contains(out, want) {
		t.Errorf("the second run began where the first was not: %q, want %s", out, want)
	}

	var list api.CheckpointList
	y.decode(t, &list, "checkpoints", id, "-o", "json")

	for _, c := range list.Checkpoints {
		if c.Shared != "lab" {
			t.Errorf("checkpoint %s is on %q", c.ID, c.Shared)
		}
	}

	kept, err := filepath.Glob(filepath.Join(lab, "trainyard", id+"-*", "*", "kept", "*", "step"))
	if err != nil || len(kept) != len(list.Checkpoints) || len(kept) == 0 {
		t.Errorf("%d checkpoints are on the file system, the catalogue has %d (%v)", len(kept), len(list.Checkpoints), err)
	}

	if left, err := os.ReadDir(wrong); err != nil || len(left) > 0 {
		t.Errorf("in the wrong folder: %v, %v", left, err)
	}
}
