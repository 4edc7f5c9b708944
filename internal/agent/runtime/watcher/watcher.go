// Package watcher ends the programs of ranks when their supervisors cannot.
//
// Each agent process starts one watcher, as package subprocess says, in its own session, and writes a line to it for
// every rank that gets a supervisor. The watcher outlives the agent: it exits when its input has ended and the last of
// its ranks is over. The agent ends the input when there has been no rank for a while. The next agent process starts
// another, which leaves the ranks of this one alone. It covers what a supervisor cannot do for itself:
//
//   - The supervisor is gone without having recorded an end, as when somebody killed it. An agent ends the rank then,
//     and if the agent was killed too the watcher does. A program without a supervisor cannot be adopted, because
//     nobody reads its output any more, so there is nothing to wait for.
//   - The contact lease and the grace period after it are over and the supervisor has not ended the run, as when it
//     was suspended. The watcher then kills the program, since the server may start the job elsewhere from then on.
//
// A watcher writes nothing before it acts, and then only into reserved room, so it works on a full disk. It never talks
// to the server.
package watcher

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent/runtime/process"
	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/clock"
	"trainyard/internal/job"
)

// retryEvery is how often the watcher looks again while the agent ends a rank, and kills again what is left.
const retryEvery = 100 * time.Millisecond

// Line is what the agent writes to its watcher for a rank that has this supervisor.
func Line(name string, supervisor process.Process) string {
	return fmt.Sprintf("%s %d %d\n", name, supervisor.PID, supervisor.Started)
}

// EndLine is what the agent writes for a rank that is over. Its supervisor may have another rank then.
func EndLine(name string) string { return name + "\n" }

// parseLine reads what Line wrote.
func parseLine(line string) (name string, supervisor process.Process, ok bool) {
	n, err := fmt.Sscanf(line, "%s %d %d", &name, &supervisor.PID, &supervisor.Started)
	return name, supervisor, err == nil && n == 3 && filepath.IsLocal(name)
}

// watcher watches the ranks of a data directory.
type watcher struct {
	data string
	clk  clock.Clock
	boot *rundir.BootClock

	mu    sync.Mutex
	ranks map[string]*rank // that this process watches, by their names
}

// rank is one rank that is watched.
type rank struct {
	dir        string // the run directory
	data       string // the data directory
	supervisor process.Process
	clk        clock.Clock
	boot       string // the present start of the machine
	log        *slog.Logger
	watched    context.Context //nolint:containedctx // ends when the agent says that the rank is over
	release    context.CancelFunc
}

// Run watches the ranks of a data directory that the lines of input name, until input has ended and none of them is
// left. It returns the exit status of the process. Only main calls it, in a process of its own. A rank that has
// another watcher is left to that.
func Run(ctx context.Context, data string, input io.Reader) int {
	ctx, cancel := context.WithCancel(ctx)
	w := &watcher{data: data, clk: clock.NewSteady(), boot: rundir.NewBootClock(), ranks: map[string]*rank{}}
	var watching, enforcing sync.WaitGroup
	status := 0

	enforcing.Go(func() { w.enforceLease(ctx) })

	lines := bufio.NewScanner(input)
	for lines.Scan() {
		if name := lines.Text(); !strings.Contains(name, " ") {
			w.release(name)
			continue
		}

		name, supervisor, ok := parseLine(lines.Text())
		if !ok {
			status = 2
			continue
		}

		r := w.newRank(ctx, name, supervisor)
		if !w.claim(name, r) {
			continue
		}

		watching.Go(func() {
			if err := w.watch(ctx, name, r); err != nil {
				r.log.Error("cannot watch the rank", "error", err)
			}
		})
	}

	watching.Wait()
	cancel()
	enforcing.Wait()

	return status
}

func (w *watcher) newRank(ctx context.Context, name string, supervisor process.Process) *rank {
	dir := filepath.Join(w.data, rundir.RunsDir, name)

	watched, release := context.WithCancel(ctx) //nolint:gosec // drop calls it

	return &rank{
		watched: watched, release: release,
		dir: dir, data: w.data, supervisor: supervisor, clk: w.clk, boot: w.boot.Boot(),
		log: slog.New(slog.NewTextHandler(rankLog(dir), nil)).With("process", "watcher"),
	}
}

// rankLog is the log of the supervisor of a rank, in whose directory it is. It is opened for each line: there are few.
type rankLog string

func (dir rankLog) Write(line []byte) (n int, err error) {
	path := filepath.Join(string(dir), rundir.SupervisorLog)
	f, err := os.OpenFile(filepath.Clean(path), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return 0, err
	}

	defer func() { err = errors.Join(err, f.Close()) }()

	return f.Write(line)
}

// watch watches one rank until it is over.
func (w *watcher) watch(ctx context.Context, name string, r *rank) error {
	defer w.drop(name, r)

	lock, mine, err := rundir.TakeWatchLock(r.dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !mine {
		return nil // the rank is over and forgotten, or watched by another process
	}
	if err != nil {
		return err
	}

	defer func() { _ = lock.Close() }()

	if !r.supervisor.AwaitExit(r.watched) {
		return ctx.Err()
	}

	return r.ensureEnd(ctx)
}

// claim enters a rank and reports whether it was not there. The lock of the rank does not say so: it belongs to the
// process.
func (w *watcher) claim(name string, r *rank) bool {
	w.mu.Lock()
	defer w.mu.Unlock()

	if w.ranks[name] != nil {
		return false
	}

	w.ranks[name] = r

	return true
}

func (w *watcher) drop(name string, r *rank) {
	r.release()
	w.mu.Lock()
	defer w.mu.Unlock()

	delete(w.ranks, name)
}

// release ends the watch of a rank that is over, if there is one.
func (w *watcher) release(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()

	if r := w.ranks[name]; r != nil {
		r.release()
	}
}

// watched lists the ranks that have a supervisor, or had one until now.
func (w *watcher) watched() []*rank {
	w.mu.Lock()
	defer w.mu.Unlock()

	return slices.Collect(maps.Values(w.ranks))
}

// ensureEnd makes sure that a rank without a supervisor ends. The agent does the same if it is there; whoever gets
// the lock of the rank first does it.
func (r *rank) ensureEnd(ctx context.Context) error {
	for {
		over, err := r.endOnce(ctx)
		if over || err != nil {
			return err
		}
		if !clock.Sleep(ctx, retryEvery) {
			return ctx.Err()
		}
	}
}

// endOnce ends the rank unless somebody else is doing so, and reports whether it is over.
func (r *rank) endOnce(ctx context.Context) (over bool, err error) {
	if r.over(&rundir.State{}) {
		return true, nil
	}

	lock, mine, err := rundir.TakeLock(r.dir)
	if err != nil || !mine {
		return errors.Is(err, fs.ErrNotExist), ignoreMissing(err)
	}

	defer func() { err = errors.Join(err, lock.Close()) }()

	g := Grave{Dir: r.dir, Clock: r.clk, Boot: r.boot, Log: r.log}
	if r.over(&g.State) { // the agent may have been faster
		return true, nil
	}

	r.log.Warn("the supervisor is gone: ending the rank", "supervisor", r.supervisor.PID)

	if g.State.Run == "" { // nothing says which rank it was, so an end would be that of another
		return true, g.endProcesses(ctx)
	}
	if err := g.Bury(ctx); err != nil {
		return false, err
	}

	return true, rundir.Poke(filepath.Join(r.data, rundir.EventsPipe), filepath.Base(r.dir)+"\n")
}

// over reports whether nothing of the rank can be left: its end is recorded, or it was never begun. It reads the
// state. A rank whose state is damaged is not over: its processes are found by their directory, and what it is called
// is in the record of its launch.
func (r *rank) over(st *rundir.State) bool {
	begun, err := rundir.ReadState(r.dir, st)
	if err != nil {
		r.log.Error("cannot read the state of the rank", "error", err)

		var rec rundir.Record
		if _, err := rundir.ReadJSON(filepath.Join(r.dir, rundir.LaunchFile), &rec); err != nil {
			r.log.Error("cannot read the record of the rank", "error", err)
		}

		*st = rundir.State{Status: rundir.NewStatus(rec.Spec)}

		return false
	}

	return !begun || st.State == job.RunEnded
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	return err
}

// enforceLease kills the programs when the contact lease and the grace period after it are over and their supervisors
// have not ended them, until ctx ends. The supervisors are left alone: they record the end when they can.
func (w *watcher) enforceLease(ctx context.Context) {
	failed := func(err error) {
		for _, r := range w.watched() {
			r.log.Warn("cannot read the contact lease", "error", err)
		}
	}

	for {
		lease, left, over := w.boot.AwaitContactLeaseExpiry(ctx, w.data, failed)
		if !over || !clock.Sleep(ctx, lease.KillAfter(left)) {
			return
		}

		if w.expired() {
			for _, r := range w.watched() {
				r.kill()
			}
		}

		if !clock.Sleep(ctx, retryEvery) {
			return
		}
	}
}

// expired reports whether the contact lease has expired, or the data directory was removed.
func (w *watcher) expired() bool {
	_, left, ok, err := w.boot.ReadContactLease(w.data)
	if err == nil && !ok {
		_, err := os.Stat(w.data)
		return errors.Is(err, fs.ErrNotExist)
	}

	return err == nil && left <= 0
}

// kill kills every process of the rank but its supervisor.
func (r *rank) kill() {
	if !r.supervisor.Exists() {
		return // the rank is being ended, see ensureEnd
	}

	var st rundir.State
	if _, err := rundir.ReadState(r.dir, &st); err != nil {
		r.log.Error("cannot read the state of the rank", "error", err)
	}

	q := rundir.Processes{
		Dir: r.dir, Group: st.Group, Session: st.PID, Since: st.Begun, Isolated: st.Isolated, Root: r.supervisor.PID,
	}

	n, err := q.Signal(unix.SIGKILL, true)
	if err != nil {
		r.log.Error("cannot kill the processes of the rank", "error", err)
	}

	if n > 0 {
		r.log.Warn("the contact lease has expired and the supervisor has not ended the rank: killed its processes",
			"processes", n)
	}
}
