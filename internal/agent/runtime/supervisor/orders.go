package supervisor

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/job"
)

// order tells a supervisor to stop its run.
type order struct {
	mode     job.StopMode
	cause    job.Cause
	reason   string
	maxGrace time.Duration // bound on the grace period; 0 for none
}

// grace is how long a run that asked for so much has between SIGTERM and SIGKILL.
func (o order) grace(requested job.Duration) time.Duration {
	if o.maxGrace > 0 {
		return min(time.Duration(requested), o.maxGrace)
	}

	return time.Duration(requested)
}

// requestedStop is the order that the stop file holds, if any.
func (s *supervisor) requestedStop() (order, bool) {
	mode, err := rundir.ReadStop(s.dir)
	if err != nil {
		s.logError(err)
	}

	return order{mode: mode, cause: job.CauseCancelled, reason: "stopped on request"}, mode != job.StopNone
}

// leaseExpired is the order that follows from a lease that is over. The yard grants
// nine tenths of the time after which it gives a node up; by the end of the last
// tenth nothing of the run may be left, however long a grace it asked for.
func leaseExpired(l rundir.ContactLease) order {
	return order{
		mode:     job.StopTerm,
		cause:    job.CauseNodeLost,
		maxGrace: max(l.Valid/10, time.Millisecond),
		reason: fmt.Sprintf(
			"no contact with the server for %v; the job may be restarted elsewhere",
			job.Duration(l.Valid.Round(time.Millisecond)),
		),
	}
}

// receiveOrders gathers all reasons to stop in s.orders until ctx ends. What was asked
// before is known when it returns.
func (s *supervisor) receiveOrders(ctx context.Context) error {
	// Reading and writing, so that it never ends when a writer goes away.
	control, err := os.OpenFile(filepath.Join(s.dir, rundir.ControlPipe), os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("open the control pipe: %w", err)
	}

	if o, ok := s.requestedStop(); ok {
		s.accept(o)
	} else if l, left, ok, err := rundir.ReadContactLease(s.data); err == nil && ok && left <= 0 {
		s.accept(leaseExpired(l))
	}

	context.AfterFunc(ctx, func() { _ = control.Close() })

	go func() {
		for r := bufio.NewReader(control); ; {
			if _, err := r.ReadByte(); err != nil {
				return // closed
			}

			if o, ok := s.requestedStop(); ok {
				s.send(ctx, o)
			}
		}
	}()

	go func() {
		if l, over := rundir.AwaitContactLeaseExpiry(ctx, s.data, s.logError); over {
			s.send(ctx, leaseExpired(l))
		}
	}()

	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT, unix.SIGHUP)
	go s.handleSignals(ctx, signals)

	return nil
}

// handleSignals stops the run when the supervisor itself is told to, as when the
// machine shuts down. A hang-up means nothing to it; but it must not be ignored
// either, because the program would inherit that.
func (s *supervisor) handleSignals(ctx context.Context, signals chan os.Signal) {
	defer signal.Stop(signals)

	for {
		select {
		case sig := <-signals:
			if sig != unix.SIGHUP {
				s.send(ctx, order{mode: job.StopTerm, cause: job.CauseNodeLost,
					reason: "the supervisor received a signal to exit, for instance at a shutdown of the machine"})
			}
		case <-ctx.Done():
			return
		}
	}
}

// send hands an order to the supervisor's loop.
func (s *supervisor) send(ctx context.Context, o order) {
	select {
	case s.orders <- o:
	case <-ctx.Done():
	}
}

// accept notes an order. The first one gives the cause; a kill overrides a running term.
func (s *supervisor) accept(o order) {
	if s.stop.mode == job.StopNone {
		s.stop = o
	}

	if o.mode == job.StopKill {
		s.stop.mode = job.StopKill
	}
}

// stopRequested reports whether an order has come, without waiting for one.
func (s *supervisor) stopRequested() bool {
	select {
	case o := <-s.orders:
		s.accept(o)
	default:
	}

	return s.stop.mode != job.StopNone
}
