package runtime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"trainyard/internal/agent/runtime/process"
	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/agent/runtime/watcher"
	"trainyard/internal/clock"
)

// watched are the ranks that the watcher of this agent is to watch, see package watcher.
type watched struct {
	mu    sync.Mutex
	ranks map[string]process.Process // their supervisors
	fresh []string                   // those that the watcher has not been told of
	gone  []string                   // those that have ended, likewise
	more  chan struct{}              // signals that there are some, or that no rank is left; buffer of one
}

func newWatched() watched {
	return watched{ranks: map[string]process.Process{}, more: make(chan struct{}, 1)}
}

func (w *watched) add(name string, supervisor process.Process) {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.ranks[name] = supervisor
	w.fresh = append(w.fresh, name)
	w.signal()
}

func (w *watched) remove(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()

	delete(w.ranks, name)
	w.gone = append(w.gone, name)
	w.signal()
}

// none reports whether there is no rank to watch.
func (w *watched) none() bool {
	w.mu.Lock()
	defer w.mu.Unlock()

	return len(w.ranks) == 0
}

// renew lets all ranks be told to another watcher.
func (w *watched) renew() {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.fresh, w.gone = w.fresh[:0], w.gone[:0]
	for name := range w.ranks {
		w.fresh = append(w.fresh, name)
	}

	if len(w.fresh) > 0 {
		w.signal()
	}
}

// signal says that there is something to tell, or nothing to watch. The caller holds mu.
func (w *watched) signal() {
	select {
	case w.more <- struct{}{}:
	default:
	}
}

// lines returns what the watcher has not been told yet.
func (w *watched) lines() string {
	w.mu.Lock()
	defer w.mu.Unlock()

	var text strings.Builder
	for _, name := range w.fresh {
		if supervisor, there := w.ranks[name]; there {
			text.WriteString(watcher.Line(name, supervisor))
		}
	}

	for _, name := range w.gone {
		text.WriteString(watcher.EndLine(name))
	}

	w.fresh, w.gone = w.fresh[:0], w.gone[:0]

	return text.String()
}

// watch lets a rank that has this supervisor be watched. The program is started meanwhile and does not wait for it. A
// rank that is watched already, by the watcher of an earlier agent process, is left to that.
func (r *Runtime) watch(rk *rank, pid int) {
	if supervisor, ok := process.Read(pid); ok { // else it has exited and was waited for
		r.watched.add(rk.name, supervisor)
	}
}

// watcherRest is for how long a watcher without ranks stays: the next rank then finds it.
const watcherRest = time.Second

// keepWatcher starts the watcher when there is a rank to watch, and again if it has ended before the last of them,
// until Close.
func (r *Runtime) keepWatcher() {
	for {
		select {
		case <-r.watched.more:
		case <-r.ctx.Done():
			return
		}

		if r.watched.none() {
			continue
		}

		err := r.runWatcher()
		if r.ctx.Err() != nil {
			return
		}
		if err == nil {
			continue
		}

		r.log.Error("the ranks have no watcher: if agent and supervisor of one are killed its program continues",
			"error", err)

		if !clock.Sleep(r.ctx, time.Second) {
			return
		}

		r.watched.renew()
	}
}

// errWatcherEnded says that a watcher has ended though the agent had not closed its input.
var errWatcherEnded = errors.New("the watcher has ended")

// runWatcher starts a watcher and tells it of the ranks until it ends, has none any more, or Close is called. One that
// has ranks then goes on without the agent.
func (r *Runtime) runWatcher() error {
	input, out, err := os.Pipe()
	if err != nil {
		return err
	}

	defer context.AfterFunc(r.ctx, func() { _ = out.Close() })() // a watcher that is suspended reads nothing

	defer func() { _ = out.Close() }()

	cmd, err := r.startDetached(r.dir, stdio{input: input}, rundir.WatchSubcommand, r.dir)
	if err := errors.Join(err, input.Close()); err != nil {
		return fmt.Errorf("start the watcher: %w", err)
	}

	self, _ := process.Read(cmd.Process.Pid) // it is there until it is waited for
	ended := make(chan error, 1)

	r.tasks.Go(func() {
		if r.awaitExit(cmd.Process.Pid) {
			ended <- errors.Join(errWatcherEnded, cmd.Wait())
		}
	})

	err = r.tellWatcher(out, ended)

	if r.ctx.Err() != nil && r.watched.none() {
		// It ends at once, and then nothing is left of the agent. One that is suspended is not waited for.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), exitPatience)
		defer cancel()

		_ = out.Close()
		self.AwaitExit(ctx)
	}

	return err
}

// tellWatcher tells a watcher of the ranks until it has ended, no rank was there for a while, or Close is called.
func (r *Runtime) tellWatcher(out *os.File, ended <-chan error) error {
	for {
		if text := r.watched.lines(); text != "" {
			if _, err := out.WriteString(text); err != nil {
				return fmt.Errorf("tell the watcher of a rank: %w", err)
			}
		}

		if more, err := r.awaitRanks(ended); !more {
			return err
		}
	}
}

// awaitRanks waits until the watcher is to be told something, and reports false if it is not any more.
func (r *Runtime) awaitRanks(ended <-chan error) (more bool, err error) {
	ctx := r.ctx

	if r.watched.none() {
		idle, cancel := context.WithTimeout(r.ctx, watcherRest)
		defer cancel()

		ctx = idle
	}

	select {
	case <-r.watched.more:
		return true, nil
	case err := <-ended:
		return false, err
	case <-ctx.Done():
		return false, nil
	}
}
