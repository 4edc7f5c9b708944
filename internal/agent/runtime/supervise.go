package runtime

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent/runtime/cgroup"
	"trainyard/internal/agent/runtime/fifo"
	"trainyard/internal/agent/runtime/process"
	"trainyard/internal/clock"
	"trainyard/internal/job"
)

// Subcommand is the hidden subcommand under which main calls Supervise.
const Subcommand = "supervise"

// leftoverGrace is what processes get that a program leaves behind when it ends.
const leftoverGrace = 250 * time.Millisecond

// supervisor carries out one rank. All its fields but out, kids and orders
// belong to the goroutine that runs it.
type supervisor struct {
	dir    string // the run directory
	data   string // the data directory
	rec    record
	clk    clock.Clock
	log    *slog.Logger
	out    *output
	kids   *children
	group  *cgroup.Group
	orders chan order
	stop   order // the one that is obeyed
	state  state
	moving sync.WaitGroup // processes on their way into the cgroup
}

// Supervise carries out the rank whose run directory is dir and returns the exit
// status for the process. It is called by main alone, in a process of its own,
// before anything else is set up: it becomes the reaper of all descendants and
// waits for every child. It returns at once if another supervisor has the rank, or had it.
func Supervise(ctx context.Context, dir string, stderr io.Writer) int {
	log := slog.New(slog.NewTextHandler(stderr, nil))
	if err := supervise(ctx, dir, log); err != nil {
		log.Error("supervisor failed", "error", err)
		return 1
	}
	return 0
}

func supervise(ctx context.Context, dir string, log *slog.Logger) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lock, mine, err := takeLock(dir)
	if err != nil || !mine {
		return err
	}
	defer func() { _ = lock.Close() }()
	s := &supervisor{
		dir: dir, data: filepath.Dir(filepath.Dir(dir)), clk: clock.Wall{}, log: log,
		orders: make(chan order, 4),
	}
	if ok, err := readJSON(filepath.Join(dir, launchFile), &s.rec); err != nil {
		return err
	} else if !ok {
		return fmt.Errorf("there is no %s in %s", launchFile, dir)
	}
	if begun, err := readJSON(filepath.Join(dir, stateName), &s.state); err != nil || begun {
		return err
	}
	s.state.Status = statusOf(s.rec.Spec)
	if s.kids, err = newChildren(ctx); err != nil {
		return err
	}
	if s.out, err = openOutput(filepath.Join(dir, outputFile), s.rec.Launch.LogLimit, s.clk, s.complain); err != nil {
		return err
	}
	if err := s.listen(ctx); err != nil {
		return err
	}
	s.limit()
	s.record() // before anything is started: without a record nothing was
	s.finish(s.perform())
	return nil
}

// statusOf is that of a rank of which nothing has happened yet.
func statusOf(s Spec) Status {
	return Status{Run: s.Run, Rank: s.Rank, Job: s.Job, Epoch: s.Epoch, State: job.RunPreparing}
}

// complain logs an error that does not end the run.
func (s *supervisor) complain(err error) {
	s.log.Warn("supervisor goes on after an error", "error", err)
}

// limit makes the rank's cgroup. Without one the run goes on and says so.
func (s *supervisor) limit() {
	if !s.rec.Limits.Usable() {
		return
	}
	g, err := s.rec.Limits.Create(groupName(s.dir), s.rec.Launch.Memory, s.rec.Launch.CPUs)
	if err != nil {
		s.complain(err)
		s.out.remark("the limits of this run are not enforced: %v", err)
		return
	}
	s.group, s.state.Group = g, g
}

// perform does what the launch says and returns how it ended.
func (s *supervisor) perform() ending {
	if s.toldToStop() {
		return s.neverStarted()
	}
	if s.rec.Setup != nil {
		release, e, ok := s.setUp()
		defer release()
		if !ok {
			return e
		}
		if s.toldToStop() {
			return s.neverStarted()
		}
	}
	if err := s.linkCheckpoints(); err != nil {
		return ending{cause: job.CauseLaunchFailed, reason: fmt.Sprintf("cannot prepare the checkpoint folder: %v", err)}
	}
	r, err := s.carryOut(s.rec.Launch.Command, job.RunRunning)
	if err != nil {
		return ending{cause: job.CauseLaunchFailed, reason: fmt.Sprintf("cannot start the program: %v", err)}
	}
	return s.judge(r)
}

// neverStarted is the end of a rank that was told to stop before its command began.
func (s *supervisor) neverStarted() ending {
	return ending{cause: s.stop.cause, reason: s.stop.reason + " before it was started", signalled: true}
}

// finish writes the end, which is final: nothing of the run is left.
func (s *supervisor) finish(e ending) {
	s.moving.Wait()
	s.out.close()
	if err := s.group.Remove(); err != nil {
		s.complain(err) // Forget tries again
	}
	s.state.end(e, s.clk.Now())
	s.record()
}

// record writes the state and tells the agent.
func (s *supervisor) record() {
	if err := writeState(context.Background(), s.dir, s.state, s.complain); err != nil {
		s.complain(err)
	}
	if err := fifo.Poke(filepath.Join(s.data, eventsPipe), filepath.Base(s.dir)+"\n"); err != nil {
		s.complain(err)
	}
}

// clear ends every process of the run and returns when none is left: SIGTERM to those that nobody
// in the run looks after, see process.Stopping, and at half of the grace period to all; at its end SIGKILL as often
// as it takes. An order to kill cuts the grace short. It reports whether anything had to be killed.
func (s *supervisor) clear(grace time.Duration) (killed bool) {
	q := quarry{dir: s.dir, group: s.group, root: os.Getpid()}
	if s.gone(q) {
		return false
	}
	deadline := s.clk.Now().Add(grace)
	var stopping process.Stopping
	looked := false
	wait, warned := time.Millisecond, false
	for !s.gone(q) {
		now := s.clk.Now()
		left := deadline.Sub(now)
		if s.stop.mode == job.StopKill || left <= 0 {
			killed = true
			s.signal(q, unix.SIGKILL)
			left = wait
			wait = min(2*wait, 50*time.Millisecond)
		} else {
			all := left <= grace/2
			s.tell(q, &stopping, !looked || all, all)
			looked = true
		}
		if !warned && now.Sub(deadline) > 10*time.Second {
			warned = true
			s.out.remark("waiting for processes that do not end although they were killed")
		}
		s.await(min(left, 100*time.Millisecond))
	}
	return killed
}

// gone reports whether no process of the run is left.
func (s *supervisor) gone(q quarry) bool {
	if !s.kids.reap() {
		return false
	}
	outside, err := q.find(true)
	if err != nil {
		s.complain(err)
	}
	return err == nil && len(outside) == 0
}

// tell sends SIGTERM to those whose turn it is.
func (s *supervisor) tell(q quarry, stopping *process.Stopping, deep, all bool) {
	procs, err := q.find(deep)
	errs := []error{err}
	for _, p := range stopping.Next(procs, process.Kin{Shell: process.Process.Shell, Hears: process.Process.Hears}, all) {
		errs = append(errs, p.Signal(unix.SIGTERM), p.Signal(unix.SIGCONT)) // a stopped process must see it
	}
	if err := errors.Join(errs...); err != nil {
		s.complain(err)
	}
}

// signal sends a signal to all processes of the run.
func (s *supervisor) signal(q quarry, sig unix.Signal) {
	if _, err := q.signal(sig, true); err != nil {
		s.complain(err)
	}
}

// await returns when a child has ended, an order has come or d has passed.
func (s *supervisor) await(d time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	select {
	case <-s.kids.changed:
	case o := <-s.orders:
		s.take(o)
	case <-ctx.Done():
	}
}
