package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"trainyard/internal/api"
	"trainyard/internal/job"
	"trainyard/test/yardtest"
)

// elsewhere is a job file whose first run goes on until it is stopped and
// whose second one succeeds. Each run writes down when it begins and when it
// is told to stop.
func elsewhere(record string) string {
	return script(
		"note() { echo $1 $TRAINYARD_EPOCH >> "+record+"; }",
		"trap 'note stopped; exit 1' TERM",
		"note begun",
		"echo run $TRAINYARD_EPOCH",
		"if test $TRAINYARD_EPOCH -gt 1; then exit 0; fi",
		"n=0",
		"while true; do echo line $n; n=$((n + 1)); sleep 0.05; done")
}

// nodeOf returns the node on which a run of a job is or was.
func nodeOf(t *testing.T, d api.JobDetail, epoch int) string {
	t.Helper()

	for _, r := range d.Runs {
		if r.Epoch == epoch {
			return string(r.Ranks[0].Node)
		}
	}

	t.Fatalf("job %s has no run %d", d.ID, epoch)

	return ""
}

func TestACordonedNodeGetsNothingNewAndADrainedOneGivesUpItsJobs(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.join(t, []string{"north", "south"})
	record := filepath.Join(y.Folder, "record")
	id := y.submit(t, elsewhere(record))
	y.awaitOutput(t, id, "line 1")
	first := nodeOf(t, y.job(t, id), 1)
	y.succeed(t, "cordon", first)

	for range 4 {
		other := y.submit(t, script("echo hi"))
		y.succeed(t, "wait", other)

		if got := nodeOf(t, y.job(t, other), 1); got == first {
			t.Errorf("%s was placed on the cordoned node", other)
		}
	}

	if d := y.job(t, id); d.State != job.Running || len(d.Runs) != 1 {
		t.Errorf("the job that ran there is %s after %d runs (%s)", d.State, len(d.Runs), d.Reason)
	}

	y.succeed(t, "drain", first)
	y.succeed(t, "wait", id)

	d := y.job(t, id)
	if len(d.Runs) != 2 || nodeOf(t, d, 2) == first {
		t.Errorf("the job did not move: %+v", d.Runs)
	}

	if got := awaitFile(t, record); got != "begun 1\nstopped 1\nbegun 2\n" {
		t.Errorf("what happened: %q", got)
	}

	y.succeed(t, "uncordon", first)

	if r := y.succeed(t, "nodes", first); strings.Contains(r.out, "cordoned") {
		t.Errorf("the node is still cordoned: %s", r)
	}
}

func TestAJobOfALostNodeStartsElsewhere(t *testing.T) {
	t.Parallel()
	y := newYard(t, "--suspect-after", "1s", "--lost-after", "4s")
	y.join(t, []string{"north", "south"})
	record := filepath.Join(y.Folder, "record")
	id := y.submit(t, elsewhere(record))
	y.awaitOutput(t, id, "line 3")

	first := nodeOf(t, y.job(t, id), 1)
	if err := yardtest.KillAll(y.AgentData(first)); err != nil { // agent, supervisor and program: the machine dies
		t.Fatal(err)
	}

	y.succeed(t, "wait", id)

	d := y.job(t, id)
	if len(d.Runs) != 2 || d.Runs[0].Cause != job.CauseNodeLost || nodeOf(t, d, 2) == first {
		t.Errorf("the runs are %+v", d.Runs)
	}

	lines := strings.Split(strings.TrimSpace(y.succeed(t, "logs", id+".1", "--stream", "stdout").out), "\n")
	if len(lines) < 5 || lines[0] != "run 1" {
		t.Fatalf("what the lost node had sent is gone: %q", lines)
	}

	for n, line := range lines[1:] {
		if line != fmt.Sprintf("line %d", n) {
			t.Errorf("line %d of the lost run is %q", n, line)
			break
		}
	}

	if got := y.succeed(t, "logs", id+".2").out; got != "run 2\n" {
		t.Errorf("the second run printed %q", got)
	}

	if got := awaitFile(t, record); got != "begun 1\nbegun 2\n" {
		t.Errorf("what happened: %q", got)
	}
}

func TestANodeThatIsCutOffStopsItsRunsBeforeTheyStartElsewhere(t *testing.T) {
	t.Parallel()
	y := newYard(t, "--suspect-after", "1s", "--lost-after", "5s")
	y.join(t, []string{"north", "south"})
	record := filepath.Join(y.Folder, "record")
	id := y.submit(t, elsewhere(record))
	y.awaitOutput(t, id, "line 3")
	first := nodeOf(t, y.job(t, id), 1)
	agent := y.agents[first]
	if err := agent.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}

	y.succeed(t, "wait", id)

	if got := awaitFile(t, record); got != "begun 1\nstopped 1\nbegun 2\n" {
		t.Errorf("what happened while the agent stood still: %q", got)
	}

	if err := agent.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}

	y.await(t, "the node is back", func() bool {
		var n api.Node
		y.decode(t, &n, "nodes", first, "-o", "json")
		return n.State == "idle"
	})

	if d := y.job(t, id); d.State != job.Succeeded || len(d.Runs) != 2 {
		t.Errorf("when the node was back the job became %s with %d runs", d.State, len(d.Runs))
	}

	y.await(t, "the node has forgotten the run", func() bool {
		entries, err := os.ReadDir(filepath.Join(y.AgentData(first), "agent", "runs"))
		if err != nil {
			t.Fatal(err)
		}

		return len(entries) == 0
	})
}

func TestANodeIsTakenOut(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.join(t, []string{"north"})
	y.succeed(t, "nodes", "remove", "north")
	y.await(t, "the agent says that its node was taken out", func() bool {
		return strings.Contains(yardtest.Tail(y.AgentLog("north"), 20), "has been removed from the yard")
	})

	waits := y.submit(t, script("echo hi"))
	if d := y.job(t, waits); d.State != job.Pending || d.Why == nil || d.Why.Blocker != "no_node" {
		t.Errorf("with no node left the job is %s: %+v", d.State, d.Why)
	}

	y.exits(t, 102, "drain", "north")
}

func TestAJobRunsOnANodeWithItsLabels(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.join(t, []string{"north"})
	y.join(t, []string{"south"}, "--labels", "ssd, zone=a")

	for range 3 {
		id := y.submit(t, script("echo hi")+"labels: [zone=a, ssd]\n")
		y.succeed(t, "wait", id)

		if got := nodeOf(t, y.job(t, id), 1); got != "south" {
			t.Errorf("a job ran on %s, which does not have its labels", got)
		}
	}

	if r := y.succeed(t, "nodes", "south"); !strings.Contains(r.out, "ssd, zone=a") {
		t.Errorf("the labels are not shown: %s", r)
	}

	file := filepath.Join(y.Folder, "nvme.yaml")
	if err := os.WriteFile(file, []byte(script("echo hi")+"labels: nvme\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	r := y.run(t, "submit", file)
	if r.code == 0 || !strings.Contains(r.err, "labels") || !strings.Contains(r.err, "no node has label nvme") {
		t.Errorf("a job that no node can run is submitted: %s", r)
	}
}
