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
	"trainyard/internal/atomicfile"
	"trainyard/internal/clock"
	"trainyard/internal/cloud"
	"trainyard/internal/diskspace"
	"trainyard/internal/fault"
)

const (
	// ExitOnLeaseEnd as the command at the end of the lease means that the agent only
	// exits: whoever started it shuts the machine down.
	ExitOnLeaseEnd = "exit"

	// nodeLeaseGrace bounds the grace period of runs when the lease has expired: the dead
	// man's switch does not wait for longer ones.
	nodeLeaseGrace = 2 * time.Minute
	// nodeLeaseCheck is how often the lease is checked: timers stop while the machine is suspended.
	nodeLeaseCheck = 10 * time.Second
	// shutdownRetry is how long the shutdown command has before it is run again.
	shutdownRetry = time.Minute
)

// nodeLease is the lease of this machine if it was provisioned: until when it may keep
// running without a renewal by the server. It is stored in a file, so that a restarted
// agent and the dead man's switch see it. Other machines have no lease. It is not the
// contact lease, which bounds how long runs continue without the server. It is safe for
// concurrent use.
type nodeLease struct {
	path    string
	moment  func() (cloud.Moment, error)
	changed chan struct{} // notifies of a change

	mu          sync.Mutex
	provisioned bool
	until       cloud.Deadline
	written     cloud.Deadline // what the file says, in whole seconds
}

// openNodeLease reads the lease that an earlier agent, or the machine's boot script, left.
// The result is usable even if the file cannot be read: the next answer of the server
// replaces it, and the dead man's switch does not depend on it.
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

// renewal is called before a request to the server, and the function it returns with the
// answer. The remaining time counts from before the request: the server read its clock
// after that, so the machine never outlives its lease. An answer without a lease changes
// nothing.
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

// maxNodeLease bounds the remaining time that the server may grant.
const maxNodeLease = 10 * 365 * 24 * time.Hour

// expire ends the lease now, because the server said so.
func (h *nodeLease) expire() error {
	now, err := h.moment()
	if err != nil {
		return err
	}

	return h.set(now.In(0))
}

// clear removes the lease: this machine has joined again and was not provisioned.
func (h *nodeLease) clear() error {
	h.mu.Lock()
	defer h.mu.Unlock()

	h.provisioned = false
	h.until = cloud.Deadline{}
	h.written = cloud.Deadline{}
	notify(h.changed)

	return removeIfThere(h.path)
}

// set stores a new expiry. It is effective even if the file cannot be written.
func (h *nodeLease) set(d cloud.Deadline) error {
	h.mu.Lock()
	defer h.mu.Unlock()

	h.provisioned, h.until = true, d
	notify(h.changed)

	if moved := d.Until - h.written.Until; h.written.Boot == d.Boot && moved >= 0 && moved < time.Second {
		return nil // the file has whole seconds, and may hold an earlier expiry but never a later one
	}

	err := atomicfile.Write(h.path, []byte(d.String()), atomicfile.SingleWriter())
	if diskspace.Full(err) {
		err = overwrite(h.path, d.String())
	}

	if err != nil {
		return fmt.Errorf("write the node lease: %w", err)
	}

	h.written = d
	h.written.Until = d.Until.Truncate(time.Second)

	return nil
}

// overwrite writes a line into a file that is there, which needs no space on its disk. Those who read it meanwhile
// read the first line only.
func overwrite(path, line string) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}

	defer func() { err = errors.Join(err, f.Close()) }()

	if _, err := f.WriteAt([]byte(line), 0); err != nil {
		return err
	}
	if err := f.Truncate(int64(len(line))); err != nil {
		return err
	}

	return f.Sync()
}

// remaining returns the time until the lease expires, and whether there is one.
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

	return h.until.Remaining(now), true, nil
}

// expired reports whether the lease has expired.
func (h *nodeLease) expired() bool {
	left, provisioned, err := h.remaining()
	return provisioned && err == nil && left <= 0
}

// awaitExpiry waits until the lease has expired; it returns false if ctx ends first.
func (h *nodeLease) awaitExpiry(ctx context.Context, failed func(error)) bool {
	for {
		left, provisioned, err := h.remaining()
		failed(err)

		switch {
		case provisioned && err == nil && left <= 0:
			return true
		case !provisioned || err != nil:
			left = nodeLeaseCheck
		}

		if clock.Wait(ctx, min(left, nodeLeaseCheck), h.changed) == clock.Ended {
			return false
		}
	}
}

// endedBy reports whether an error of the server means that the lease has ended. A removed
// node shuts down only if it was provisioned.
func (h *nodeLease) endedBy(err error) bool {
	var f *fault.Error
	if !errors.As(err, &f) {
		return false
	}

	h.mu.Lock()
	defer h.mu.Unlock()

	return f.Code == api.CodeLeaseOver || f.Code == api.CodeNodeRemoved && h.provisioned
}

// awaitShutdown waits until the agent is to stop or the lease has expired, and reports
// whether it was the lease.
func (a *Agent) awaitShutdown(ctx context.Context) bool {
	over := a.nodeLease.expired() || a.nodeLease.awaitExpiry(ctx, func(err error) { a.noteProblem("node lease", err) })
	if over {
		a.log.Warn("node lease expired: stopping all runs, then shutting down", "grace", nodeLeaseGrace)
	}

	return over
}

// shutDownMachine runs the configured shutdown command until the machine is down.
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

// nodeLeaseLeft is the time in seconds until the lease expires, -1 if there is none.
func (a *Agent) nodeLeaseLeft() float64 {
	left, provisioned, err := a.nodeLease.remaining()
	if !provisioned || err != nil {
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
