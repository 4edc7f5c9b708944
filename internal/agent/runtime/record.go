package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent/runtime/cgroup"
	"trainyard/internal/api"
	"trainyard/internal/atomicfile"
	"trainyard/internal/clock"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// Names inside the data directory and inside a run directory.
const (
	runsDir        = "runs"
	setupsDir      = "setups"
	checkpointsDir = "checkpoints"
	leaseFile      = "lease"
	eventsPipe     = "events"
	lockFile       = "lock"
	launchFile     = "launch.json"
	stateName      = "state.json"
	outputFile     = "output.log"
	stopFile       = "stop"
	controlPipe    = "control"
	supervisorLog  = "supervisor.log"
	workDir        = "work"
	progressFile   = "progress.json"
	metricsFile    = "metrics.jsonl"
)

// Spec is one rank of a run that this machine shall carry out.
type Spec struct {
	Run    id.Run     `json:"run"`
	Rank   int        `json:"rank"`
	Job    id.Job     `json:"job"`
	Epoch  int        `json:"epoch"`
	Launch api.Launch `json:"launch"`
	// Devices is how the program is told its GPUs, such as by UUID. Empty means
	// the indices of Launch.GPUs.
	Devices []string `json:"devices,omitempty"`
	// Offered are further variables for the program. The job's own go before them.
	Offered map[string]string `json:"offered,omitempty"`
}

// name is that of the rank's run directory.
func (s Spec) name() string { return rankName(s.Run, s.Rank) }

func rankName(run id.Run, rank int) string { return string(run) + "." + strconv.Itoa(rank) }

// record is launch.json: all that the supervisor needs to know.
type record struct {
	Spec
	Env    []string     `json:"env"`
	Setup  *setupPlan   `json:"setup,omitempty"`
	Limits cgroup.Place `json:"limits"`
}

// Status is how far a rank has come.
type Status struct {
	Run   id.Run       `json:"run"`
	Rank  int          `json:"rank"`
	Job   id.Job       `json:"job"`
	Epoch int          `json:"epoch"`
	State job.RunState `json:"state"`
	// Started is when the command was started; zero if it never was.
	Started  time.Time `json:"started,omitzero"`
	Ended    time.Time `json:"ended,omitzero"`
	ExitCode int       `json:"exit_code,omitempty"`
	Signal   string    `json:"signal,omitempty"`
	Cause    job.Cause `json:"cause,omitempty"`
	Reason   string    `json:"reason,omitempty"`
	// Signalled says that the end is the answer to a stop and not the program's
	// own: it was running, or not started yet, when it was told to stop.
	Signalled bool `json:"signalled,omitempty"`
	// PID is that of the program, or of the set-up while preparing; 0 if none runs.
	PID int `json:"pid,omitempty"`
}

// Report is the status in the words of the agent's protocol.
func (s Status) Report() api.RankReport {
	return api.RankReport{
		Run: s.Run, Rank: s.Rank, State: s.State, Started: s.Started, Ended: s.Ended, ExitCode: s.ExitCode,
		Signal: s.Signal, Cause: s.Cause, Reason: s.Reason, Signalled: s.Signalled,
	}
}

// state is state.json.
type state struct {
	Status
	// Begun is the kernel's time at which the program with this PID was started.
	// Together with it the PID names one process only.
	Begun uint64        `json:"begun,omitempty"`
	Group *cgroup.Group `json:"group,omitempty"`
}

// end puts the end of a rank into its state.
func (st *state) end(e ending, now time.Time) {
	st.State, st.Ended, st.PID, st.Begun = job.RunEnded, now, 0, 0
	st.ExitCode, st.Signal, st.Cause, st.Reason, st.Signalled = e.code, e.signal, e.cause, e.reason, e.signalled
}

// readJSON reads a file into v and reports whether it was there.
func readJSON(path string, v any) (bool, error) {
	data, err := os.ReadFile(path) //nolint:gosec // inside the data directory
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return true, fmt.Errorf("read %s: %w", path, err)
	}
	return true, nil
}

// writeJSON replaces a file as a whole: a reader sees the old text or the new
// one. With durable the new one survives a power cut once the call returns.
func writeJSON(path string, v any, durable bool) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return writeFile(path, data, durable)
}

func writeFile(path string, data []byte, durable bool) error {
	if durable {
		return atomicfile.Write(path, data, atomicfile.SingleWriter())
	}
	return atomicfile.Write(path, data, atomicfile.SingleWriter(), atomicfile.Volatile())
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// writeState writes state.json. Only the holder of the run's lock calls it. A
// failure, such as a full disk, is tried again every second until ctx ends.
func writeState(ctx context.Context, dir string, st state, failed func(error)) error {
	durable := st.State == job.RunEnded
	for {
		err := writeJSON(filepath.Join(dir, stateName), st, durable)
		if err == nil {
			return nil
		}
		failed(err)
		if _, gone := os.Stat(dir); errors.Is(gone, fs.ErrNotExist) {
			return err // someone removed the run; there is nobody left to tell
		}
		if !clock.Sleep(ctx, time.Second) {
			return err
		}
	}
}

// takeLock takes a run's lock for this process. It is free again when the file
// is closed or the process dies. Children do not inherit it.
func takeLock(dir string) (*os.File, bool, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // the run directory that main was given
	if err != nil {
		return nil, false, err
	}
	err = unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
	if err == nil {
		return f, true, nil
	}
	if cerr := f.Close(); cerr != nil {
		return nil, false, cerr
	}
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return nil, false, nil
	}
	return nil, false, fmt.Errorf("lock %s: %w", dir, err)
}

// lockHolder returns the process other than this one that holds a run's lock, 0 if none does.
func lockHolder(dir string) (int, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	lk := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &lk); err != nil {
		return 0, fmt.Errorf("look at the lock of %s: %w", dir, err)
	}
	if lk.Type == unix.F_UNLCK {
		return 0, nil
	}
	return int(lk.Pid), nil
}
