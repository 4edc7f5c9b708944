package e2e_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"trainyard/internal/api"
	"trainyard/test/yardtest"
)

// TestACopyOfAnAgentsFolderIsRefused starts a second agent on a copy of a node's data directory while a job runs there,
// as a cloned machine does. The copy holds the node's key and the record of the run.
func TestACopyOfAnAgentsFolderIsRefused(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.join(t, []string{"north"})
	done := filepath.Join(y.Folder, "done")
	id := y.submit(t, counting(done))
	y.awaitOutput(t, id, "line 10\n")

	copied := filepath.Join(y.Folder, "copied")
	if out, err := exec.CommandContext(t.Context(), "cp", "-a", y.AgentData("north"),
		copied).CombinedOutput(); err != nil {
		t.Fatalf("copy the data directory: %v: %s", err, out)
	}

	cmd := exec.CommandContext(t.Context(), binary, "agent", "run", "--isolation", "none", "--data", copied)

	second, err := yardtest.Start(cmd, y.AgentLog("copied"))
	if err != nil {
		t.Fatal(err)
	}

	code, err := second.Wait(patience)
	if text := yardtest.Tail(y.AgentLog("copied"), 20); err != nil || code != 104 ||
		!strings.Contains(text, "node north already has an agent") || !strings.Contains(text, y.AgentData("north")) {
		t.Errorf("the copy ended with code %d (%v):\n%s", code, err, text)
	}

	y.checkCounted(t, id)

	if out := y.succeed(t, "events", "--node", "north").out; !strings.Contains(out, "copy of its data directory") {
		t.Errorf("no event says that a copy was refused:\n%s", out)
	}

	var n api.Node
	y.decode(t, &n, "nodes", "north", "-o", "json")

	if n.State != "idle" {
		t.Errorf("the node is %s (%s)", n.State, n.Reason)
	}

	// The first agent is still the node's, also after it is started again.
	if code, err := y.agents["north"].Stop(patience); err != nil || code != 0 {
		t.Errorf("the first agent ended with code %d (%v)", code, err)
	}

	again := exec.CommandContext(t.Context(), binary, "agent", "run", "--isolation", "none", "--data",
		y.AgentData("north"))
	if _, err := yardtest.Start(again, y.AgentLog("north")); err != nil {
		t.Fatal(err)
	}

	y.succeed(t, "wait", y.submit(t, script("echo hi")))
}
