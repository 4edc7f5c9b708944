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
	mode   job.StopMode
	cause  job.Cause
	reason string
	most   time.Duration // bound on the grace period; 0 for none
}

// grace is how long a run that asked for so much has between SIGTERM and SIGKILL.
func (o order) grace(asked job.Duration) time.Duration {
	if o.most > 0 {
		return min(time.Duration(asked), o.most)
	}
	return time.Duration(asked)
}

// asked is the order that the stop file holds, if any.
func (s *supervisor) asked() (order, bool) {
	mode, err := rundir.ReadStop(s.dir)
	if err != nil {
		s.complain(err)
	}
	return order{mode: mode, cause: job.CauseCancelled, reason: "stopped on request"}, mode != job.StopNone
}

// lapsed is the order that follows from a lease that is over. The yard grants
// nine tenths of the time after which it gives a node up; by the end of the last
// tenth nothing of the run may be left, however long a grace it asked for.
func lapsed(l rundir.ContactLease) order {
	return order{mode: job.StopTerm, cause: job.CauseNodeLost, most: max(l.Valid/10, time.Millisecond), reason: fmt.Sprintf(
		"no contact with the server for %v; the job may be restarted elsewhere", job.Duration(l.Valid.Round(time.Millisecond)))}
}

// listen gathers all reasons to stop in s.orders until ctx ends. What was asked
// before is known when it returns.
func (s *supervisor) listen(ctx context.Context) error {
	// Reading and writing, so that it never ends when a writer goes away.
	control, err := os.OpenFile(filepath.Join(s.dir, rundir.ControlPipe), os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("open the control pipe: %w", err)
	}
	if o, ok := s.asked(); ok {
		s.take(o)
	} else if l, left, ok, err := rundir.ReadContactLease(s.data); err == nil && ok && left <= 0 {
		s.take(lapsed(l))
	}
	context.AfterFunc(ctx, func() { _ = control.Close() })
	go func() {
		for r := bufio.NewReader(control); ; {
			if _, err := r.ReadByte(); err != nil {
				return // closed
			}
			if o, ok := s.asked(); ok {
				s.send(ctx, o)
			}
		}
	}()
	go func() {
		if l, over := rundir.AwaitContactLeaseExpiry(ctx, s.data, s.complain); over {
			s.send(ctx, lapsed(l))
		}
	}()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT, unix.SIGHUP)
	go s.heedSignals(ctx, signals)
	return nil
}

// heedSignals stops the run when the supervisor itself is told to, as when the
// machine shuts down. A hang-up means nothing to it; but it must not be ignored
// either, because the program would inherit that.
func (s *supervisor) heedSignals(ctx context.Context, signals chan os.Signal) {
	defer signal.Stop(signals)
	for {
		select {
		case sig := <-signals:
			if sig != unix.SIGHUP {
				s.send(ctx, order{mode: job.StopTerm, cause: job.CauseNodeLost,
					reason: "the supervisor was told to exit, for instance by a shutdown of the machine"})
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

// take notes an order. The first one gives the cause; a kill overrides a running term.
func (s *supervisor) take(o order) {
	if s.stop.mode == job.StopNone {
		s.stop = o
	}
	if o.mode == job.StopKill {
		s.stop.mode = job.StopKill
	}
}

// toldToStop reports whether an order has come, without waiting for one.
func (s *supervisor) toldToStop() bool {
	select {
	case o := <-s.orders:
		s.take(o)
	default:
	}
	return s.stop.mode != job.StopNone
}
