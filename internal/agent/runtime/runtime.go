package runtime

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent/runtime/cgroup"
	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/agent/sandbox"
	"trainyard/internal/api"
	"trainyard/internal/clock"
	"trainyard/internal/diskspace"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// Materialise writes the files of a manifest into an existing empty directory. Programs may change
// the files, so they must not be hard links into a store.
type Materialise func(ctx context.Context, digest, dir string) error

// Preparation is what is done for a rank before its program starts.
type Preparation struct {
	Files Materialise // nil refuses launches that have files
	// Restore makes a checkpoint directory hold exactly the checkpoint that the launch names. Nil refuses launches that
	// name one.
	Restore func(ctx context.Context, s rundir.Spec, dir string) error
	// Begin records that a rank is begun, so that it never begins again: also not after a power cut, which may take the
	// run directory. It is done before the supervisor is started, beside the rest; nil does nothing.
	Begin func(s rundir.Spec) error
	// Endpoint returns the address on the machine to which programs send metrics, and what serves it on another listener:
	// in the network of a container it has the same address. "" or nil for none.
	Endpoint func() (address string, serve func(net.Listener))
	// Shares divides GPUs among ranks; nil refuses launches that share one.
	Shares Shares
}

// Shares divides GPUs among the ranks that share them.
type Shares interface {
	// Open gives a rank its share: its program finds in the folder how to get at it. It is called again for a rank
	// that an earlier agent process started. user is whom the program runs as, nil for the user of the agent.
	Open(s rundir.Spec, folder string, user *sandbox.User) error
	// End takes it back when the rank has ended.
	End(s rundir.Spec)
}

// RestoreError is returned by Preparation.Restore: the run cannot start on this node from its checkpoint.
type RestoreError struct {
	Failure job.RestoreFailure
	Err     error
}

// Error returns the sentence for people.
func (e *RestoreError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *RestoreError) Unwrap() error { return e.Err }

// Options configures a Runtime. Dir, Log and Clock are required.
type Options struct {
	Dir string // the data directory
	// Exe is started several times for every run, as supervisor, watcher and first process of its namespaces (package
	// subprocess). The default is this binary, even if its file was replaced.
	Exe string
	Preparation
	Log   *slog.Logger
	Clock clock.Clock
	// Environ is the environment of which programs inherit a part; nil means that of this process.
	Environ []string
	// PassEnv names variables of it that programs inherit beside those that describe the machine; with * at its end a
	// name stands for all that begin so. See CheckPassEnv.
	PassEnv []string
	// SetupBytes and SetupAge bound the cache of set-ups; the defaults are 20GB and 30 days.
	SetupBytes job.Bytes
	SetupAge   time.Duration
	// CheckpointAge is how long unchanged checkpoints are kept; the default is 30 days.
	CheckpointAge time.Duration
	// CRIU and Python take snapshots; the defaults are those on PATH.
	CRIU   string
	Python string
	// Users says as whom programs run, each walled off from the others; nil if they run as the agent does. It needs root.
	Users *sandbox.Users
	// MaxPIDs and MaxDisk limit the processes of a rank and what its folders may use of the disk; 0 for no limit.
	MaxPIDs int
	MaxDisk job.Bytes
	// KeepRuns is how long the working directory of a rank is kept after it was forgotten, and KeptBytes how much all of
	// them may have; none is kept if left out.
	KeepRuns  time.Duration
	KeptBytes job.Bytes
	// Containers makes the containers of ranks with an image; nil refuses such launches. It needs Users.
	Containers Containers
	// MinFree is how much of the disk must be free for jobs; working directories are kept while twice that is.
	MinFree diskspace.Floor
	// Free returns the free and total bytes of the disk that holds a directory; the default asks the system.
	Free func(dir string) (free, total job.Bytes, err error)
}

// Runtime executes the ranks of this machine. Its methods may be called from several goroutines.
type Runtime struct {
	opt           Options
	dir           string
	log           *slog.Logger
	clk           clock.Clock
	boot          *rundir.BootClock
	base          map[string]string
	limits        cgroup.Place
	limitsProblem string // why limits are not enforced; "" if they are
	lock          *os.File
	events        *os.File
	ctx           context.Context //nolint:containedctx // cancelled by Close; bounds the goroutines, not the runs
	cancel        context.CancelFunc
	tasks         sync.WaitGroup
	prune         sync.Mutex // one pass over the set-ups and what is kept at a time
	kept          []kept     // the oldest first; guarded by prune
	keptSize      job.Bytes  // of all of them
	watched       watched
	sweepProblem  string           // of the last sweep of containers; guarded by mu
	unheld        chan struct{}    // a container was not held, and may be there all the same
	spare         chan *supervisor // those that wait for a rank
	spareRest     time.Duration    // for how long they do

	mu      sync.Mutex
	adopted bool
	ranks   map[string]*rank
	changed chan struct{} // closed at the next change
}

// rank is the agent's state of a rank. Its fields are guarded by Runtime.mu, except name, dir and
// rec, which do not change, and holds.
type rank struct {
	name      string
	dir       string
	rec       rundir.Record
	state     rundir.State
	begun     bool               // a supervisor has taken it
	monitored bool               // a goroutine monitors it
	abort     context.CancelFunc // cancels its preparation; nil if it is not being prepared
	outlived  bool               // its contact lease expired before a supervisor took it
	secrets   []api.SecretValue  // until its supervisor has them
	endpoint  net.Listener       // of the agent, in the network of its container
	shares    bool               // it was given its share of a GPU
	holds     *os.File           // holds its container until its supervisor does; of the goroutine that prepares it

	registryAuth string // of the job, until its image is pulled
}

// New opens a data directory and creates it if it does not exist. It fails if another agent uses
// the directory.
func New(opt Options) (*Runtime, error) {
	if err := opt.fill(); err != nil {
		return nil, err
	}
	if err := withholdDescriptors(); err != nil {
		return nil, err
	}

	for _, d := range []string{
		rundir.RunsDir, rundir.SetupsDir, rundir.CheckpointsDir, rundir.CheckpointOwnersDir, rundir.CachesDir,
	} {
		if err := os.MkdirAll(filepath.Join(opt.Dir, d), 0o700); err != nil {
			return nil, fmt.Errorf("create the data directory: %w", err)
		}
	}

	r := &Runtime{
		opt: opt, dir: opt.Dir, log: opt.Log, clk: opt.Clock, boot: rundir.NewBootClock(),
		base:  inheritedEnv(opt.Environ, opt.PassEnv),
		ranks: map[string]*rank{}, changed: make(chan struct{}), watched: newWatched(),
		unheld: make(chan struct{}, 1), spare: make(chan *supervisor), spareRest: supervisorRest,
	}

	limits, err := cgroup.Find()
	if err != nil {
		r.limitsProblem = err.Error()
	}

	r.limits = limits
	if err := r.open(); err != nil {
		return nil, err
	}

	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.tasks.Go(r.readEvents)
	r.tasks.Go(r.keepWatcher)

	return r, nil
}

// fill sets the defaults.
func (o *Options) fill() (err error) {
	o.Dir, err = filepath.Abs(o.Dir)
	if err != nil {
		return err
	}

	if o.Exe == "" {
		o.Exe = "/proc/self/exe"
	}

	if o.Environ == nil {
		o.Environ = os.Environ()
	}

	if o.SetupBytes == 0 {
		o.SetupBytes = 20 << 30
	}

	if o.CheckpointAge == 0 {
		o.CheckpointAge = 30 * 24 * time.Hour
	}

	if o.SetupAge == 0 {
		o.SetupAge = 30 * 24 * time.Hour
	}

	if o.Free == nil {
		o.Free = diskspace.Free
	}

	return nil
}

// open takes the lock of the data directory, makes room for the contact lease and opens the events pipe.
func (r *Runtime) open() error {
	lock, err := os.OpenFile(filepath.Join(r.dir, rundir.LockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("open the data directory: %w", err)
	}

	if err := lockSoon(lock); err != nil {
		err = fault.New(fault.Conflict, "agent_running", "another agent is using the data directory %s", r.dir).
			WithRemedy("stop it first, or use another directory").WithCause(err)
		return errors.Join(err, lock.Close())
	}

	path := filepath.Join(r.dir, rundir.EventsPipe)
	if err := errors.Join(rundir.MakePipe(path), rundir.ReserveContactLease(r.dir)); err != nil {
		return errors.Join(err, lock.Close())
	}

	events, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		return errors.Join(fmt.Errorf("open the events pipe: %w", err), lock.Close())
	}

	r.lock, r.events = lock, events

	return nil
}

// lockSoon takes the lock of the data directory. It retries for a moment, because a child that a
// killed agent was just starting may still hold the lock.
func lockSoon(f *os.File) error {
	for try := 0; ; try++ {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil || !errors.Is(err, unix.EWOULDBLOCK) || try == 10 {
			return err
		}

		clock.Sleep(context.Background(), 20*time.Millisecond)
	}
}

// Close stops the agent's side. The runs continue, and another Runtime on the same directory can
// adopt them.
func (r *Runtime) Close() error {
	r.cancel()
	err := r.events.Close()
	r.tasks.Wait()

	// Closing the file alone is not enough: a process that is just being started has a copy of the
	// descriptor.
	return errors.Join(err, unix.Flock(int(r.lock.Fd()), unix.LOCK_UN), r.lock.Close())
}

// Limits says how the limits of a run are enforced: "cgroup v2", "cgroup v1", or in one sentence
// why they are not. The inventory shows it.
func (r *Runtime) Limits() string {
	if r.limitsProblem != "" {
		return r.limitsProblem
	}

	return r.limits.String()
}

// readEvents reads the announcements of the supervisors until Close.
func (r *Runtime) readEvents() {
	buf := make([]byte, 4096)
	rest := ""

	for {
		n, err := r.events.Read(buf)
		if err != nil {
			return // closed
		}

		names := strings.Split(rest+string(buf[:n]), "\n")
		rest = names[len(names)-1]

		names = slices.Compact(names[:len(names)-1])
		if n == len(buf) { // the buffer is full, so some announcements may be missing
			names = r.names()
		}

		for _, name := range names {
			r.mu.Lock()
			rk := r.ranks[name]
			r.mu.Unlock()

			if rk != nil {
				r.refresh(rk)
			}
		}
	}
}

// names lists the names of all ranks.
func (r *Runtime) names() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.ranks))
}

// refresh reads the state of a rank from disk and wakes the watchers.
func (r *Runtime) refresh(rk *rank) {
	r.mu.Lock()
	defer r.mu.Unlock()

	var st rundir.State
	ok, err := rundir.ReadState(rk.dir, &st)
	if err != nil {
		r.log.Error("cannot read the state of a rank", "rank", rk.name, "error", err)
		return
	}

	if ok && rk.state.State != job.RunEnded {
		rk.state, rk.begun = st, true
	}

	r.announce()
}

// announce wakes all watchers. The caller holds r.mu.
func (r *Runtime) announce() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// Watch returns a channel that is closed at the next change of any rank. Call it before reading the
// ranks, so that no change is missed.
func (r *Runtime) Watch() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

// Status returns the status of a rank, and whether it is known here.
func (r *Runtime) Status(run id.Run, n int) (rundir.Status, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()

	rk, ok := r.ranks[rundir.RankName(run, n)]
	if !ok {
		return rundir.Status{}, false
	}

	return rk.state.Status, true
}

// List returns all ranks that are known here, sorted by run and rank.
func (r *Runtime) List() []rundir.Status {
	r.mu.Lock()
	defer r.mu.Unlock()

	out := make([]rundir.Status, 0, len(r.ranks))
	for _, rk := range r.ranks {
		st := rk.state.Status
		st.UID = rk.rec.Launch.UID // a supervisor of an earlier version does not write it
		st.PassedEnv = rk.rec.PassedEnv
		out = append(out, st)
	}

	slices.SortFunc(out, func(a, b rundir.Status) int {
		if c := strings.Compare(string(a.Run), string(b.Run)); c != 0 {
			return c
		}

		return a.Rank - b.Rank
	})

	return out
}

// lookup returns a rank, or a fault if it is not known.
func (r *Runtime) lookup(run id.Run, n int) (*rank, error) {
	r.mu.Lock()
	defer r.mu.Unlock()

	rk, ok := r.ranks[rundir.RankName(run, n)]
	if !ok {
		return nil, fault.New(fault.NotFound, "rank_not_found", "rank %d of run %s is not on this node", n, run)
	}

	return rk, nil
}
