package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent/runtime/process"
	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/agent/sandbox"
	"trainyard/internal/agent/snapshot"
	"trainyard/internal/clock"
	"trainyard/internal/job"
	"trainyard/internal/logs"
)

// drainTime is how long to wait for output if a process outside the run holds its pipes open.
const drainTime = 2 * time.Second

// script is a running script.
type script struct {
	pid     int
	exit    <-chan syscall.WaitStatus
	pumping sync.WaitGroup
	pipes   []*os.File      // reading ends
	space   *sandbox.Space  // in which it runs; nil if it runs as the supervisor does
	program sandbox.Program // what runs there
	saver   *snapshot.Space // the same, if snapshots of it can be taken
	visited bool            // people may start processes beside it
}

// runScript runs a script until it ends by itself or an order stops it. It returns when none of its
// processes is left and its output is written. While the script runs the rank is in state during.
func (s *supervisor) runScript(text string, during job.RunState) (result, error) {
	group, before := s.group, s.oomKills()

	// Taken before the launch: what the script writes at once must not look older than the script.
	begun := s.clk.Now()
	p, err := s.launch(text, during)
	if err != nil {
		return result{}, err
	}

	s.running(p.pid, during, begun)
	p.visited = during == job.RunRunning

	r := s.awaitScript(p)

	if !r.signalled && s.killedByWatcher(r.status) {
		r.signalled, r.forced = true, true
	}

	if s.group != group {
		before = 0 // the cgroup is of this script
	}

	// Without a cgroup the count may be about other processes.
	if s.group != nil || r.status.Signaled() && r.status.Signal() == unix.SIGKILL {
		r.oomKills = s.oomKills() - before
	}

	s.drain(p)
	if p.space != nil {
		if err := p.space.Close(); err != nil {
			s.logError(err)
		}
	}

	return r, nil
}

// awaitScript waits until a script has ended by itself or was stopped by an order. Meanwhile it limits the program,
// suspends it and lets it continue, as it is ordered.
func (s *supervisor) awaitScript(p *script) (r result) {
	due, cancel := context.WithTimeout(context.Background(), limitAfter)
	defer cancel()

	limiting := due.Done()
	for {
		ctx, cancel := s.wakeAfter(s.adjustSuspension())

		select {
		case r.status = <-p.exit:
			cancel()
			s.guests.dismiss("the program has ended", s.logError)
			s.endLeftovers()

			return r
		case o := <-s.orders:
			s.accept(o)
		case <-limiting:
			limiting = nil
			s.limitV1(p.pid)

			if p.visited { // now that it has its cgroup, which they share
				s.guests.admit(s.houseOf(p))
			}
		case <-ctx.Done():
			if s.env.making() {
				s.showProgress()
			}
		}

		cancel()

		if s.stop.mode != job.StopNone {
			return s.stopScript(p)
		}
	}
}

// stopScript carries out an order to stop a script, unless it has ended just before.
func (s *supervisor) stopScript(p *script) (r result) {
	s.kids.reap()
	s.guests.dismiss("the run is being stopped: "+s.stop.reason, s.logError)

	select {
	case r.status = <-p.exit: // it ended before the order took effect
		s.endLeftovers()
	default:
		r.signalled = true
		s.halt(p, &r)
		r.status = <-p.exit
	}

	return r
}

// running records that a process of the rank runs, and since when.
func (s *supervisor) running(pid int, st job.RunState, begun time.Time) {
	s.state.State, s.state.PID = st, pid
	if p, ok := process.Read(pid); ok {
		s.state.Begun = p.Started
	}

	if st == job.RunRunning {
		s.state.Started = begun
	}

	s.record()
}

// stopping records that the run was asked to stop.
func (s *supervisor) stopping() {
	s.out.remark("%s: ending all processes of this run", s.stop.reason)
	s.state.State, s.state.Reason = job.RunStopping, s.stop.reason
	s.record()
}

// killedByWatcher reports whether a program was killed because its contact lease had expired and this process did
// not stop it in time, as when it was suspended. The stop is then accepted as the cause of the end.
func (s *supervisor) killedByWatcher(status syscall.WaitStatus) bool {
	if !status.Signaled() || status.Signal() != unix.SIGKILL {
		return false
	}

	o, expired := s.expiredLease()
	if expired {
		s.accept(o)
	}

	return expired
}

// halt carries out an order to stop.
func (s *supervisor) halt(p *script, r *result) {
	grace := s.stop.grace(s.rec.Launch.Grace)
	able := s.wake()

	if s.stop.mode == job.StopDump && p.saver != nil {
		begin := s.clk.Now()
		r.saved = s.dump(p, grace)
		grace = max(grace-s.clk.Now().Sub(begin), 0)
	}

	if r.saved {
		s.endLeftovers()
		return
	}

	if !able { // it would wait for its GPU memory
		s.out.remark("%s: killed, because it is suspended and its GPU is lent to another job", s.stop.reason)
		s.stop.mode = job.StopKill
	}

	r.forced = s.stopProcesses(grace)
}

// launch starts a script in the working directory, in its own session, for a rank that will be in state during.
func (s *supervisor) launch(text string, during job.RunState) (*script, error) {
	shell, err := s.shell()
	if err != nil {
		return nil, err
	}

	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}

	defer func() { _ = null.Close() }()

	outR, outW, err := os.Pipe()
	if err != nil {
		return nil, err
	}

	defer func() { _ = outW.Close() }()

	errR, errW, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, outR.Close())
	}

	defer func() { _ = errW.Close() }()

	attr := &syscall.ProcAttr{
		Dir:   filepath.Join(s.dir, rundir.WorkDir),
		Env:   s.rec.Env,
		Files: []uintptr{null.Fd(), outW.Fd(), errW.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	}

	if s.env.making() {
		// If this process is killed, nobody else makes the environment before the processes that do so now are gone.
		attr.Files = append(attr.Files, s.env.maker.Fd())
	}

	leave, err := s.enterV2(attr.Sys)
	if err != nil {
		return nil, errors.Join(err, outR.Close(), errR.Close())
	}

	defer leave()

	s.out.resetTail()
	p := &script{pipes: []*os.File{outR, errR}}
	args := []string{filepath.Base(shell), "-e", "-c", text}
	if s.saveable(during) || s.rec.User != nil {
		err = s.enterSpace(p, sandbox.Program{Path: shell, Args: args}, *attr.Sys, [2]*os.File{outW, errW}, during)
	} else if p.pid, p.exit, err = s.kids.start(shell, args, attr); err != nil {
		err = fmt.Errorf("start %s in %s: %w", shell, attr.Dir, err)
	}

	if err != nil {
		return nil, errors.Join(err, outR.Close(), errR.Close())
	}

	p.pumping.Go(func() { s.out.pump(outR, logs.Stdout) })
	p.pumping.Go(func() { s.out.pump(errR, logs.Stderr) })

	return p, nil
}

// shell returns the path of the shell that runs scripts, "" for that of the container.
func (s *supervisor) shell() (string, error) {
	if s.container != nil {
		return "", nil
	}

	return sandbox.FindShell()
}

// enterV2 starts the process inside its cgroup, if the kernel supports that.
func (s *supervisor) enterV2(attr *syscall.SysProcAttr) (func(), error) {
	if s.group == nil || !s.group.V2 {
		return func() {}, nil
	}

	dir, err := os.Open(s.group.Memory)
	if err != nil {
		return nil, fmt.Errorf("open the run's cgroup: %w", err)
	}

	attr.UseCgroupFD, attr.CgroupFD = true, int(dir.Fd())

	return func() { _ = dir.Close() }, nil
}

// limitAfter is how long a program runs before it gets its v1 cgroup. To make one in each tree of the kernel, to move
// the program there and to remove them again takes longer than many short programs run. A v2 cgroup needs no move and
// is there before the program.
const limitAfter = 20 * time.Millisecond

// limitV1 gives the rank its v1 cgroup and moves its processes into it. The cgroup is recorded before there is a
// process in it. The moves are made beside, because the first one on an idle machine can take the kernel many
// milliseconds. A process that is forked meanwhile is found by the next pass.
func (s *supervisor) limitV1(program int) {
	if s.rec.Limits.V2 {
		return
	}

	if s.group == nil {
		s.limit()

		if s.group == nil {
			return
		}

		s.record()
	}

	s.cgroupMoves.Go(func() {
		moved := map[int]bool{} // one that is not inside though it was moved has ended

		for range 100 {
			procs, err := process.Family(program, os.Getpid())
			if err != nil {
				s.logError(err)
				return
			}

			inside := s.group.Procs()

			var outside []int
			for _, pid := range procs {
				if !inside[pid] && !moved[pid] {
					outside = append(outside, pid)
					moved[pid] = true
				}
			}

			if len(outside) == 0 {
				return
			}

			if err := s.group.Add(outside); err != nil {
				s.logError(err)
				s.out.remark("the limits of this run are not enforced: %v", err)
				return
			}
		}
	})
}

// drain waits until all output is written. All processes of the run are gone, so the pipes are at
// their end, unless a process outside the run holds one open.
func (s *supervisor) drain(p *script) {
	for _, pipe := range p.pipes {
		if err := pipe.SetReadDeadline(clock.Deadline(drainTime)); err != nil {
			s.logError(err)
		}
	}

	p.pumping.Wait()

	for _, pipe := range p.pipes {
		if err := pipe.Close(); err != nil {
			s.logError(err)
		}
	}
}
