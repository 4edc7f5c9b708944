package runtime

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/api"
	"trainyard/internal/executable"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// withCRIU lets a Runtime take snapshots with the CRIU of the tests.
func withCRIU(t *testing.T) func(*Options) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "../../../scripts/setup-criu.sh", "--check").Output()
	if err != nil || os.Geteuid() != 0 {
		lacking(t, "needs root and CRIU: run make setup")
	}

	path, _, _ := strings.Cut(string(out), "\n")

	return func(o *Options) {
		o.CRIU = path
		o.Restore = func(context.Context, rundir.Spec, string) error { return nil } // it is still there
	}
}

// counting counts in its memory and in files, and at 3 waits for a file.
const counting = `n=0
trap 'echo got SIGTERM; exit 9' TERM
while [ $n -lt 6 ]; do
  n=$((n+1)); echo "count $n of $TRAINYARD_RUN"; echo $n >>numbers; echo $n >>ckpt/numbers
  while [ $n = 3 ] && [ ! -e go ]; do sleep 0.02; done
done
echo "end $(wc -l <numbers) $(ls $TRAINYARD_CHECKPOINT_DIR | tr '\n' ' ') $PWD"
`

// saveable is the launch of a run of counting.
func saveable() api.Launch {
	return api.Launch{Command: counting, Checkpoint: "ckpt", Snapshot: true, LogLimit: 1 << 20}
}

// counted starts a run and waits until it has counted to 3.
func (y *yard) counted(s rundir.Spec) {
	y.t.Helper()
	if err := y.Start(y.t.Context(), s); err != nil {
		y.t.Fatal(err)
	}

	one := func(n string) string { return "count " + n + " of " + string(s.Run) + "\n" }
	y.follow(s.Run, one("1")+one("2")+one("3"))
}

// text is all output of a run, and what the supervisor remarked.
func (y *yard) text(run id.Run) string {
	y.t.Helper()
	all := ""
	for _, part := range y.output(run) {
		all += part
	}

	return all
}

func TestAStoppedProgramContinuesFromItsSnapshot(t *testing.T) {
	t.Parallel()
	y := newYard(t, withCRIU(t))
	first := y.spec(saveable())
	y.counted(first)

	if err := y.Stop(first.Run, 0, job.StopDump); err != nil {
		t.Fatal(err)
	}

	st := y.await(first.Run, job.RunEnded)
	if !st.Signalled || st.Cause != job.CauseCancelled || !strings.Contains(st.Reason, "saved by a snapshot") {
		t.Fatalf("the run ended as %+v, log %q", st, y.text(first.Run))
	}

	second := first
	second.Epoch, second.Run = 2, id.NewRun(first.Job, 2)
	second.Launch.Restore = &job.Restore{Checkpoint: "j1-c1", Name: "snapshot-1", Snapshot: true}
	if err := y.Start(t.Context(), second); err != nil {
		t.Fatal(err)
	}

	y.await(second.Run, job.RunRunning)
	if err := os.WriteFile(filepath.Join(y.runDir(second.Run), rundir.WorkDir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}

	if st := y.await(second.Run, job.RunEnded); st.ExitCode != 0 || st.Cause != job.CauseNone {
		t.Fatalf("the second run ended as %+v, log %q", st, y.text(second.Run))
	}

	text := y.text(second.Run)
	for _, want := range []string{"count 4 of ", "count 6 of ", "end 6 numbers snapshot-1  /run/trainyard/job/run/work"} {
		if !strings.Contains(text, want) {
			t.Errorf("the log of the second run has no %q: %q", want, text)
		}
	}

	if strings.Contains(text, "count 3 of ") || strings.Contains(text, "SIGTERM") {
		t.Errorf("the second run began anew, or was signalled: %q", text)
	}
}

func TestAProgramThatCannotBeSavedIsTerminated(t *testing.T) {
	t.Parallel()
	broken := filepath.Join(t.TempDir(), "criu")
	if err := executable.Write(broken, []byte("#!/bin/sh\nexit 7\n"), 0o700); err != nil {
		t.Fatal(err)
	}

	y := newYard(t, withCRIU(t), func(o *Options) { o.CRIU = broken })
	s := y.spec(saveable())
	y.counted(s)
	run := s.Run

	if err := y.Stop(run, 0, job.StopDump); err != nil {
		t.Fatal(err)
	}

	st := y.await(run, job.RunEnded)
	if text := y.text(run); st.ExitCode != 9 || !strings.Contains(text, "got SIGTERM") ||
		!strings.Contains(text, "could not be saved by a snapshot") {
		t.Errorf("the run ended as %+v, log %q", st, text)
	}
}

func TestACancelledProgramIsNotSaved(t *testing.T) {
	t.Parallel()
	y := newYard(t, withCRIU(t))
	s := y.spec(saveable())
	y.counted(s)

	if err := y.Stop(s.Run, 0, job.StopTerm); err != nil {
		t.Fatal(err)
	}

	st := y.await(s.Run, job.RunEnded)
	_, err := os.Stat(filepath.Join(y.dir, rundir.CheckpointsDir, string(s.Job), "snapshot-1"))
	if st.ExitCode != 9 || err == nil {
		t.Errorf("the run ended as %+v, and its snapshot: %v", st, err)
	}
}

func TestASnapshotThatCannotBeContinuedIsNamed(t *testing.T) {
	t.Parallel()
	y := newYard(t, withCRIU(t))
	l := saveable()
	l.Restore = &job.Restore{Checkpoint: "j1-c1", Name: "snapshot-1", Snapshot: true}
	st := y.await(y.start(l), job.RunEnded)

	if st.Cause != job.CauseRestoreFailed || st.Restore == nil || st.Restore.Checkpoint != "j1-c1" {
		t.Errorf("the run ended as %+v", st)
	}
}

func TestANodeWithoutCRIURejectsPrograms(t *testing.T) {
	t.Parallel()
	y := newYard(t, func(o *Options) { o.CRIU = "criu-that-is-not-there" })

	err := y.Start(t.Context(), y.spec(saveable()))
	if err == nil || !strings.Contains(err.Error(), "CRIU is not installed") {
		t.Errorf("the start failed with %v", err)
	}
}
