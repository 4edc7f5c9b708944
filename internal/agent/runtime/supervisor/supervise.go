// Package supervisor is the process that executes one rank of a run.
//
// Each rank has a supervisor, which the agent starts in its own session, so that runs survive a restart of the agent. A
// supervisor that has ended an ordinary rank may get another one, see RunSeries. It starts the program, writes its
// output, enforces its limits, stops it on request or when the contact lease has expired, and records how it ended. It
// talks to the agent about a rank only through the run directory, see package rundir.
//
// # The end of a run
//
// A rank has ended when none of its processes is left. The supervisor is the child subreaper of all its
// descendants, so a daemonised process still comes back to it: without children it has no descendants. It also
// looks into the rank's cgroup. It reads /proc only to stop processes, so a program that ends by itself costs the
// same however many others the machine has.
//
// SIGTERM goes to the program that the job's script started, not to the program's own children: the program needs
// them while it saves a checkpoint, and forwards the signal if they are to get it. A child whose parent exits gets
// SIGTERM next. After half of the grace period every process that existed when the stop came gets SIGTERM, and at
// its end everything gets SIGKILL until nothing is left. When the program exits by itself, processes it left
// behind get a quarter of a second. Only then is the end written to state.json.
//
// # Scripts
//
// Set-up and command are run by bash -e (sh -e where there is no bash), so that a script of several lines stops at
// the first that fails. Standard input is empty.
//
// # Users
//
// A rank with a user runs its scripts in a sandbox (package sandbox): as that user, without privileges, in
// namespaces of their own and with a view of the run's own folders. The supervisor keeps its rights, and whatever
// it does in folders of the program it does while no process of the program is left, or by paths that the program
// cannot change.
//
// # A full disk
//
// The program keeps running. Output that cannot be written is counted, and a remark in the log says how much is
// missing. State and stop request have reserved room, and a stop signals the program before it writes anything.
//
// The package never talks to the server and never decides what runs.
package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent/runtime/cgroup"
	"trainyard/internal/agent/runtime/process"
	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/agent/sampler"
	"trainyard/internal/clock"
	"trainyard/internal/job"
)

// supervisor executes one rank. All its fields except out, kids, orders and guests belong to the goroutine
// that runs it.
type supervisor struct {
	dir    string // the run directory
	data   string // the data directory
	rec    rundir.Record
	clk    clock.Clock
	boot   *rundir.BootClock
	log    *slog.Logger
	out    *output
	kids   *children
	group  *cgroup.Group
	orders chan order
	stop   order     // the order that is being carried out
	killBy time.Time // when the grace period of an expired contact lease is over; zero if none has expired
	state  rundir.State
	// suspendWanted is the last order to suspend the program or to let it continue.
	suspendWanted job.SuspendOrder
	spaceInit     int            // first process of the program's namespaces, which is not part of the program; 0 if none
	cgroupMoves   sync.WaitGroup // processes that are being moved into the cgroup
	guests        visitors
	container     *rundir.Container // in which the program runs; nil for none
	troubled      atomic.Bool       // an error was logged
	env           *environment      // the Python environment of its scripts; nil for none
}

// Run executes the rank whose run directory is dir and returns the exit status of the process. Only
// main calls it, in a process of its own, before anything else is set up: the process becomes the
// reaper of all its descendants and waits for every child. It returns at once if another supervisor
// has or had the rank.
func Run(ctx context.Context, dir string, stderr io.Writer) int {
	log := slog.New(slog.NewTextHandler(stderr, nil))

	kids, err := newChildren(ctx)
	if err == nil {
		_, err = supervise(ctx, dir, kids, log)
	}

	if err != nil {
		log.Error("supervisor failed", "error", err)
		return 1
	}

	return 0
}

// supervise executes one rank, and reports whether nothing of it is left in this process, see spent.
func supervise(ctx context.Context, dir string, kids *children, log *slog.Logger) (spent bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	lock, mine, err := rundir.TakeLock(dir)
	if err != nil || !mine {
		return false, err
	}

	defer func() { _ = lock.Close() }()

	s := &supervisor{
		dir: dir, data: filepath.Dir(filepath.Dir(dir)), clk: clock.NewSteady(), boot: rundir.NewBootClock(), log: log,
		kids: kids, orders: make(chan order, 4),
	}

	if ok, err := rundir.ReadJSON(filepath.Join(dir, rundir.LaunchFile), &s.rec); err != nil {
		return false, err
	} else if !ok {
		return false, fmt.Errorf("%s not found in %s", rundir.LaunchFile, dir)
	}

	if begun, err := rundir.ReadState(dir, &s.state); err != nil || begun {
		return false, err
	}

	s.state.Status, s.state.Isolated, s.state.Boot = rundir.NewStatus(s.rec.Spec), s.rec.User != nil, s.boot.Boot()
	if err := s.takeContainer(ctx); err != nil {
		return false, err
	}

	s.out, err = openOutput(filepath.Join(dir, rundir.OutputFile), s.rec.Launch.LogLimit, s.clk, s.logError)
	if err != nil {
		return false, err
	}
	if err := s.receiveOrders(ctx); err != nil {
		return false, err
	}

	s.receiveVisitors(ctx)

	if s.rec.MaxDisk > 0 {
		go s.watchDisk(ctx)
	}

	if s.rec.Limits.V2 {
		s.limit() // the program is started inside of it
	}

	// Before anything is started, so that a rank without a record started nothing.
	if err := rundir.WriteState(dir, s.state); err != nil {
		return false, err
	}

	s.notify()
	s.finish(s.begin())

	return s.spent(), nil
}

// begin carries out the launch once the rank has its secrets, and returns how it ended.
func (s *supervisor) begin() rundir.Ending {
	if err := s.takeSecrets(); err != nil {
		return rundir.Ending{Cause: job.CauseLaunchFailed, Reason: fmt.Sprintf("cannot start the program: %v", err)}
	}

	return s.execute()
}

// logError logs an error that does not end the run.
func (s *supervisor) logError(err error) {
	s.troubled.Store(true)
	s.log.Warn("supervisor continues after an error", "error", err)
}

// limit creates the rank's cgroup. If that fails the run continues without limits, and its log says
// so.
func (s *supervisor) limit() {
	if !s.rec.Limits.Usable() || s.group != nil {
		return
	}

	g, err := s.rec.Limits.Create(rundir.GroupName(s.dir), cgroup.Limits{
		Memory: s.rec.Launch.Memory, CPUs: s.rec.Launch.CPUs, PIDs: s.rec.MaxPIDs,
	})
	if err != nil {
		s.logError(err)
		s.out.remark("the limits of this run are not enforced: %v", err)
		return
	}

	s.group, s.state.Group = g, g
}

// execute carries out the launch and returns how it ended.
func (s *supervisor) execute() rundir.Ending {
	if s.stopRequested() {
		return s.neverStarted()
	}

	if s.rec.Launch.Python != nil {
		release, e, ok := s.provideEnvironment()
		defer release()

		if !ok {
			return e
		}
		if s.stopRequested() {
			return s.neverStarted()
		}
	}

	if s.rec.Setup != nil {
		release, e, ok := s.setUp()
		defer release()

		if !ok {
			return e
		}
		if s.stopRequested() {
			return s.neverStarted()
		}
	}

	if err := s.unpackSnapshot(); err != nil {
		return s.notRestored(err)
	}

	if err := s.linkCheckpoints(); err != nil {
		return rundir.Ending{
			Cause:  job.CauseLaunchFailed,
			Reason: fmt.Sprintf("cannot prepare the checkpoint folder: %v", err),
		}
	}

	if len(s.rec.Launch.Nodes) > 1 && !s.awaitGang() {
		return s.neverStarted()
	}

	if err := s.rec.MakeInput(s.dir); err != nil {
		return rundir.Ending{Cause: job.CauseLaunchFailed, Reason: err.Error()}
	}

	r, err := s.runScript(s.rec.Script(), job.RunRunning)
	if err != nil && s.restoredFrom() != "" {
		return s.notRestored(err)
	}
	if err != nil {
		return rundir.Ending{Cause: job.CauseLaunchFailed, Reason: fmt.Sprintf("cannot start the program: %v", err)}
	}

	return s.classify(r)
}

// neverStarted returns the ending of a rank that was asked to stop before its command began.
func (s *supervisor) neverStarted() rundir.Ending {
	return rundir.Ending{Cause: s.stop.cause, Reason: s.stop.reason + " before it was started", Signalled: true}
}

// finish records the ending, which is final: no process of the run is left.
func (s *supervisor) finish(e rundir.Ending) {
	s.cgroupMoves.Wait()
	s.out.close()
	s.state.Silent = s.out.file.size == 0

	used := sampler.Final(s.clk.Now(), s.group, s.kids.takeSpent())
	s.state.Use = &used

	if err := s.group.Remove(); err != nil {
		s.logError(err) // Forget tries again
	}

	if err := rundir.RemoveSecrets(s.dir); err != nil {
		s.logError(err) // Forget removes all of the directory
	}

	e.Reason = s.out.secrets.text(e.Reason)
	s.state.End(e, s.clk.Now())

	// The agent reports the end while it is synced: what it has reported need not survive here.
	err := rundir.WriteFinalState(context.Background(), s.dir, s.state, s.logError, s.notify)
	if err != nil {
		s.logError(err)
		s.notify()
	}
}

// record writes a state in which the run continues and notifies the agent. If it cannot be written the agent sees
// the previous one: nothing waits for it.
func (s *supervisor) record() {
	if err := rundir.WriteState(s.dir, s.state); err != nil {
		s.logError(err)
	}

	s.notify()
}

// notify wakes the agent.
func (s *supervisor) notify() {
	if err := rundir.Poke(filepath.Join(s.data, rundir.EventsPipe), filepath.Base(s.dir)+"\n"); err != nil {
		s.logError(err)
	}
}

// endLeftovers ends every process that a script has left behind and returns when none is left.
func (s *supervisor) endLeftovers() { s.terminateAndKill(rundir.LeftoverGrace, func() {}) }

// stopProcesses carries out an order to stop and reports whether any process had to be killed. The state is
// recorded after the first signals, because a write may fail or hang.
func (s *supervisor) stopProcesses(grace time.Duration) (killed bool) {
	var once sync.Once
	record := func() { once.Do(s.stopping) }
	killed = s.terminateAndKill(grace, record)
	record() // if there was nothing to signal

	return killed
}

// terminateAndKill ends every process of the run and returns when none is left. SIGTERM goes first to the processes
// without a parent in the run (see process.Stopping), after half of the grace period to all; at its end SIGKILL is
// sent until nothing is left. An order to kill ends the grace period at once. It reports whether any process had to
// be killed. It calls signalled after each round of signals.
func (s *supervisor) terminateAndKill(grace time.Duration, signalled func()) (killed bool) {
	if s.gone() {
		return false
	}

	q := s.processes()
	deadline := s.clk.Now().Add(grace)
	var stopping process.Stopping
	looked := false
	wait, warned := time.Millisecond, false

	for !s.gone() {
		now := s.clk.Now()
		if !s.killBy.IsZero() && s.killBy.Before(deadline) {
			deadline = s.killBy
		}

		left := deadline.Sub(now)
		if s.stop.mode == job.StopKill || left <= 0 {
			killed = true
			s.signal(q, unix.SIGKILL)
			left = wait
			wait = min(2*wait, 50*time.Millisecond)
		} else {
			all := left <= grace/2
			s.terminate(q, &stopping, !looked || all, all)
			looked = true
		}

		signalled()

		if !warned && now.Sub(deadline) > 10*time.Second {
			warned = true
			s.out.remark("waiting for processes that do not exit although they were killed")
		}

		s.await(min(left, 100*time.Millisecond))
	}

	return killed
}

// processes identifies the processes of the rank.
func (s *supervisor) processes() rundir.Processes {
	return rundir.Processes{Dir: s.dir, Group: s.group, Root: os.Getpid(), Isolated: s.rec.User != nil}
}

// gone reports whether no process of the run is left. This process is the subreaper of all its descendants: if it has
// no children, no process that the run has started is left, wherever it went. Somebody else may have put one into the
// cgroup. An isolated program cannot leave its namespaces, and the kernel has ended all of them with their first
// process, which was a child of this one.
func (s *supervisor) gone() bool {
	return s.kids.reap() && (s.rec.User != nil || len(s.group.Procs()) == 0)
}

// terminate sends SIGTERM to the processes that process.Stopping selects.
func (s *supervisor) terminate(q rundir.Processes, stopping *process.Stopping, deep, all bool) {
	procs, err := q.Find(deep)
	procs = slices.DeleteFunc(procs, func(p process.Process) bool { return p.PID == s.spaceInit })
	errs := []error{err}
	relations := process.Relations{Shell: process.Process.Shell, ReadsFrom: process.Process.ReadsFrom}
	for _, p := range stopping.Next(procs, relations, all) {
		errs = append(errs, p.Signal(unix.SIGTERM), p.Signal(unix.SIGCONT)) // wakes a stopped process
	}

	if err := errors.Join(errs...); err != nil {
		s.logError(err)
	}
}

// signal sends a signal to all processes of the run.
func (s *supervisor) signal(q rundir.Processes, sig unix.Signal) {
	if _, err := q.Signal(sig, true); err != nil {
		s.logError(err)
	}
}

// await waits until a child ends, an order arrives or d has passed.
func (s *supervisor) await(d time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()

	select {
	case <-s.kids.changed:
	case o := <-s.orders:
		s.accept(o)
	case <-ctx.Done():
	}
}
