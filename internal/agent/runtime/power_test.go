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
