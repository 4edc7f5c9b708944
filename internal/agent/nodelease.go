package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"sync"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/clock"
	"trainyard/internal/cloud"
	"trainyard/internal/fault"
)

const (
	// ExitOnLeaseEnd as what is run at the end of the lease means that the agent ends
	// and does nothing else: whoever started it ends the machine.
	ExitOnLeaseEnd = "exit"

	// nodeLeaseGrace is how long runs get at most when the lease is over, however long
	// their own grace is: the dead man's switch does not wait for ever.
	nodeLeaseGrace = 2 * time.Minute
	// nodeLeaseCheck is how often the lease is looked at: timers stand still while the machine sleeps.
	nodeLeaseCheck = 10 * time.Second
	// shutdownRetry is how long a command that ends the machine has before it is run again.
	shutdownRetry = time.Minute
)

// nodeLease is the yard's hold on this machine, if it was hired: until when it may go on
// without hearing from the yard. It lies in a file, so that an agent that
// starts anew obeys it and the dead man's switch sees it. Of a machine that was not hired
// there is none. It is safe for concurrent use.
type nodeLease struct {
	path    string
	moment  func() (cloud.Moment, error)
	changed chan struct{} // it has changed; holds at most one

	mu          sync.Mutex
	provisioned bool
	until       cloud.Deadline
	written     cloud.Deadline // what the file says, in whole seconds
}

// openNodeLease reads what an earlier agent, or the machine's boot script, left. A file that
// cannot be read is an error that stops nobody: the next answer of the yard replaces
// it, and the dead man's switch does not depend on it.
func openNodeLease(path string, moment func() (cloud.Moment, error)) (*nodeLease, error) {
	h := &nodeLease{path: path, moment: moment, changed: make(chan struct{}, 1)}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return h, nil
	}
	if err == nil {
		h.until, err = cloud.ParseDeadline(string(text))
	}
	if err != nil {
		return h, fmt.Errorf("read the node lease: %w", err)
	}
	h.provisioned, h.written = true, h.until
	return h, nil
}

// renewal is called before the yard is asked, and what it returns with the answer. The time
// counts from before the question: the yard looked at its clock after that, so
// the machine never goes on for longer than the yard holds it. An answer that says
// nothing about a lease changes nothing.
func (h *nodeLease) renewal() func(left *int64) error {
	sentAt, err := h.moment()
	return func(left *int64) error {
		if left == nil {
			return nil
		}
		if err != nil {
			return err
		}
		return h.set(sentAt.In(time.Duration(min(max(*left, 0), int64(maxNodeLease/time.Second))) * time.Second))
	}
}

// maxNodeLease bounds what is believed: a lease that is longer holds this long.
const maxNodeLease = 10 * 365 * 24 * time.Hour

// expire makes the lease be over now: the yard has said so.
func (h *nodeLease) expire() error {
	now, err := h.moment()
	if err != nil {
		return err
	}
	return h.set(now.In(0))
}

// clear forgets the lease: this machine has joined anew and was not hired.
func (h *nodeLease) clear() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.provisioned, h.until, h.written = false, cloud.Deadline{}, cloud.Deadline{}
	notify(h.changed)
	return removeIfThere(h.path)
}

// set takes a new end over. It counts in memory even if the file cannot be written.
func (h *nodeLease) set(d cloud.Deadline) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.provisioned, h.until = true, d
	notify(h.changed)
	if moved := d.Until - h.written.Until; h.written.Boot == d.Boot && moved >= 0 && moved < time.Second {
		return nil // the file knows whole seconds, and may say less but never more
	}
	if err := replaceFile(h.path, []byte(d.String())); err != nil {
		return fmt.Errorf("write the node lease: %w", err)
	}
	h.written = d
	h.written.Until = d.Until.Truncate(time.Second)
	return nil
}

// remaining returns how long the lease still holds, and whether there is one.
func (h *nodeLease) remaining() (time.Duration, bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.provisioned {
		return 0, false, nil
	}
	now, err := h.moment()
	if err != nil {
		return 0, true, err
	}
	return h.until.Left(now), true, nil
}

// expired reports whether the lease has ended.
func (h *nodeLease) expired() bool {
	left, hired, err := h.remaining()
	return hired && err == nil && left <= 0
}

// awaitExpiry waits until the lease is over and reports that it is; false if ctx ends first.
func (h *nodeLease) awaitExpiry(ctx context.Context, failed func(error)) bool {
	for {
		left, hired, err := h.remaining()
		failed(err)
		switch {
		case hired && err == nil && left <= 0:
			return true
		case !hired || err != nil:
			left = nodeLeaseCheck
		}
		if clock.Wait(ctx, min(left, nodeLeaseCheck), h.changed) == clock.Ended {
			return false
		}
	}
}

// endedBy reports whether the yard said by an error that it does not hold this machine any
// more. A node that was taken out of the yard ends only if it was hired.
func (h *nodeLease) endedBy(err error) bool {
	var f *fault.Error
	if !errors.As(err, &f) {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return f.Code == api.CodeLeaseOver || f.Code == api.CodeNodeRemoved && h.provisioned
}

// awaitShutdown waits until the agent is told to stop, or the lease is over, which it reports.
func (a *Agent) awaitShutdown(ctx context.Context) bool {
	over := a.nodeLease.expired() || a.nodeLease.awaitExpiry(ctx, func(err error) { a.noteProblem("node lease", err) })
	if over {
		a.log.Warn("node lease expired: stopping all runs, then shutting down", "grace", nodeLeaseGrace)
	}
	return over
}

// shutDownMachine ends the machine by the command that was set, until that has happened.
func (a *Agent) shutDownMachine(ctx context.Context) {
	if a.cfg.OnLeaseEnd == "" || a.cfg.OnLeaseEnd == ExitOnLeaseEnd {
		a.log.Warn("node lease expired, agent exits")
		return
	}
	for {
		a.log.Warn("node lease expired, shutting down the machine", "command", a.cfg.OnLeaseEnd)
		if err := runShell(ctx, a.cfg.OnLeaseEnd); err != nil {
			a.log.Error("cannot shut down the machine", "error", err, "retry_in", shutdownRetry)
		}
		if !clock.Sleep(ctx, shutdownRetry) {
			return
		}
	}
}

// nodeLeaseLeft is for how many seconds the lease still holds, -1 if there is none.
func (a *Agent) nodeLeaseLeft() float64 {
	left, hired, err := a.nodeLease.remaining()
	if !hired || err != nil {
		return -1
	}
	return max(left.Seconds(), 0)
}

// runShell runs a command line and says what it printed if it fails.
func runShell(ctx context.Context, line string) error {
	ctx, cancel := context.WithTimeout(ctx, shutdownRetry)
	defer cancel()
	out, err := exec.CommandContext(ctx, "/bin/sh", "-c", line).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %.500s", line, err, bytes.TrimSpace(out))
	}
	return nil
}
