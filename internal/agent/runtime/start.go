package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent/container"
	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/agent/sandbox"
	"trainyard/internal/agent/snapshot"
	"trainyard/internal/api"
	"trainyard/internal/diskspace"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// Start starts a rank. It returns when the rank has its directory, which a crash of the agent leaves and a power
// cut may take; its status shows everything after that. A rank that is already known is not started again, but an
// unfinished preparation by an earlier agent process is continued. A rank with an older epoch than a known one of
// the same job is refused. Ranks with older epochs are stopped, and waited for, before the new one begins.
func (r *Runtime) Start(ctx context.Context, s rundir.Spec) error {
	if err := r.check(s); err != nil {
		return err
	}

	r.mu.Lock()
	defer r.mu.Unlock()

	if !r.adopted {
		return errors.New("start a rank: Adopt has not been called")
	}

	rk, known := r.ranks[s.Name()]
	if !known {
		if err := ctx.Err(); err != nil {
			return err
		}

		for _, other := range r.ranks {
			if other.rec.Job == s.Job && other.rec.Epoch > s.Epoch {
				return fault.New(fault.Conflict, "stale_epoch",
					"run %s is older than run %s, which this node has already seen", s.Run, other.rec.Run)
			}
		}

		if err := r.claimCheckpoints(s); err != nil {
			return err
		}

		var err error
		rk, err = r.createRunDir(s)
		if err != nil {
			return err
		}

		r.ranks[rk.name] = rk
		r.announce()
	}

	if rk.begun || rk.monitored || rk.state.State == job.RunEnded {
		return nil
	}

	rk.secrets, rk.registryAuth = s.Secrets, s.RegistryAuth
	rk.monitored = true
	prep, abort := context.WithCancel(r.ctx) //nolint:gosec // begin calls it
	rk.abort = abort
	r.tasks.Go(func() { r.prepareAndSupervise(prep, rk) })

	return nil
}

// check refuses a rank that cannot be executed.
func (r *Runtime) check(s rundir.Spec) error {
	if j, epoch, ok := s.Run.Split(); !ok || j != s.Job || epoch != s.Epoch || s.Rank < 0 {
		return fault.New(
			fault.Invalid,
			"bad_rank",
			"rank %d, run %q, job %q and epoch %d are inconsistent",
			s.Rank,
			s.Run,
			s.Job,
			s.Epoch,
		)
	}

	if c := s.Launch.Checkpoint; c != "" && (!filepath.IsLocal(c) || filepath.Clean(c) == ".") {
		return fault.New(fault.Invalid, "bad_checkpoint", "checkpoint.dir must be a folder inside the working directory, "+
			"got %q", c).
			WithField("checkpoint.dir")
	}

	if s.Launch.Workdir != "" && r.opt.Files == nil {
		return fault.New(fault.Unavailable, "no_files", "this node has no content store to fetch files from")
	}

	if s.Launch.Restore != nil && r.opt.Restore == nil {
		return fault.New(fault.Unavailable, "no_checkpoints", "this node cannot restore checkpoints")
	}

	if s.ShareLibrary != "" && r.opt.Shares == nil {
		return fault.New(fault.Unavailable, "no_shares", "this node cannot divide GPUs among jobs")
	}

	if err := r.checkContainer(s); err != nil {
		return err
	}

	if err := checkPython(s); err != nil {
		return err
	}

	for key, value := range s.Launch.Env {
		if key == "" || strings.ContainsAny(key, "=\x00") || strings.ContainsRune(value, 0) {
			return fault.New(fault.Invalid, "bad_env", "%q is not a valid environment variable", key).WithField("env")
		}
	}

	if len(s.Secrets) != len(s.Launch.Secrets) {
		return fault.New(fault.Invalid, "no_secrets", "the launch names %d secrets, and %d were sent with it",
			len(s.Launch.Secrets), len(s.Secrets))
	}

	if s.Launch.RegistryAuth != "" && s.RegistryAuth == "" {
		return fault.New(fault.Invalid, "no_secrets", "the credentials for the registry were not sent with the launch")
	}

	if strings.ContainsRune(s.Launch.Command+s.Launch.Setup, 0) {
		return fault.New(fault.Invalid, "bad_script", "scripts must not contain NUL bytes")
	}

	l, left, ok, err := r.boot.ReadContactLease(r.dir)
	if err != nil {
		return err
	}

	if ok && left <= 0 {
		return fault.New(fault.Unavailable, "lease_over",
			"this node has had no contact with the server for %v and starts no runs", job.Duration(l.Valid))
	}

	return nil
}

// createRunDir creates the run directory. It gets its final name only when it is complete, so that a crash of the agent
// leaves no half of it. It is not synced: no process outlives a power cut, and that the rank was begun says
// Preparation.Begin.
func (r *Runtime) createRunDir(s rundir.Spec) (*rank, error) {
	runs := filepath.Join(r.dir, rundir.RunsDir)
	rk := &rank{name: s.Name(), dir: filepath.Join(runs, s.Name())}

	user, err := r.userOf(s.Launch)
	if err != nil {
		return nil, err
	}

	plan, err := planSetup(r.dir, s.Launch, r.base, user, s.Launch.Image)
	if err != nil {
		return nil, err
	}

	s.Secrets, s.RegistryAuth = nil, "" // they are kept apart, until the supervisor has them or the image is pulled
	rk.rec = rundir.Record{
		Spec: s, Setup: plan, Limits: r.limits, Python: r.opt.Python, User: user, MaxPIDs: r.opt.MaxPIDs,
		MaxDisk: r.opt.MaxDisk, PassedEnv: passedNames(r.base, s.Launch.Env), Boot: r.boot.Boot(),
	}
	rk.rec.Env = environment(r.base, &rk.rec, r.dir)

	if s.Launch.Snapshot {
		if rk.rec.CRIU, err = snapshot.FindCRIU(r.opt.CRIU); err != nil {
			return nil, fault.New(fault.Invalid, "no_snapshots", "this node takes no snapshots: %v", err)
		}
	}

	rk.state.Status = rundir.NewStatus(s)

	tmp, err := os.MkdirTemp(runs, ".new-")
	if err != nil {
		return nil, diskspace.Named(r.dir, fmt.Errorf("create a run directory: %w", err))
	}

	err = fillRunDir(tmp, rk.rec)
	if err == nil && user != nil {
		err = r.makeCache(user)
	}

	if err == nil {
		err = os.Rename(tmp, rk.dir)
	}

	if err != nil {
		err = fmt.Errorf("create the directory of rank %s: %w", rk.name, err)
		return nil, errors.Join(diskspace.Named(r.dir, err), os.RemoveAll(tmp))
	}

	return rk, nil
}

func fillRunDir(dir string, rec rundir.Record) error {
	if err := rundir.Reserve(dir); err != nil {
		return err
	}
	if err := makeFolders(dir, rec.User); err != nil {
		return err
	}

	text, err := json.Marshal(rec)
	if err != nil {
		return err
	}

	return os.WriteFile(filepath.Join(dir, rundir.LaunchFile), text, 0o600)
}

// prepareAndSupervise prepares a rank, starts its supervisor and monitors it to the end.
func (r *Runtime) prepareAndSupervise(ctx context.Context, rk *rank) {
	defer rk.releaseContainer()

	begun := r.begin(rk)
	err := errors.Join(r.prepareAlone(ctx, rk), <-begun)

	r.mu.Lock()
	rk.abort() // releases its context
	rk.abort = nil
	r.mu.Unlock()

	if r.ctx.Err() != nil {
		return // closed: the next agent process continues
	}

	if errors.Is(err, errTaken) {
		r.monitor(rk)
		return
	}

	r.mu.Lock()
	outlived := rk.outlived
	r.mu.Unlock()

	if outlived {
		r.endUnstarted(rk, leaseEndedEarly())
		return
	}

	if stop, serr := rundir.ReadStop(rk.dir); serr == nil && stop != job.StopNone {
		r.endUnstarted(rk, stoppedEarly())
		return
	}

	if err == nil {
		err = r.supervise(rk)
	}

	if err != nil {
		r.endUnstarted(rk, unstartable(diskspace.Named(r.dir, err)))
	}
}

// begin records that a rank is begun. A disk takes its time for that, so it is done beside the preparation.
func (r *Runtime) begin(rk *rank) <-chan error {
	done := make(chan error, 1)
	if r.opt.Begin == nil {
		done <- nil
		return done
	}

	r.tasks.Go(func() { done <- r.opt.Begin(rk.rec.Spec) })

	return done
}

// unstartable returns the ending of a rank that cannot be prepared or started.
func unstartable(err error) rundir.Ending {
	e := rundir.Ending{Cause: job.CauseLaunchFailed, Reason: fmt.Sprintf("cannot start the run: %v", err)}

	var image *container.ImageError
	if errors.As(err, &image) {
		e.Cause, e.Reason = job.CauseImageFailed, image.Error()
	}

	var restore *RestoreError
	if errors.As(err, &restore) {
		e.Cause, e.Restore = job.CauseRestoreFailed, &restore.Failure
	}

	return e
}

// stoppedEarly returns the ending of a rank that was asked to stop before a supervisor took it.
func stoppedEarly() rundir.Ending {
	return rundir.Ending{Cause: job.CauseCancelled, Reason: "stopped on request before it was started", Signalled: true}
}

// errTaken says that a supervisor has or had the rank.
var errTaken = errors.New("a supervisor has already taken the rank")

// prepareAlone prepares a rank while holding its lock, so that no supervisor takes it meanwhile. A
// supervisor that an earlier agent process started just before it was killed may appear late, and
// would find incomplete files.
func (r *Runtime) prepareAlone(ctx context.Context, rk *rank) (err error) {
	if err := rundir.Renew(rk.dir); err != nil {
		return err
	}

	lock, mine, err := rundir.TakeLock(rk.dir)
	if err != nil {
		return err
	}
	if !mine {
		return errTaken
	}

	defer func() { err = errors.Join(err, lock.Close()) }()

	var st rundir.State
	if begun, err := rundir.ReadState(rk.dir, &st); err != nil || begun {
		return errors.Join(err, errTaken)
	}

	return r.prepare(ctx, rk)
}

// prepare waits until older runs of the job have ended, restores its checkpoint and fills the working directory.
func (r *Runtime) prepare(ctx context.Context, rk *rank) error {
	if err := r.stopOlderEpochs(ctx, rk); err != nil {
		return err
	}

	if rk.rec.Launch.Restore != nil {
		if err := r.opt.Restore(ctx, rk.rec.Spec, rk.rec.Checkpoints(r.dir)); err != nil {
			return err
		}
	}

	work := filepath.Join(rk.dir, rundir.WorkDir)
	if err := rundir.RemoveTree(work); err != nil { // left by an agent process that did not finish
		return err
	}
	if err := os.Mkdir(work, 0o750); err != nil {
		return err
	}

	if digest := rk.rec.Launch.Workdir; digest != "" {
		if err := r.opt.Files(ctx, digest, work); err != nil {
			return fmt.Errorf("fetch the files: %w", err)
		}
	}

	if rk.rec.User != nil {
		if err := sandbox.Own(work, rk.rec.User, nil); err != nil {
			return err
		}
	}

	if err := r.openShare(rk); err != nil {
		return err
	}

	if rk.rec.Launch.Image != "" {
		return r.prepareContainer(ctx, rk)
	}

	return nil
}

// stopOlderEpochs stops the ranks with older epochs of the same job and waits for their end,
// because they share its checkpoints and a job must not run twice at the same time.
func (r *Runtime) stopOlderEpochs(ctx context.Context, rk *rank) error {
	for {
		changed := r.Watch()
		older := r.olderThan(rk.rec.Spec)
		if len(older) == 0 {
			return nil
		}

		for _, o := range older {
			if err := r.Stop(o.Run, o.Rank, job.StopTerm); err != nil {
				return err
			}
		}

		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (r *Runtime) olderThan(s rundir.Spec) []rundir.Spec {
	r.mu.Lock()
	defer r.mu.Unlock()

	var older []rundir.Spec
	for _, rk := range r.ranks {
		if rk.rec.Job == s.Job && rk.rec.Epoch < s.Epoch && rk.state.State != job.RunEnded {
			older = append(older, rk.rec.Spec)
		}
	}

	return older
}

// spawn starts the supervisor in its own session, so that it outlives the agent, and passes it the secrets of the rank.
// If the agent dies before it has done that, the next agent process gets them from the server again.
func (r *Runtime) spawn(rk *rank) (*supervisor, error) {
	if ordinary(rk) {
		return r.spawnSeries(rk)
	}

	r.mu.Lock()
	secrets := rk.secrets
	rk.secrets = nil
	r.mu.Unlock()

	input, err := secretInput(secrets)
	if err != nil {
		return nil, fmt.Errorf("pass secrets to the supervisor: %w", err)
	}

	if input != nil {
		defer func() { _ = input.Close() }()
	}

	var more []*os.File
	if rk.holds != nil {
		more = []*os.File{rk.holds} // as rundir.ContainerFD
	}

	cmd, err := r.startSupervisor(rk, stdio{input: input, more: more}, rundir.Subcommand)

	return &supervisor{cmd: cmd}, err
}

// startSupervisor starts a supervisor with a rank, whose log it writes.
func (r *Runtime) startSupervisor(rk *rank, with stdio, subcommand string) (*exec.Cmd, error) {
	log, err := os.OpenFile(filepath.Join(rk.dir, rundir.SupervisorLog), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start the supervisor: %w", err)
	}

	defer func() { _ = log.Close() }()

	with.log = log

	cmd, err := r.startDetached(rk.dir, with, subcommand, rk.dir)
	if err != nil {
		return nil, fmt.Errorf("start the supervisor: %w", err)
	}

	return cmd, nil
}

// secretInput returns secrets as a file in memory, nil if there are none. It has no name, and unlike a pipe it
// takes all at once.
func secretInput(secrets []api.SecretValue) (*os.File, error) {
	if len(secrets) == 0 {
		return nil, nil
	}

	text, err := json.Marshal(secrets)
	if err != nil {
		return nil, err
	}

	fd, err := unix.MemfdCreate("secrets", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}

	f := os.NewFile(uintptr(fd), "secrets")

	_, err = f.Write(text)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}

	if err != nil {
		return nil, errors.Join(err, f.Close())
	}

	return f, nil
}

// stdio is what a process is started with: what it reads, nothing if that is nil, where it writes its errors, if
// anywhere, and descriptors beside them.
type stdio struct {
	input, log *os.File
	more       []*os.File
}

// startDetached starts the helper with a hidden subcommand, in its own session. It outlives the agent.
func (r *Runtime) startDetached(dir string, with stdio, args ...string) (*exec.Cmd, error) {
	// No context bounds it, because it outlives the agent.
	cmd := exec.CommandContext(context.Background(), r.opt.Exe, args...)
	cmd.Args[0] = "trainyard"
	if with.input != nil {
		cmd.Stdin = with.input
	}

	if with.log != nil {
		cmd.Stdout, cmd.Stderr = with.log, with.log
	}

	cmd.ExtraFiles = with.more
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + r.base["PATH"], "GOMAXPROCS=2"} // it has little to do
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}

	return cmd, cmd.Start()
}

// Stop asks a rank to stop: StopTerm with SIGTERM and its grace period, StopDump by a snapshot if it was started for
// that, else as StopTerm, StopKill at once. A kill overrides the others. Stop has no effect on a rank that has
// ended; a rank that has not started yet
// never does.
func (r *Runtime) Stop(run id.Run, n int, mode job.StopMode) error {
	if mode != job.StopDump && mode != job.StopTerm && mode != job.StopKill {
		return fault.New(fault.Invalid, "bad_stop", "stop mode must be dump, term or kill, got %q", mode)
	}

	rk, err := r.lookup(run, n)
	if err != nil {
		return err
	}

	r.mu.Lock()
	defer r.mu.Unlock()

	if rk.state.State == job.RunEnded {
		return nil
	}
	if mode == job.StopDump && !rk.rec.Launch.Snapshot {
		mode = job.StopTerm
	}
	if err := rundir.RequestStop(rk.dir, mode); err != nil {
		return fmt.Errorf("stop rank %s: %w", rk.name, err)
	}

	if rk.abort != nil {
		rk.abort()
	}

	if !rk.monitored {
		rk.monitored = true
		r.tasks.Go(func() { r.endUnstarted(rk, stoppedEarly()) })
	}

	return nil
}

// RequestSave asks the program of a rank to save a checkpoint and to go on. The same request may be made again. It has
// no effect on a rank that has ended.
func (r *Runtime) RequestSave(run id.Run, n, number int) error {
	rk, err := r.lookup(run, n)
	if err != nil {
		return err
	}

	r.mu.Lock()
	defer r.mu.Unlock()

	if rk.state.State == job.RunEnded {
		return nil
	}

	if err := rundir.RequestSave(rk.rec.Requests(rk.dir), number); err != nil {
		return fmt.Errorf("ask rank %s to save a checkpoint: %w", rk.name, err)
	}

	return nil
}

// Suspend suspends the program of a rank in place, or lets it continue, as the order says. Its status says what became
// of that. The same order may be given again. It has no effect on a rank whose program does not run.
func (r *Runtime) Suspend(run id.Run, n int, order job.SuspendOrder) error {
	return r.request(run, n, "suspend", func(dir string) error { return rundir.RequestSuspend(dir, order) })
}

// request leaves a request in the directory of a rank whose program runs.
func (r *Runtime) request(run id.Run, n int, what string, leave func(dir string) error) error {
	rk, err := r.lookup(run, n)
	if err != nil {
		return err
	}

	r.mu.Lock()
	defer r.mu.Unlock()

	if rk.state.State != job.RunRunning {
		return nil
	}

	if err := leave(rk.dir); err != nil {
		return fmt.Errorf("%s rank %s: %w", what, rk.name, err)
	}

	return nil
}

// StartGang starts the program of a rank that waits for the other ranks of its run. It has no effect on a rank that
// does not wait.
func (r *Runtime) StartGang(run id.Run, n int, start rundir.GangStart) error {
	rk, err := r.lookup(run, n)
	if err != nil {
		return err
	}

	r.mu.Lock()
	defer r.mu.Unlock()

	if !rk.state.Ready || rk.state.State != job.RunPreparing {
		return nil
	}

	if err := rundir.RequestStart(rk.dir, start); err != nil {
		return fmt.Errorf("start the program of rank %s: %w", rk.name, err)
	}

	return nil
}

// OpenLog opens the output of a rank at an offset and returns its present length. A read at the end
// returns io.EOF; a later read continues if the log has grown. After the rank has ended the log
// does not grow. At an offset beyond what the supervisor wrote nothing is read: a power cut took what
// was there, and what was put in its place is not what whoever asks has.
func (r *Runtime) OpenLog(run id.Run, n int, offset int64) (io.ReadCloser, int64, error) {
	rk, err := r.lookup(run, n)
	if err != nil {
		return nil, 0, err
	}

	f, err := os.Open(filepath.Join(rk.dir, rundir.OutputFile))
	if err != nil {
		return nil, 0, fmt.Errorf("open the log of rank %s: %w", rk.name, err)
	}

	r.mu.Lock()
	lost := rk.state.Mended && offset > rk.state.LogKept
	r.mu.Unlock()

	info, err := f.Stat()
	switch {
	case err == nil && lost:
		_, err = f.Seek(0, io.SeekEnd)
	case err == nil:
		_, err = f.Seek(offset, io.SeekStart)
	}

	if err != nil {
		return nil, 0, errors.Join(fmt.Errorf("open the log of rank %s: %w", rk.name, err), f.Close())
	}

	return f, info.Size(), nil
}
