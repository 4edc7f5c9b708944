// Package watcher ends the program of a rank when its supervisor cannot.
//
// The agent starts one watcher for each rank beside its supervisor, as package subprocess says, in its own
// session. It covers what the supervisor cannot do for itself:
//
//   - The supervisor is gone without having recorded an end, as when somebody killed it. An agent ends the rank then,
//     and if the agent was killed too the watcher does. A program without a supervisor cannot be adopted, because
//     nobody reads its output any more, so there is nothing to wait for.
//   - The contact lease and the grace period after it are over and the supervisor has not ended the run, as when it
//     was suspended. The watcher then kills the program, since the server may start the job elsewhere from then on.
//
// A watcher exits when the supervisor has recorded the end. It writes nothing before it acts, and then only into
// reserved room, so it works on a full disk. It never talks to the server.
package watcher

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent/runtime/process"
	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/clock"
	"trainyard/internal/job"
)

// retryEvery is how often the watcher looks again while the agent ends the rank, and kills again what is left.
const retryEvery = 100 * time.Millisecond

// watcher watches one rank.
type watcher struct {
	dir        string // the run directory
	data       string // the data directory
	supervisor process.Process
	clk        clock.Clock
	log        *slog.Logger
}

// Run watches the rank whose run directory is dir and which has this supervisor, until the rank has ended. It returns
// the exit status of the process. Only main calls it, in a process of its own. It returns at once if the rank has
// another watcher.
func Run(ctx context.Context, dir string, supervisor process.Process, stderr io.Writer) int {
	w := &watcher{
		dir: dir, data: filepath.Dir(filepath.Dir(dir)), supervisor: supervisor, clk: clock.NewSteady(),
		log: slog.New(slog.NewTextHandler(stderr, nil)).With("process", "watcher"),
	}

	if err := w.run(ctx); err != nil {
		w.log.Error("watcher failed", "error", err)
		return 1
	}

	return 0
}

func (w *watcher) run(ctx context.Context) error {
	lock, mine, err := rundir.TakeWatchLock(w.dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !mine {
		return nil // the rank is over and forgotten, or watched
	}
	if err != nil {
		return err
	}

	defer func() { _ = lock.Close() }()

	supervised, cancel := context.WithCancel(ctx)
	enforced := make(chan struct{})

	go func() {
		defer close(enforced)
		w.enforceLease(supervised)
	}()

	gone := w.supervisor.AwaitExit(ctx)
	cancel()
	<-enforced

	if !gone {
		return ctx.Err()
	}

	return w.ensureEnd(ctx)
}

// ensureEnd makes sure that a rank without a supervisor ends. The agent does the same if it is there; whoever gets
// the lock of the rank first does it.
func (w *watcher) ensureEnd(ctx context.Context) error {
	for {
		over, err := w.endOnce(ctx)
		if over || err != nil {
			return err
		}
		if !clock.Sleep(ctx, retryEvery) {
			return ctx.Err()
		}
	}
}

// endOnce ends the rank unless somebody else is doing so, and reports whether it is over.
func (w *watcher) endOnce(ctx context.Context) (over bool, err error) {
	if w.over(&rundir.State{}) {
		return true, nil
	}

	lock, mine, err := rundir.TakeLock(w.dir)
	if err != nil || !mine {
		return errors.Is(err, fs.ErrNotExist), ignoreMissing(err)
	}

	defer func() { err = errors.Join(err, lock.Close()) }()

	g := Grave{Dir: w.dir, Clock: w.clk, Log: w.log}
	if w.over(&g.State) { // the agent may have been faster
		return true, nil
	}

	w.log.Warn("the supervisor is gone: ending the rank", "supervisor", w.supervisor.PID)

	if err := g.Bury(ctx); err != nil {
		return false, err
	}

	return true, rundir.Poke(filepath.Join(w.data, rundir.EventsPipe), filepath.Base(w.dir)+"\n")
}

// over reports whether nothing of the rank can be left: its end is recorded, or it was never begun. It reads the
// state. A rank whose state is damaged is not over: its processes are found by their directory.
func (w *watcher) over(st *rundir.State) bool {
	begun, err := rundir.ReadState(w.dir, st)
	if err != nil {
		w.log.Error("cannot read the state of the rank", "error", err)
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

// enforceLease kills the program when the contact lease and the grace period after it are over and the supervisor
// has not ended it, until ctx ends. The supervisor is left alone: it records the end when it can.
func (w *watcher) enforceLease(ctx context.Context) {
	failed := func(err error) { w.log.Warn("cannot read the contact lease", "error", err) }

	for {
		lease, left, over := rundir.AwaitContactLeaseExpiry(ctx, w.data, failed)
		if !over || !clock.Sleep(ctx, lease.KillAfter(left)) {
			return
		}

		if w.expired() {
			w.kill()
		}

		if !clock.Sleep(ctx, retryEvery) {
			return
		}
	}
}

// expired reports whether the contact lease has expired, or the data directory was removed.
func (w *watcher) expired() bool {
	_, left, ok, err := rundir.ReadContactLease(w.data)
	if err == nil && !ok {
		_, err := os.Stat(w.data)
		return errors.Is(err, fs.ErrNotExist)
	}

	return err == nil && left <= 0
}

// kill kills every process of the rank but its supervisor.
func (w *watcher) kill() {
	var st rundir.State
	if _, err := rundir.ReadState(w.dir, &st); err != nil {
		w.log.Error("cannot read the state of the rank", "error", err)
	}

	q := rundir.Processes{
		Dir: w.dir, Group: st.Group, Session: st.PID, Since: st.Begun, Isolated: st.Isolated,
	}
	if w.supervisor.Exists() {
		q.Root = w.supervisor.PID
	}

	n, err := q.Signal(unix.SIGKILL, true)
	if err != nil {
		w.log.Error("cannot kill the processes of the rank", "error", err)
	}

	if n > 0 {
		w.log.Warn("the contact lease has expired and the supervisor has not ended the rank: killed its processes",
			"processes", n)
	}
}
