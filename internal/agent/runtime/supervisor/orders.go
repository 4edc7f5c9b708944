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
	"trainyard/internal/contact"
	"trainyard/internal/job"
)

// order is a request to stop the run, or to suspend its program or let it continue.
type order struct {
	mode     job.StopMode
	cause    job.Cause
	reason   string
	maxGrace time.Duration // bound on the grace period from now; 0 for none
	// start says that the program may start, which waits for the other ranks.
	start bool
	// suspend is for a program that goes on: to suspend it or to let it continue. Its number is 0 in an order to stop.
	suspend job.SuspendOrder
}

// grace returns the time between SIGTERM and SIGKILL for a run that requested the given grace
// period.
func (o order) grace(requested job.Duration) time.Duration {
	if o.maxGrace > 0 {
		return min(time.Duration(requested), o.maxGrace)
	}

	return time.Duration(requested)
}

// requestedStop returns the order in the stop file, if there is one.
func (s *supervisor) requestedStop() (order, bool) {
	mode, err := rundir.ReadStop(s.dir)
	if err != nil {
		s.logError(err)
	}

	return order{mode: mode, cause: job.CauseCancelled, reason: "stopped on request"}, mode != job.StopNone
}

// requestedEviction returns the order to stop a program for what it does, if there is one.
func (s *supervisor) requestedEviction() (order, bool) {
	reason, err := rundir.ReadEviction(s.dir)
	if err != nil {
		s.logError(err)
	}

	return order{mode: job.StopTerm, cause: job.CauseUserCode, reason: reason}, reason != ""
}

// leaseExpired returns the order that follows from a contact lease that has expired, with what is
// left of it. When its grace period is over nothing of the run may be left, whatever grace period
// the run requested.
func leaseExpired(l contact.Lease, left time.Duration) order {
	return order{
		mode:     job.StopTerm,
		cause:    job.CauseNodeLost,
		maxGrace: l.KillAfter(left),
		reason: fmt.Sprintf(
			"no contact with the server for %v; the job may be restarted elsewhere",
			job.Duration(l.Valid.Round(time.Millisecond)),
		),
	}
}

// expiredLease returns the order that follows from the contact lease, if that has expired.
func (s *supervisor) expiredLease() (order, bool) {
	l, left, ok, err := s.boot.ReadContactLease(s.data)
	if err != nil {
		s.logError(err)
	}

	return leaseExpired(l, left), err == nil && ok && left <= 0
}

// receiveOrders sends every reason to stop to s.orders until ctx is cancelled. Requests made before
// the call are read before it returns.
func (s *supervisor) receiveOrders(ctx context.Context) error {
	// Open for reading and writing, so that the pipe does not report its end when a writer closes
	// it.
	control, err := os.OpenFile(filepath.Join(s.dir, rundir.ControlPipe), os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("open the control pipe: %w", err)
	}

	if o, ok := s.requestedStop(); ok {
		s.accept(o)
	} else if o, ok := s.expiredLease(); ok {
		s.accept(o)
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

			if o, ok := s.requestedEviction(); ok {
				s.send(ctx, o)
			}

			if o, ok := s.requestedSuspension(); ok {
				s.send(ctx, o)
			}

			if o, ok := s.requestedStart(); ok {
				s.send(ctx, o)
			}
		}
	}()

	go func() {
		if l, left, over := s.boot.AwaitContactLeaseExpiry(ctx, s.data, s.logError); over {
			s.send(ctx, leaseExpired(l, left))
		}
	}()

	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT, unix.SIGHUP)
	go s.handleSignals(ctx, signals)

	return nil
}

// handleSignals stops the run when the supervisor itself receives a signal to stop, as when the
// machine shuts down. SIGHUP has no effect; it must not be ignored, though, because the program
// would inherit that.
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

// accept records an order. The first one determines the cause; a kill overrides an earlier term.
// A lease that expires while the run stops on request bounds the rest of its grace period.
func (s *supervisor) accept(o order) {
	if o.start {
		return // awaitGang looks
	}

	if o.suspend.Number > 0 {
		s.suspendWanted = o.suspend
		return
	}

	if o.maxGrace > 0 {
		s.killBy = s.clk.Now().Add(o.maxGrace)
	}

	if s.stop.mode == job.StopNone {
		s.stop = o
	}

	if o.mode == job.StopKill {
		s.stop.mode = job.StopKill
	}
}

// stopRequested reports whether an order has arrived, without waiting for one.
func (s *supervisor) stopRequested() bool {
	select {
	case o := <-s.orders:
		s.accept(o)
	default:
	}

	return s.stop.mode != job.StopNone
}
