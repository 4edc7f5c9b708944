package runtime

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent/runtime/process"
	"trainyard/internal/agent/runtime/rundir"
)

// supervisor is a process that supervises ranks and that this agent process has started.
type supervisor struct {
	cmd *exec.Cmd
	// series gives it one rank after the other, see supervisor.RunSeries; nil if it has one only.
	series *os.File
	used   bool // it had another rank before
}

func (s *supervisor) pid() int { return s.cmd.Process.Pid }

// supervisorRest is for how long a supervisor without a rank stays: the next rank then finds it.
const supervisorRest = time.Second

// exitPatience is for how long Close waits for the exit of a process that has nothing left to do. Only one that is
// suspended, or a machine that is very busy, takes so long.
const exitPatience = 10 * time.Second

// ordinary reports whether the supervisor of a rank can be that of others too: nothing is passed to it but the run
// directory, and no other program works on its processes.
func ordinary(rk *rank) bool {
	return len(rk.rec.Launch.Secrets) == 0 && rk.rec.Launch.Image == "" && !rk.rec.Launch.Snapshot
}

// supervise gives a prepared rank a supervisor, and monitors it to the end. It fails if the rank gets none.
func (r *Runtime) supervise(rk *rank) error {
	s, ok := r.takeSpare(rk)
	if !ok {
		var err error

		s, err = r.spawn(rk)
		if err != nil {
			return err
		}
	}

	rk.releaseContainer() // the supervisor has it now
	r.watch(rk, s.pid())

	again := r.awaitRank(s)

	switch {
	case again:
		r.tasks.Go(func() { r.keepSpare(s) })
	case r.ctx.Err() == nil && s.used && r.untaken(rk): // it ended before it noticed that there is a rank
		return r.supervise(rk)
	}

	if r.ctx.Err() == nil { // else the next agent process adopts it, whether or not the supervisor has taken the rank
		r.monitor(rk)
	}

	return nil
}

// spawnSeries starts a supervisor that can have other ranks after this one.
func (r *Runtime) spawnSeries(rk *rank) (*supervisor, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("start the supervisor: %w", err)
	}

	theirs := os.NewFile(uintptr(pair[1]), "agent")

	defer func() { _ = theirs.Close() }()

	if err := unix.SetNonblock(pair[0], true); err != nil { // so that Close ends a Read
		return nil, errors.Join(fmt.Errorf("start the supervisor: %w", err), unix.Close(pair[0]))
	}

	s := &supervisor{series: os.NewFile(uintptr(pair[0]), "supervisor")}

	s.cmd, err = r.startSupervisor(rk, stdio{input: theirs}, rundir.SeriesSubcommand)
	if err != nil {
		return nil, errors.Join(err, s.series.Close())
	}

	return s, nil
}

// takeSpare gives a rank to a supervisor that waits for one, and reports false if none does.
func (r *Runtime) takeSpare(rk *rank) (*supervisor, bool) {
	if !ordinary(rk) {
		return nil, false
	}

	for {
		select {
		case s := <-r.spare:
			s.used = true
			if _, err := io.WriteString(s.series, rk.name+"\n"); err == nil {
				return s, true
			}

			r.dismiss(s) // it was killed
		default:
			return nil, false
		}
	}
}

// awaitRank waits until the rank of a supervisor has ended, or Close is called, and reports whether the supervisor can
// have another one. One that cannot has exited then.
func (r *Runtime) awaitRank(s *supervisor) (again bool) {
	if s.series != nil {
		stop := context.AfterFunc(r.ctx, func() { _ = s.series.Close() })
		n, _ := s.series.Read(make([]byte, 1)) // fails when it exits

		if stop() && n == 1 {
			return true
		}

		_ = s.series.Close()
	}

	if r.awaitExit(s.pid()) {
		r.reap(s)
	}

	return false
}

// reap takes note of how a supervisor has exited.
func (r *Runtime) reap(s *supervisor) {
	if err := s.cmd.Wait(); err != nil {
		r.log.Warn("supervisor failed", "error", err)
	}
}

// untaken reports whether no supervisor has taken a rank. An error is left to who monitors the rank. One that has ended
// may be forgotten already, with its directory.
func (r *Runtime) untaken(rk *rank) bool {
	if r.hasEnded(rk) {
		return false
	}

	var st rundir.State
	begun, err := rundir.ReadState(rk.dir, &st)

	return !begun && err == nil
}

// keepSpare keeps a supervisor for the next rank, and ends it if there is none for a while.
func (r *Runtime) keepSpare(s *supervisor) {
	rest, cancel := context.WithTimeout(r.ctx, r.spareRest)
	defer cancel()

	select {
	case r.spare <- s:
	case <-rest.Done():
		r.dismiss(s)
	}
}

// dismiss ends a supervisor without a rank. It is waited for, so that nothing is left of the agent after Close, but not
// if it is suspended.
func (r *Runtime) dismiss(s *supervisor) {
	_ = s.series.Close()

	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), exitPatience)
	defer cancel()

	if r.awaitExit(s.pid()) || process.AwaitExit(ctx, s.pid()) {
		r.reap(s)
	}
}
