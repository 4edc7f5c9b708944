package rundir

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"trainyard/internal/agent/runtime/cgroup"
	"trainyard/internal/agent/sandbox"
	"trainyard/internal/api/wire"
	"trainyard/internal/atomicfile"
	"trainyard/internal/clock"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// Spec is one rank of a run that this machine is to execute.
type Spec struct {
	Run    id.Run      `json:"run"`
	Rank   int         `json:"rank"`
	Job    id.Job      `json:"job"`
	Epoch  int         `json:"epoch"`
	Launch wire.Launch `json:"launch"`
	// Devices names the GPUs of the rank for its program, for instance by UUID. If it
	// is empty the indices of Launch.GPUs are used.
	Devices []string `json:"devices,omitempty"`
	// Fake says that these GPUs are declared and do not exist.
	Fake bool `json:"fake,omitempty"`
	// ExtraEnv are environment variables that the agent adds. The job's own take precedence.
	ExtraEnv map[string]string `json:"extra_env,omitempty"`
	// CheckpointDir is the checkpoint directory if it is on a shared file system.
	CheckpointDir string `json:"checkpoint_dir,omitempty"`
	// Visible are files and directories in the data directory that the program may read.
	Visible []string `json:"visible,omitempty"`
	// ShareLibrary is the library with which the program is held back on the GPU that it shares; "" if it shares none.
	ShareLibrary string `json:"share_library,omitempty"`
	// MPS is where the program finds the MPS daemon through which it shares its GPU; "" if it does not.
	MPS string `json:"mps,omitempty"`
	// Secrets are the values of those that the launch names. They are never written to the disk.
	Secrets []wire.SecretValue `json:"-"`
	// RegistryAuth are the credentials that the launch names. They are not written either.
	RegistryAuth string `json:"-"`
}

// Checkpoints returns the checkpoint directory of the rank, given the data directory of the agent.
func (s Spec) Checkpoints(data string) string {
	if s.CheckpointDir != "" {
		return s.CheckpointDir
	}

	return filepath.Join(data, CheckpointsDir, string(s.Job))
}

// Name returns the name of the rank's run directory.
func (s Spec) Name() string { return RankName(s.Run, s.Rank) }

// DeviceNames returns the GPUs of the rank by the names under which its program sees them.
func (s Spec) DeviceNames() []string {
	if len(s.Devices) > 0 {
		return s.Devices
	}

	names := make([]string, len(s.Launch.GPUs))
	for i, index := range s.Launch.GPUs {
		names[i] = strconv.Itoa(index)
	}

	return names
}

// Record is the content of launch.json: everything the supervisor needs.
type Record struct {
	Spec
	Env []string `json:"env"`
	// PassedEnv names the variables in Env that are settings of the machine, separated by spaces.
	PassedEnv string       `json:"passed_env,omitempty"`
	Setup     *SetupPlan   `json:"setup,omitempty"`
	Limits    cgroup.Place `json:"limits"`
	// CRIU and Python are the programs with which snapshots are taken, CRIU only if the launch asks for them.
	CRIU   string `json:"criu,omitempty"`
	Python string `json:"python,omitempty"`
	// User is whom the program runs as, walled off from others; nil if it runs as the agent does.
	User *sandbox.User `json:"user,omitempty"`
	// MaxPIDs and MaxDisk limit the processes of the rank and what its folders may use of the disk; 0 for no limit.
	MaxPIDs int       `json:"max_pids,omitempty"`
	MaxDisk job.Bytes `json:"max_disk,omitempty"`
	// Boot names the start of the machine at which the rank was begun.
	Boot string `json:"boot,omitempty"`
}

// Report returns the path of a file by which the program reports, given the run directory.
func (r *Record) Report(dir, name string) string {
	if r.User != nil {
		return filepath.Join(dir, ReportDir, name)
	}

	return filepath.Join(dir, name)
}

// Requests returns the directory in which the program finds requests, given the run directory.
func (r *Record) Requests(dir string) string {
	if r.User != nil {
		return filepath.Join(dir, RequestsDir)
	}

	return dir
}

// Status is the progress of a rank.
type Status struct {
	Run   id.Run       `json:"run"`
	UID   id.UID       `json:"uid,omitempty"`
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
	// Signalled says that a stop request ended the rank, not the program itself: the
	// program was running, or not started yet, when the request came.
	Signalled bool `json:"signalled,omitempty"`
	// Restore is given if the checkpoint of the launch could not be restored.
	Restore *job.RestoreFailure `json:"restore,omitempty"`
	// Needed is how much memory the program had and asked for when it ran out of it, as far as it said; 0 if unknown.
	Needed job.Bytes `json:"needed,omitempty"`
	// Suspension is what became of the orders to suspend the program.
	Suspension job.Suspension `json:"suspension,omitzero"`
	// PassedEnv is that of the record.
	PassedEnv string `json:"passed_env,omitempty"`
	// Digest is that of the container image, with its name; "" if the rank runs in none.
	Digest string `json:"digest,omitempty"`
	// Use is what the rank has used, given when it has ended.
	Use *job.Use `json:"use,omitempty"`
	// Silent says that the rank has ended and its log is empty.
	Silent bool `json:"silent,omitempty"`
	// Ready says that the rank is prepared, and that its program waits until all ranks of the run are.
	Ready bool `json:"ready,omitempty"`
	// Error is the last line of the first traceback in the output of a rank that failed or was stopped, of a run on
	// several nodes; "" if there is none.
	Error string `json:"error,omitempty"`
	// PID is the process id of the program, or of the set-up while preparing; 0 if neither runs.
	PID int `json:"pid,omitempty"`
}

// NewStatus returns the status of a rank that has not started yet.
func NewStatus(s Spec) Status {
	return Status{Run: s.Run, UID: s.Launch.UID, Rank: s.Rank, Job: s.Job, Epoch: s.Epoch, State: job.RunPreparing}
}

// Report converts the status to the agent's protocol.
func (s Status) Report() wire.RankReport {
	return wire.RankReport{
		Run: s.Run, UID: s.UID, Rank: s.Rank, State: s.State, Started: s.Started, Ended: s.Ended, ExitCode: s.ExitCode,
		Signal: s.Signal, Cause: s.Cause, Reason: s.Reason, Signalled: s.Signalled, Restore: s.Restore,
		Needed: s.Needed, Suspension: s.Suspension, PassedEnv: s.PassedEnv, Use: s.Use, Silent: s.Silent,
		Digest: s.Digest, Ready: s.Ready, Error: s.Error,
	}
}

// State is what is recorded of a rank while it runs and when it has ended.
type State struct {
	Status
	// Begun is the kernel's start time of the program with this PID. PIDs are reused;
	// PID and Begun together identify one process.
	Begun uint64        `json:"begun,omitempty"`
	Group *cgroup.Group `json:"group,omitempty"`
	// Isolated says that the program runs in namespaces of its own, as a user of its own.
	Isolated bool `json:"isolated,omitempty"`
	// Boot names the start of the machine at which the supervisor began.
	Boot string `json:"boot,omitempty"`
	// Mended says that the log was completed after the death of its supervisor, and LogKept how much of it
	// the supervisor had written. After a power cut the server may have more.
	Mended  bool  `json:"mended,omitempty"`
	LogKept int64 `json:"log_kept,omitempty"`
}

// End records the end of a rank in its state.
func (st *State) End(e Ending, now time.Time) {
	st.State = job.RunEnded
	st.Ended = now
	st.PID = 0
	st.Begun = 0

	st.ExitCode = e.Code
	st.Signal = e.Signal
	st.Cause = e.Cause
	st.Reason = e.Reason
	st.Signalled = e.Signalled
	st.Restore = e.Restore
	st.Needed = e.Needed
	st.Error = e.Error
	st.Ready = false
}

// ReadJSON reads a file into v and reports whether it exists.
func ReadJSON(path string, v any) (bool, error) {
	data, err := os.ReadFile(path)
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

// WriteJSON replaces a file atomically: a reader sees the old content or the new
// one. With durable the new one survives a power failure once the call returns.
func WriteJSON(path string, v any, durable bool) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}

	if durable {
		return atomicfile.Write(path, data, atomicfile.SingleWriter())
	}

	return atomicfile.Write(path, data, atomicfile.SingleWriter(), atomicfile.Volatile())
}

// Reserve makes room in a new run directory for everything that is written to stop its rank and to record its
// end. It fails on a disk without that room, before anything is started.
func Reserve(dir string) error {
	for _, name := range []string{StateFile, StopFile} {
		if err := reserveSlots(filepath.Join(dir, name)); err != nil {
			return err
		}
	}

	// Their content does not matter, but a full disk may not have room for the name of another file.
	for _, name := range []string{LockFile, WatchLockFile, SupervisorLog, OutputFile} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			return err
		}
	}

	return MakePipe(filepath.Join(dir, ControlPipe))
}

// ReadState reads the state of a rank and reports whether a supervisor has begun it.
func ReadState(dir string, st *State) (bool, error) {
	ok, err := readRecord(filepath.Join(dir, StateFile), st)
	if ok || err != nil {
		return ok, err
	}

	return ReadJSON(filepath.Join(dir, formerStateFile), st)
}

// WriteState writes the state of a rank into its reserved room. Only the holder of the rank's lock calls it. A
// reason that is too long for the room is cut. The state of a rank whose supervisor is gone survives a power cut.
func WriteState(dir string, st State) error {
	return writeState(dir, st, func() {})
}

// writeState is WriteState that says when the state is written, and not synced yet.
func writeState(dir string, st State, written func()) error {
	durable := st.State == job.RunEnded || st.Mended
	for {
		err := putRecord(filepath.Join(dir, StateFile), st, durable, written)
		if !errors.Is(err, errRecordTooLarge) || st.Reason == "" {
			return err
		}

		st.Reason = strings.ToValidUTF8(st.Reason[:len(st.Reason)/2], "")
	}
}

// WriteFinalState writes the state of a rank that has ended. It calls written when others can read it, and returns when
// it survives a power cut too. A failure is retried every second until ctx ends.
func WriteFinalState(ctx context.Context, dir string, st State, failed func(error), written func()) error {
	for {
		err := writeState(dir, st, written)
		if err == nil {
			return nil
		}

		failed(err)

		if _, serr := os.Stat(dir); errors.Is(serr, fs.ErrNotExist) {
			return err // someone removed the run directory, so nobody will read its state
		}
		if !clock.Sleep(ctx, time.Second) {
			return err
		}
	}
}
