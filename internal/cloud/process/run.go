package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	goruntime "runtime"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"trainyard/internal/clock"
	"trainyard/internal/cloud"
	"trainyard/internal/job"
)

// Subcommand is the hidden subcommand under which main calls Machine.
const Subcommand = "machine"

const (
	lockFD    = 3 // the machine is born with its lock
	lookEvery = time.Second
	// An agent that fails, as one does whose server is away, is started again.
	againFirst = time.Second
	againMost  = 10 * time.Second
	// signOffMost is how long a machine tries to write its end down.
	signOffMost = 30 * time.Second
)

// Machine is a machine: it boots, runs an agent, and ends when it is told to, when its time
// is over, when it is taken back, or when its agent ends of its own accord. Everything
// that was started in it ends with it. It is called by main alone, in a process of its
// own that a provider has started in the machine's folder, before anything else is set
// up: it becomes the reaper of all descendants and waits for every child.
func Machine(ctx context.Context, stderr io.Writer) int {
	log := slog.New(slog.NewTextHandler(stderr, nil))
	dir, err := os.Getwd()

	var b *box
	if err == nil {
		b, err = power(dir, log)
	}

	if err == nil {
		why := b.live(ctx)
		log.Info("machine shuts down", "why", why)

		if err = b.clear(ctx); err == nil {
			err = b.signOff(ctx, why)
		}
	}

	if err != nil {
		log.Error("machine failed", "error", err)
		return 1
	}

	return 0
}

// box is a machine from within. Its fields but told and woken belong to the goroutine that runs it.
type box struct {
	*machine
	clk   clock.Clock
	log   *slog.Logger
	lock  *os.File
	first cloud.Deadline // until the agent says another
	agent int            // the process of the agent, 0 if there is none
	fails int            // of the agent, in a row
	over  bool           // the agent has ended and shall not be started again
	next  time.Duration  // since boot of the host: the agent is started then

	shutdown atomic.Bool   // to end
	woken    chan struct{} // something has happened; holds at most one
}

// power makes this process a machine.
func power(dir string, log *slog.Logger) (*box, error) {
	goruntime.LockOSThread() // the kernel ends the agent with the thread that started it
	m, err := readMachine(dir)
	if err != nil {
		return nil, err
	}
	if m == nil {
		return nil, fmt.Errorf("no machine in %s", dir)
	}

	lock, err := bornWith(filepath.Join(dir, lockFile))
	if err != nil {
		return nil, err
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("become the child subreaper: %w", err)
	}
	if err := m.writePID(os.Getpid()); err != nil {
		return nil, err
	}

	b := &box{machine: m, clk: clock.Wall{}, log: log, lock: lock, woken: make(chan struct{}, 1)}
	now, err := cloud.MomentOf(b.clk)
	if err != nil {
		return nil, err
	}

	b.first = now.In(m.Until.Sub(now.Wall))
	b.next = now.Since + min(max(m.Boot-now.Wall.Sub(m.Launched), 0), m.Boot)
	b.listen()

	return b, nil
}

// bornWith returns the lock that this process got from the one that started it.
func bornWith(path string) (*os.File, error) {
	var mine, there unix.Stat_t
	if err := unix.Stat(path, &there); err != nil {
		return nil, fmt.Errorf("find the machine's lock: %w", err)
	}
	if err := unix.Fstat(lockFD, &mine); err != nil || mine.Ino != there.Ino || mine.Dev != there.Dev {
		return nil, errors.New("only a provider starts a machine")
	}

	unix.CloseOnExec(lockFD) // else the agent would have it too

	return os.NewFile(lockFD, path), nil
}

// listen takes note of signals: of children, and to end.
func (b *box) listen() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGCHLD, unix.SIGTERM, unix.SIGINT)

	go func() {
		for sig := range signals {
			if sig != unix.SIGCHLD {
				b.shutdown.Store(true)
			}

			select {
			case b.woken <- struct{}{}:
			default:
			}
		}
	}()
}

// live looks after the agent until the machine shall end, and returns why.
func (b *box) live(ctx context.Context) string {
	for {
		b.reap()
		now, err := cloud.MomentOf(b.clk)
		if err != nil {
			b.log.Error("cannot read the machine's clock", "error", err)
			return whyCrashed
		}

		if why := b.end(now); why != "" {
			return why
		}

		wait := lookEvery
		if b.agent == 0 {
			wait = min(wait, b.next-now.Since)
			if wait <= 0 {
				b.boot(ctx, now)
				continue
			}
		}

		clock.Wait(ctx, wait, b.woken)
	}
}

// end says why the machine shall end now, "" if it shall not.
func (b *box) end(now cloud.Moment) string {
	asked := order{Why: whyTerminated}
	ordered, err := readJSON(filepath.Join(b.dir, endingFile), &asked)
	if err != nil {
		b.log.Error("machine received an unreadable deadline", "error", err)
	}

	switch {
	case b.shutdown.Load() || ordered: // a signal may have come before it was listened for
		return asked.Why
	case !b.has(recordFile):
		return whyCrashed // the cloud was removed from under it
	case !b.ReclaimAt.IsZero() && !now.Wall.Before(b.ReclaimAt):
		return whySpot
	case b.over:
		return whyAgent
	case b.deadline().Remaining(now) <= -b.Slack:
		return whyDeadline
	}

	return ""
}

// deadline is what the agent's file says, or while there is none, what was asked for.
func (b *box) deadline() cloud.Deadline {
	text, err := os.ReadFile(filepath.Join(b.dir, dataDir, "agent", cloud.DeadlineFile))
	if err != nil {
		return b.first
	}

	d, err := cloud.ParseDeadline(string(text))
	if err != nil {
		return b.first
	}

	return d
}

// boot starts the agent. What keeps it from starting keeps it for a while only.
func (b *box) boot(ctx context.Context, now cloud.Moment) {
	args := []string{"agent", "join", b.Server, "--config", filepath.Join(b.dir, agentFile)}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), b.Program, args...)
	cmd.Dir = b.dir
	cmd.Stdout = os.Stdout
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	err := cmd.Start()
	if err == nil {
		b.agent = cmd.Process.Pid
		err = cmd.Process.Release() // reap waits for it
	}

	if err == nil {
		err = os.WriteFile(filepath.Join(b.dir, upFile), nil, 0o600)
	}

	if err != nil {
		b.failed(now, err.Error())
	}
}

// failed makes the agent be started again, later each time.
func (b *box) failed(now cloud.Moment, why string) {
	b.fails++
	b.next = now.Since + job.Backoff(b.fails, againFirst, againMost)
	b.log.Warn("agent failed, restarting it", "why", why, "times", b.fails)
}

// reap takes note of all children that have ended, and reports whether none is left: as
// all descendants come to this process in the end, none is left below it then.
func (b *box) reap() bool {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil:
			return true // ECHILD is the only other error
		case pid == 0:
			return false
		}

		if pid == b.agent {
			b.agentEnded(status)
		}
	}
}

// agentEnded decides what the end of the agent means. One that ends in order, as at the end of
// its lease, or that is killed takes the machine with it; one that fails is started
// again, as the service of a real machine is.
func (b *box) agentEnded(status syscall.WaitStatus) {
	b.agent = 0
	now, err := cloud.MomentOf(b.clk)
	if err != nil || !status.Exited() || status.ExitStatus() == 0 {
		b.log.Info("agent exited", "exit", status.ExitStatus(), "signal", status.Signal())
		b.over = true
		return
	}

	b.failed(now, fmt.Sprintf("exit status %d", status.ExitStatus()))
}

// clear ends everything that runs in the machine: with SIGTERM, and after the grace period
// with SIGKILL until nothing is left.
func (b *box) clear(ctx context.Context) error {
	for gone := time.Duration(0); !b.reap(); gone += killLook {
		if gone > b.Grace+killMost {
			return errors.New("processes of the machine do not exit")
		}

		all, err := descendants()
		if err != nil {
			return err
		}

		for _, pid := range all {
			switch {
			case gone > b.Grace:
				kill(pid, unix.SIGKILL)
			case gone == 0:
				kill(pid, unix.SIGTERM)
			}
		}

		clock.Sleep(ctx, killLook)
	}

	return nil
}

// signOff writes the end down. If that cannot be done the provider finds the machine
// dead and does it.
func (b *box) signOff(ctx context.Context, why string) error {
	at := b.clk.Now()
	ctx, cancel := context.WithTimeout(ctx, signOffMost)
	defer cancel()

	a := &account{dir: filepath.Dir(filepath.Dir(b.dir))}
	unlock, err := a.lock(ctx)
	if err != nil {
		return err
	}

	defer unlock()

	return a.end(b.machine, at, why)
}
