package runtime

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/api"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/logs"
)

// After a power cut a rank ends, whatever is left of its unsynced files, and its agent never sends bytes
// that do not continue what the server already has.
func TestARankWhoseMachineLostPowerEnds(t *testing.T) {
	t.Parallel()

	for name, cut := range map[string]func(log []byte) (left []byte, state bool){
		"all is there":            func(log []byte) ([]byte, bool) { return log, true },
		"the state is empty":      func(log []byte) ([]byte, bool) { return log, false },
		"half of the log is gone": func(log []byte) ([]byte, bool) { return log[:len(log)/2], true },
		"the whole log is gone":   func([]byte) ([]byte, bool) { return nil, true },
		"the log ends with zeros": func(log []byte) ([]byte, bool) {
			return append(bytes.Clone(log[:len(log)/2]), make([]byte, 4096)...), false
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newYard(t)
			run := y.start(api.Launch{Command: "echo hello; echo world >&2; sleep 1000"})
			y.await(run, job.RunRunning)
			y.follow(run, "hello\n")
			y.powerCut(t, run)

			path := filepath.Join(y.runDir(run), rundir.OutputFile)
			log, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}

			left, state := cut(log)
			if err := os.WriteFile(path, left, 0o600); err != nil {
				t.Fatal(err)
			}

			if !state {
				if err := os.Truncate(filepath.Join(y.runDir(run), rundir.StateFile), 0); err != nil {
					t.Fatal(err)
				}
			}

			cause := job.CauseNodeLost // as after every start of the machine
			if state {
				cause = job.CauseSupervisorLost // the power was not really cut
			}

			y.open()
			check(t, y.end(run), 0, "", cause, false, "the supervisor was killed")

			// The server has any part of what was there before the power was cut.
			for sent := range len(log) + 1 {
				checkContinues(t, log[:sent], y.rest(run, int64(sent)))
			}
		})
	}
}

// powerCut ends the agent and all processes of a run.
func (y *yard) powerCut(t *testing.T, run id.Run) {
	t.Helper()
	watcher := y.awaitWatcher(run)
	supervisor, err := rundir.LockHolder(y.runDir(run))
	if err == nil {
		err = errors.Join(y.Close(), unix.Kill(watcher, unix.SIGKILL), unix.Kill(supervisor, unix.SIGKILL))
	}

	if err != nil {
		t.Fatal(err)
	}
}

// rest reads the log of a run from an offset on.
func (y *yard) rest(run id.Run, offset int64) []byte {
	y.t.Helper()
	f, _, err := y.OpenLog(run, 0, offset)
	if err != nil {
		y.t.Fatal(err)
	}

	defer func() { _ = f.Close() }()

	data, err := io.ReadAll(f)
	if err != nil {
		y.t.Fatal(err)
	}

	return data
}

// checkContinues makes sure that what was sent before and what is sent now are one log. It may end with a
// torn frame if nothing could be added.
func checkContinues(t *testing.T, before, now []byte) {
	t.Helper()
	d := logs.NewDecoder(bytes.NewReader(append(bytes.Clone(before), now...)))

	var err error
	for err == nil {
		_, err = d.Next()
	}

	if !errors.Is(err, io.EOF) && (len(now) > 0 || !errors.Is(err, io.ErrUnexpectedEOF)) {
		t.Errorf("%q followed by %q is not a log: %v", before, now, err)
	}
}

// cutRecord empties the record of a rank, as a power cut may.
func (y *yard) cutRecord(run id.Run) {
	y.t.Helper()

	if err := os.Truncate(filepath.Join(y.runDir(run), rundir.LaunchFile), 0); err != nil {
		y.t.Fatal(err)
	}
}

// The end of a rank is synced, its record is not.
func TestAnEndSurvivesTheLossOfItsRecord(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	run := y.script("echo done; exit 3")
	y.end(run)
	y.cutRecord(run)
	y.reopen()

	check(t, y.end(run), 3, "", job.CauseUserCode, false, "exit code 3")

	if out := y.output(run)[logs.Stdout]; out != "done\n" {
		t.Errorf("it wrote %q", out)
	}
}

func TestWhatAPowerCutLeftOfAStartIsRemoved(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	rk, err := y.createRunDir(y.spec(api.Launch{Command: "true"}))
	if err != nil {
		t.Fatal(err)
	}

	y.cutRecord(rk.rec.Run)
	y.reopen()

	if _, err := os.Stat(rk.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory is left: %v", err)
	}
}

// The state of a rank that runs is not synced: after a power cut it may look as if no supervisor had taken it.
func TestARankOfAnEarlierStartOfTheMachineDoesNotBegin(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	s := y.spec(api.Launch{Command: "true"})
	rk, err := y.createRunDir(s)
	if err != nil {
		t.Fatal(err)
	}

	rk.rec.Boot = "earlier"
	if err := rundir.WriteJSON(filepath.Join(rk.dir, rundir.LaunchFile), rk.rec, false); err != nil {
		t.Fatal(err)
	}

	y.reopen()

	if err := y.Start(t.Context(), s); err != nil {
		t.Fatal(err)
	}

	if st := y.end(s.Run); st.Cause != job.CauseNodeLost || !st.Started.IsZero() {
		t.Errorf("it ended as %+v", st)
	}
}
