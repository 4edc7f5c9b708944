package e2e_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"trainyard/internal/job"
	"trainyard/test/yardtest"
)

// saving is a job file whose first run counts in a checkpoint until it is stopped. The next one says where it begins.
const saving = `
cd "$TRAINYARD_CHECKPOINT_DIR"
n=$(cat step 2>/dev/null || echo 0)
echo begins at $n
if test $TRAINYARD_EPOCH -gt 1; then exit 0; fi
trap 'echo stopped at $n; exit 1' TERM
while true; do n=$((n + 1)); echo $n > step.tmp; mv step.tmp step; sleep 0.1; done`

// beginning returns where a run of a job began.
func (y *yard) beginning(t *testing.T, run string) int {
	t.Helper()
	out := y.succeed(t, "logs", run, "--stream", "stdout").out
	text, _, _ := strings.Cut(strings.TrimPrefix(out, "begins at "), "\n")

	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("run %s printed %q", run, out)
	}

	return n
}

func TestADrainedJobContinuesElsewhereFromItsLastCheckpoint(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.join(t, []string{"north", "south"})
	id := y.submit(t, script(strings.Split(strings.TrimSpace(saving), "\n")...))
	y.awaitOutput(t, id, "begins at 0")

	y.await(t, "a checkpoint in the catalogue", func() bool { return len(y.events(t, "checkpoint.stored")) > 0 })

	first := nodeOf(t, y.job(t, id), 1)
	y.succeed(t, "drain", first)
	y.succeed(t, "wait", id)

	d := y.job(t, id)
	if len(d.Runs) != 2 || nodeOf(t, d, 2) == first {
		t.Fatalf("the job did not move: %+v", d.Runs)
	}

	want := fmt.Sprintf("stopped at %d", y.beginning(t, id+".2"))
	if out := y.succeed(t, "logs", id+".1").out; !strings.Contains(out, want) {
		t.Errorf("the second run began where the first was not: %q, want %s", out, want)
	}
}

func TestAJobOfALostNodeContinuesFromWhatWasStored(t *testing.T) {
	t.Parallel()
	y := newYard(t, "--suspect-after", "1s", "--lost-after", "4s")
	y.join(t, []string{"north", "south"})
	id := y.submit(t, script(strings.Split(strings.TrimSpace(saving), "\n")...))
	y.awaitOutput(t, id, "begins at 0")
	y.await(t, "a checkpoint in the catalogue", func() bool { return len(y.events(t, "checkpoint.stored")) > 0 })

	first := nodeOf(t, y.job(t, id), 1)
	if err := yardtest.KillAll(y.AgentData(first)); err != nil { // agent, supervisor and program: the machine dies
		t.Fatal(err)
	}

	y.succeed(t, "wait", id)

	d := y.job(t, id)
	if len(d.Runs) != 2 || d.Runs[0].Cause != job.CauseNodeLost || nodeOf(t, d, 2) == first {
		t.Fatalf("the runs are %+v", d.Runs)
	}

	if n := y.beginning(t, id+".2"); n == 0 {
		t.Error("the second run began anew")
	}
}
