package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"trainyard/internal/api"
	"trainyard/internal/executable"
	"trainyard/internal/job"
	"trainyard/test/yardtest"
)

// countingUntil counts in its output and in a checkpoint until a file exists, and fails then.
func countingUntil(gate string) string {
	return script(
		`cd "$TRAINYARD_CHECKPOINT_DIR"`,
		"n=0",
		"until test -e "+gate+"; do",
		"  n=$((n + 1)); echo line $n; echo $n > step.tmp; mv step.tmp step; sleep 0.05",
		"done",
		"echo last $n",
		"exit 7")
}

// install puts a build where the agent of a node is started from, as an upgrade does: a program that runs keeps the
// file that it was started from.
func install(t *testing.T, build, at string) {
	t.Helper()
	text, err := os.ReadFile(build)
	if err == nil {
		err = executable.Write(at+".new", text, 0o755)
	}

	if err == nil {
		err = os.Rename(at+".new", at)
	}

	if err != nil {
		t.Fatal(err)
	}
}

// lines returns how many lines a job has printed.
func (y *yard) lines(t *testing.T, id string) int {
	t.Helper()
	return strings.Count(y.succeed(t, "logs", id, "--stream", "stdout").out, "\n")
}

// TestAgentsAreUpgradedUnderRunningJobs replaces the build of an agent while its job runs: by a newer one, by the older
// one again, which finds a supervisor and files of the newer one, and by the newer one after the older was killed. The
// server is newer than all of them.
func TestAgentsAreUpgradedUnderRunningJobs(t *testing.T) {
	t.Parallel()
	builds := t.TempDir()

	for _, version := range []string{"1.0.0", "1.1.0"} {
		if err := yardtest.BuildVersion(filepath.Join(builds, version), version); err != nil {
			t.Fatal(err)
		}
	}

	y := newYard(t)
	y.Binary = filepath.Join(y.Folder, "agent-trainyard") // the server runs already
	install(t, filepath.Join(builds, "1.0.0"), y.Binary)
	y.join(t, []string{"north"}, "--fake-gpus", "none", "--probe", "off")

	gate := filepath.Join(y.Folder, "gate")
	first := y.submit(t, countingUntil(gate))
	jobs := []string{first}
	y.awaitOutput(t, first, "line 3")

	for _, step := range []struct {
		version string
		stop    syscall.Signal
	}{{"1.1.0", syscall.SIGTERM}, {"1.0.0", syscall.SIGTERM}, {"1.1.0", syscall.SIGKILL}} {
		if err := y.agents["north"].Signal(step.stop); err != nil {
			t.Fatal(err)
		}

		<-y.agents["north"].Gone()
		install(t, filepath.Join(builds, step.version), y.Binary)

		p, err := y.StartAgent("north", "", "--fake-gpus", "none", "--probe", "off")
		if err != nil {
			t.Fatal(err)
		}

		y.agents["north"] = p
		saved := len(y.events(t, "checkpoint.stored"))
		printed := y.lines(t, first)

		y.await(t, "the agent is "+step.version+", and output and checkpoints arrive", func() bool {
			var n api.Node
			y.decode(t, &n, "nodes", "north", "-o", "json")

			return n.Version == step.version && n.State == "running" && y.lines(t, first) > printed+3 &&
				len(y.events(t, "checkpoint.stored")) > saved
		})

		// One that this build starts goes on under the next one, too.
		next := y.submit(t, countingUntil(gate))
		jobs = append(jobs, next)
		y.awaitOutput(t, next, "line 3")
	}

	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	for _, id := range jobs {
		y.run(t, "wait", id)

		d := y.job(t, id)
		if len(d.Runs) != 1 || d.State != job.Failed || d.Runs[0].Ranks[0].ExitCode == nil ||
			*d.Runs[0].Ranks[0].ExitCode != 7 {
			t.Errorf("job %s is %s after %d runs: %s", id, d.State, len(d.Runs), d.Reason)
		}

		lines := strings.Split(strings.TrimSuffix(y.succeed(t, "logs", id, "--stream", "stdout").out, "\n"), "\n")
		last := len(lines) - 1

		for i, line := range lines[:last] {
			if want := fmt.Sprintf("line %d", i+1); line != want {
				t.Fatalf("the output of %s has %q, want %q", id, line, want)
			}
		}

		if want := fmt.Sprintf("last %d", last); lines[last] != want {
			t.Errorf("the output of %s ends with %q, want %q", id, lines[last], want)
		}
	}
}

// TestAnAgentWithAnotherNameKeepsItsNode starts an agent with the data directory of a node and another name.
func TestAnAgentWithAnotherNameKeepsItsNode(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.join(t, []string{"north"})

	before := y.submit(t, script("echo hi"))
	y.succeed(t, "wait", before)

	if err := y.agents["north"].Kill(); err != nil {
		t.Fatal(err)
	}

	p, err := y.StartAgent("north", "", "--name", "gpu-9")
	if err != nil {
		t.Fatal(err)
	}

	y.agents["north"] = p
	y.await(t, "the agent says that it keeps its name", func() bool {
		text, err := os.ReadFile(y.AgentLog("north"))
		return err == nil && strings.Contains(string(text), "keeps its name")
	})

	id := y.submit(t, script("echo hi"))
	y.succeed(t, "wait", id)

	if got := nodeOf(t, y.job(t, id), 1); got != "north" {
		t.Errorf("the job ran on %s", got)
	}

	var page api.NodePage
	y.decode(t, &page, "nodes", "-o", "json")

	if len(page.Nodes) != 1 {
		t.Errorf("there are %d nodes", len(page.Nodes))
	}
}
