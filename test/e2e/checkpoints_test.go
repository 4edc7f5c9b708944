package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
trap 'echo stopped at $(cat step); exit 1' TERM
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

// savingAlone saves a folder once, which its user alone may read and change. The next run changes it.
const savingAlone = `
umask 077
cd ckpt
echo begins at $(cat state/step 2>/dev/null || echo 0)
echo user $(id -u)
if test $TRAINYARD_EPOCH -gt 1; then
  stat -c 'owner %u mode %a of %n' state state/step
  echo changed > state/step; mkdir state/more; mv state/more other; cat "$TRAINYARD_CHECKPOINT_DIR/state/step"
  exit 0
fi
mkdir next; echo 7 > next/step; mv next state
trap 'exit 1' TERM
while true; do sleep 0.1; done`

// TestACheckpointIsRestoredForAUserOfItsOwn moves a job between nodes on which its owner's jobs run as different
// users: what was saved by the one belongs to the other afterwards, and is still closed to everybody else.
func TestACheckpointIsRestoredForAUserOfItsOwn(t *testing.T) {
	t.Parallel()

	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("needs root to run jobs as users of their own")
		}

		t.Skip("needs root to run jobs as users of their own")
	}

	y := newYard(t)
	uids := map[string]string{"north": "320000-320099", "south": "330000-330099"}

	for name, uids := range uids {
		t.Cleanup(func() { yardtest.Unblock(uids) })
		y.join(t, []string{name}, "--isolation", "users", "--job-uids", uids)
	}

	id := y.submit(t, script(strings.Split(strings.TrimSpace(savingAlone), "\n")...)+"checkpoint: {dir: ckpt}\n")
	y.awaitOutput(t, id, "begins at 0")
	y.await(t, "a checkpoint in the catalogue", func() bool { return len(y.events(t, "checkpoint.stored")) > 0 })

	first := nodeOf(t, y.job(t, id), 1)
	y.succeed(t, "drain", first)

	if got := y.run(t, "wait", id); got.code != 0 {
		t.Fatalf("the job failed: %s\n%s", got.err, y.succeed(t, "logs", id).out)
	}

	d := y.job(t, id)
	if len(d.Runs) != 2 || nodeOf(t, d, 2) == first {
		t.Fatalf("the job did not move: %+v", d.Runs)
	}

	second := uids[nodeOf(t, d, 2)][:4] // its user ids begin with these digits
	out := y.succeed(t, "logs", id+".2", "--stream", "stdout").out

	for _, want := range []string{
		"begins at 7\n", "user " + second, "owner " + second, "mode 700 of state\n", "mode 600 of state/step\n", "changed\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the second run wrote %q, want %q in it", out, want)
		}
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

// unsaved counts in its memory alone, and at 5 waits for the file go on the second node.
const unsaved = `n=0
while [ $n -lt 9 ]; do
  n=$((n + 1)); echo count $n; while [ $n = 5 ] && [ ! -e "$GO" ]; do sleep 0.05; done
done`

func TestAJobThatSavesNothingContinuesElsewhereFromItsSnapshot(t *testing.T) {
	t.Parallel()
	criu := criu(t)
	y := newYard(t)
	y.join(t, []string{"north", "south"}, "--criu", criu)

	goOn := filepath.Join(t.TempDir(), "go")
	file := script(strings.Split(unsaved, "\n")...) + "checkpoint: {snapshot: true}\nenv: {GO: " + goOn + "}\n"
	id := y.submit(t, strings.Replace(file, "grace: 5s", "grace: 1m", 1))
	y.awaitOutput(t, id, "count 5")

	first := nodeOf(t, y.job(t, id), 1)
	y.succeed(t, "drain", first)
	y.await(t, "a second run", func() bool {
		runs := y.job(t, id).Runs
		return len(runs) == 2 && runs[1].State == job.RunRunning
	})

	if err := os.WriteFile(goOn, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	y.succeed(t, "wait", id)

	d := y.job(t, id)
	if len(d.Runs) != 2 || nodeOf(t, d, 2) == first {
		t.Fatalf("the job did not move: %+v", d.Runs)
	}

	if out := y.succeed(t, "logs", id+".2", "--stream", "stdout").out; out != "count 6\ncount 7\ncount 8\ncount 9\n" {
		t.Errorf("the second run wrote %q", out)
	}
}

func TestAJobIsRefusedIfNoNodeCanTakeItsSnapshots(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.join(t, []string{"north"}, "--criu", "criu-that-is-not-there")

	path := filepath.Join(t.TempDir(), "job.yaml")
	if err := os.WriteFile(path, []byte(script("true")+"checkpoint: {snapshot: true}\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	if got := y.run(t, "submit", "-y", "-q", path); !strings.Contains(got.err, "north: CRIU is not installed") {
		t.Errorf("submit wrote %+v", got)
	}
}

// criu returns the CRIU of the tests.
func criu(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "../../scripts/setup-criu.sh", "--check").Output()
	if err != nil || os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("needs root and CRIU: run make setup")
		}

		t.Skip("needs root and CRIU: run make setup")
	}

	path, _, _ := strings.Cut(string(out), "\n")

	return path
}
