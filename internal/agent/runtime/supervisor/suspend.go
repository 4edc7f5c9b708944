package supervisor

import (
	"context"
	"fmt"
	"slices"
	"time"

	"trainyard/internal/agent/runtime/process"
	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/agent/snapshot"
	"trainyard/internal/humanize"
	"trainyard/internal/job"
)

const (
	// suspendTimeout bounds one attempt to suspend a program or to let it continue. The driver moves some gigabytes each
	// second.
	suspendTimeout = 3 * time.Minute
	// resumeRetry is how long to wait before a program that could not get its GPU memory back tries again.
	resumeRetry = 2 * time.Second
)

// requestedSuspension returns the last order to suspend the program or to let it continue, if it is new.
func (s *supervisor) requestedSuspension() (order, bool) {
	wanted, err := rundir.ReadSuspend(s.dir)
	if err != nil {
		s.logError(err)
	}

	return order{suspend: wanted}, err == nil && wanted.Number > 0
}

// program lists the processes of the program.
func (s *supervisor) program() ([]process.Process, error) {
	procs, err := s.processes().Find(true)

	return slices.DeleteFunc(procs, func(p process.Process) bool { return p.PID == s.spaceInit }), err
}

// cuda returns the driver's calls for the GPUs of the program, nil if it has none.
func (s *supervisor) cuda() *snapshot.CUDA {
	if s.rec.Fake || len(s.rec.Spec.DeviceNames()) == 0 {
		return nil
	}

	return &snapshot.CUDA{Python: s.rec.Python, Command: s.kids.command}
}

// adjustSuspension carries out the last order to suspend the program or to let it continue, and reports whether it has
// to try again.
func (s *supervisor) adjustSuspension() (again bool) {
	wanted := s.suspendWanted
	if wanted.Number <= s.state.Suspension.Number {
		return false
	}

	ctx, cancel := context.WithTimeout(context.Background(), suspendTimeout)
	defer cancel()

	if wanted.On() {
		s.suspend(ctx, wanted)
		return false
	}

	return s.resume(ctx, wanted)
}

// suspend suspends the program. If it cannot, the program goes on, and the state says why.
func (s *supervisor) suspend(ctx context.Context, wanted job.SuspendOrder) {
	now := job.Suspension{Number: wanted.Number}

	memory, err := s.makeRoom(ctx, wanted.Room)
	if err == nil {
		err = snapshot.Suspend(ctx, s.cuda(), s.program)
	}

	if err != nil {
		s.logError(err)
		s.out.remark("the program could not be suspended: %v", err)
		now.Error = err.Error()

		err = s.group.SetLimit(s.limitOf())
	} else {
		now.On, now.Memory = true, memory
		s.out.remark("suspended in place; its GPU is lent to another job")
	}

	if err != nil {
		s.logError(err)
	}

	s.state.Suspension = now
	s.record()
}

// limitOf returns the memory limit of the run.
func (s *supervisor) limitOf() job.Bytes {
	if s.group == nil {
		return 0
	}

	return s.group.Limit
}

// makeRoom makes sure that the GPU memory of the program fits into host memory, and lets the program have so much more
// of it. It returns how much that is.
func (s *supervisor) makeRoom(ctx context.Context, room job.Bytes) (job.Bytes, error) {
	cuda := s.cuda()
	if cuda == nil {
		return 0, nil
	}

	used, err := cuda.Memory(ctx, s.rec.Spec.DeviceNames())
	if err != nil {
		return 0, err
	}

	free, err := snapshot.HostMemory()
	if err != nil {
		return 0, err
	}

	if free = min(free, int64(room)); used > free {
		return 0, fmt.Errorf("%s of GPU memory do not fit into %s of host memory",
			humanize.Size(job.Bytes(used)), humanize.Size(job.Bytes(free)))
	}

	return job.Bytes(used), s.group.SetLimit(s.limitOf() + job.Bytes(used))
}

// resume lets the program continue, and reports whether that must be tried again: its GPU memory may not be free yet.
func (s *supervisor) resume(ctx context.Context, wanted job.SuspendOrder) (again bool) {
	if err := snapshot.Resume(ctx, s.cuda(), s.program); err != nil {
		s.logError(err)

		if text := err.Error(); text != s.state.Suspension.Error {
			s.out.remark("the program could not be resumed yet: %v", err)
			s.state.Suspension.Error = text
			s.record()
		}

		return true
	}

	if err := s.group.SetLimit(s.limitOf()); err != nil {
		s.logError(err)
	}

	s.out.remark("resumed")
	s.state.Suspension = job.Suspension{Number: wanted.Number}
	s.record()

	return false
}

// wake prepares a suspended program for an order to stop, and reports whether it can still save something: a program
// without its GPU memory cannot, unless it is saved by a snapshot.
func (s *supervisor) wake() (able bool) {
	if !s.state.Suspension.On {
		return true
	}

	if err := snapshot.Continue(s.program); err != nil {
		s.logError(err)
	}

	return s.cuda() == nil
}

// wakeAfter returns a context that ends when a program that could not be resumed tries again, or when the progress of
// an environment is to be recorded, or never.
func (s *supervisor) wakeAfter(again bool) (context.Context, context.CancelFunc) {
	if s.env.making() {
		return context.WithTimeout(context.Background(), environmentEvery)
	}

	if again {
		return context.WithTimeout(context.Background(), resumeRetry)
	}

	return context.WithCancel(context.Background())
}
