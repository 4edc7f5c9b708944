package share

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent/share/accounts"
	"trainyard/internal/clock"
)

// Denial is an allocation that failed: an early sign that a job runs out of memory.
type Denial struct {
	accounts.Denial

	Job  string
	PID  int    // of the process
	Free uint64 // bytes on the GPU
}

// Options is what a broker needs.
type Options struct {
	Clock  clock.Clock
	Log    *slog.Logger
	Tuning Tuning
	// Denied is called when an allocation of a job failed, as often as the job says so. It must not block, nor call
	// the broker.
	Denied func(Denial)
	// Unresponsive is called when a job does not give the GPU back, and when it has. It must not block, nor call
	// the broker.
	Unresponsive func(job string, unresponsive bool)
}

// Job is a job's share of the GPU of a broker.
type Job struct {
	ID     string
	Folder string // of this job and GPU alone, for its socket and memory accounts; Variable names it to programs
	UUID   string // of the GPU
	Terms  Terms
	Cap    uint64 // of memory in bytes, for all processes of the job; 0 for none
	Bare   uint64 // bytes that the driver needs for a process, where that cannot be measured
	UID    int    // of the job's programs; -1 for that of the agent
	GID    int
}

// maxProcesses is how many processes of a job are let in. More go on without a share; it keeps a job from using up the
// agent's files.
const maxProcesses = 256

// Variable is the name of the environment variable with a job's folder.
const Variable = "TRAINYARD_GPU_BROKER"

// aliveEvery is how often processes that wait hear of the broker. They go on without it after five seconds of silence.
const aliveEvery = time.Second

// Broker grants one GPU to jobs. Its methods may be called at the same time.
type Broker struct {
	opts   Options
	ctx    context.Context //nolint:containedctx // it ends with Close, like everything that the broker has started
	cancel context.CancelFunc
	wake   chan struct{}
	tasks  sync.WaitGroup

	mu    sync.Mutex
	core  *arbiter
	jobs  map[string]*tenancy
	alive time.Time // when waiting processes last heard of us
}

// tenancy is a job on the GPU, whether or not it has processes there.
type tenancy struct {
	job       Job
	listener  *net.UnixListener
	accounts  *accounts.Accounts
	processes map[*process]bool
	joined    bool // it is known to the arbiter
	past      Use  // from before its last process went
	denials   int
	away      time.Time     // until when processes are not let in
	changed   chan struct{} // closed and made anew when a process comes or goes
}

// New returns a broker for a GPU. Close ends it.
func New(opts Options) *Broker {
	ctx, cancel := context.WithCancel(context.Background())
	b := &Broker{
		opts: opts, ctx: ctx, cancel: cancel, wake: make(chan struct{}, 1),
		core: newArbiter(opts.Tuning), jobs: map[string]*tenancy{},
	}

	b.tasks.Go(b.run)

	return b
}

// run calls the arbiter when time alone makes it necessary.
func (b *Broker) run() {
	for {
		b.mu.Lock()
		now := b.opts.Clock.Now()
		b.core.tick(now)
		b.carryOut()
		b.sayAlive(now)

		wait := aliveEvery / 2
		if next := b.core.next(now); !next.IsZero() {
			wait = min(wait, next.Sub(now))
		}
		b.mu.Unlock()

		if clock.Wait(b.ctx, max(wait, 50*time.Microsecond), b.wake) == clock.Ended {
			return
		}
	}
}

func (b *Broker) nudge() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// Add lets a job use the GPU. A job that an earlier broker had in the same folder goes on: its processes connect again.
func (b *Broker) Add(job Job) error {
	if err := job.Terms.check(); err != nil {
		return err
	}

	b.mu.Lock()
	defer b.mu.Unlock()

	if b.jobs[job.ID] != nil {
		return fmt.Errorf("job %s shares this GPU already", job.ID)
	}

	t, err := open(job)
	if err != nil {
		return fmt.Errorf("share a GPU with job %s: %w", job.ID, err)
	}

	b.jobs[job.ID] = t
	b.tasks.Go(func() { b.accept(t) })

	return nil
}

// open makes the folder of a job with its socket and its memory accounts.
func open(job Job) (*tenancy, error) {
	if err := os.MkdirAll(job.Folder, 0o700); err != nil {
		return nil, err
	}

	// The job's user gets the files and not the folder: nobody can put something else in their place, which the next
	// broker would open.
	if job.UID >= 0 {
		if err := os.Chmod(job.Folder, 0o711); err != nil { //nolint:gosec // the job's user has to get to the files
			return nil, err
		}
	}

	book, err := accounts.Open(job.Folder, job.UUID)
	if err != nil {
		return nil, err
	}

	path := filepath.Join(job.Folder, "socket")
	err = errors.Join(book.Limit(job.Cap, job.Bare), remove(path))

	var listener *net.UnixListener
	if err == nil {
		listener, err = listen(job.Folder)
	}

	if err != nil {
		return nil, errors.Join(err, book.Close())
	}

	if job.UID >= 0 {
		err = errors.Join(
			os.Chmod(path, 0o600), os.Lchown(path, job.UID, job.GID), book.Give(job.UID, job.GID),
		)
	}

	if err != nil {
		return nil, errors.Join(err, listener.Close(), book.Close())
	}

	return &tenancy{
		job: job, listener: listener, accounts: book,
		processes: map[*process]bool{}, changed: make(chan struct{}),
	}, nil
}

// listen makes the socket in a folder. The path of a socket has at most 107 bytes, that of the folder may have more: it
// is opened first.
func listen(folder string) (*net.UnixListener, error) {
	dir, err := os.OpenFile(folder, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}

	defer func() { _ = dir.Close() }()

	name := fmt.Sprintf("/proc/self/fd/%d/socket", dir.Fd())

	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: name, Net: "unixpacket"})
	if err != nil {
		return nil, err
	}

	listener.SetUnlinkOnClose(false) // the next broker replaces it, and nobody connects in between

	return listener, nil
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}

	return nil
}

// Remove ends a job's share. Processes that are still there go on without one.
func (b *Broker) Remove(id string) error {
	b.mu.Lock()
	defer b.mu.Unlock()

	t := b.jobs[id]
	if t == nil {
		return nil
	}

	delete(b.jobs, id)

	return errors.Join(b.end(t), os.RemoveAll(t.job.Folder))
}

// end closes what a job has. The arbiter forgets the job.
func (b *Broker) end(t *tenancy) error {
	err := errors.Join(t.listener.Close(), t.accounts.Close())

	for p := range t.processes {
		err = errors.Join(err, p.close())
	}

	if t.joined {
		b.core.leave(b.opts.Clock.Now(), t.job.ID)
		b.carryOut()
	}

	return err
}

// Change gives a job other terms and another cap.
func (b *Broker) Change(id string, terms Terms, limit uint64) error {
	if err := terms.check(); err != nil {
		return err
	}

	b.mu.Lock()
	defer b.mu.Unlock()

	t := b.jobs[id]
	if t == nil {
		return fmt.Errorf("job %s does not share this GPU", id)
	}

	t.job.Terms = terms
	t.job.Cap = limit
	b.core.change(b.opts.Clock.Now(), id, terms)
	b.carryOut()

	return t.accounts.Limit(limit, t.job.Bare)
}

// Fix sets mode MIG or MPS, which need no token, or Whole to choose a mode by terms and demand.
func (b *Broker) Fix(mode Mode) {
	b.mu.Lock()
	defer b.mu.Unlock()

	b.core.fix(b.opts.Clock.Now(), mode)
	b.carryOut()
}

// Quiesce makes the processes of a job close their connections and stay away for some time, and waits until they have.
// A snapshot of a process has no connection in it then.
func (b *Broker) Quiesce(ctx context.Context, id string, away time.Duration) error {
	b.mu.Lock()

	t := b.jobs[id]
	if t == nil {
		b.mu.Unlock()
		return nil
	}

	t.away = b.opts.Clock.Now().Add(away)

	for p := range t.processes {
		p.send(record{kind: kindQuiesce, value: [7]uint64{uint64(away.Milliseconds())}})
	}
	b.mu.Unlock()

	for {
		b.mu.Lock()
		left, changed := len(t.processes), t.changed
		b.mu.Unlock()

		if left == 0 {
			return nil
		}

		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("quiesce job %s: %w", id, context.Cause(ctx))
		}
	}
}

// Mode returns how the GPU is shared now.
func (b *Broker) Mode() Mode {
	b.mu.Lock()
	defer b.mu.Unlock()

	return b.core.mode
}

// Uses returns what each job has had until now.
func (b *Broker) Uses() (map[string]Use, error) {
	b.mu.Lock()
	defer b.mu.Unlock()

	b.core.settle(b.opts.Clock.Now())

	var failed error
	uses := make(map[string]Use, len(b.jobs))

	for id, t := range b.jobs {
		use := t.past
		if c := b.core.clients[id]; c != nil {
			use = add(use, c.use)
			use.Unresponsive = c.lost
		}

		memory, err := t.accounts.Memory()
		failed = errors.Join(failed, err)
		use.Memory = memory
		use.Denials = t.denials

		for p := range t.processes {
			if p.hello {
				use.Processes++
			}
		}

		uses[id] = use
	}

	return uses, failed
}

func add(x, y Use) Use {
	x.Held += y.Held
	x.Demanded += y.Demanded
	x.Entitled += y.Entitled
	x.Grants += y.Grants

	return x
}

// Observe enters what NVML says that processes of this machine use of the GPU's memory, by process id. It returns those
// that belong to no job of this broker.
func (b *Broker) Observe(used map[int]uint64) (strangers []int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()

	known := map[int]bool{}

	for _, t := range b.jobs {
		own := map[uint64]uint64{}

		for p := range t.processes {
			bytes, ok := used[p.pid]
			if ok {
				known[p.pid] = true
			}

			if bytes > 0 { // else the driver does not say how much
				own[p.inner] = bytes
			}
		}

		err = errors.Join(err, t.accounts.Correct(own))
	}

	for pid := range used {
		if !known[pid] {
			strangers = append(strangers, pid)
		}
	}

	return strangers, err
}

// Close ends the broker and leaves the folders of its jobs to the next one. Programs go on without shares until then.
func (b *Broker) Close() error {
	b.cancel()

	b.mu.Lock()

	var err error

	for id, t := range b.jobs {
		delete(b.jobs, id)
		err = errors.Join(err, t.listener.Close(), t.accounts.Close())

		for p := range t.processes {
			err = errors.Join(err, p.close())
		}
	}
	b.mu.Unlock()

	b.tasks.Wait()

	return err
}
