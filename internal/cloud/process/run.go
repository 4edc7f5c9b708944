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
	lockFD    = 3 // descriptor of the inherited lock
	lookEvery = time.Second
	// An agent that fails, for instance because its server is down, is started again.
	againFirst = time.Second
	againMost  = 10 * time.Second
	// signOffMost is how long a machine tries to record its end.
	signOffMost = 30 * time.Second
)

// Machine is the main function of a machine's process: it boots, runs an agent, and ends when it is
// asked to, when its time is over, when it is reclaimed, or when its agent exits by itself.
// Everything that was started in it ends with it. Only main calls it, in a process of its own that
// a provider started in the machine's directory, before anything else is set up: the process
// becomes the reaper of all its descendants and waits for every child.
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

// box is the state of a machine inside its own process. All fields except shutdown and woken belong
// to the goroutine that runs it.
type box struct {
	*machine
	clk   clock.Clock
	log   *slog.Logger
	lock  *os.File
	first cloud.Deadline // until the agent sets another
	agent int            // PID of the agent, 0 if it is not running
	fails int            // consecutive failures of the agent
	over  bool           // the agent has ended and must not be started again
	next  time.Duration  // next start of the agent, as time since the boot of the host

	shutdown atomic.Bool   // the machine is to end
	woken    chan struct{} // wakes the loop; buffer of one
}

// power turns this process into a machine.
func power(dir string, log *slog.Logger) (*box, error) {
	goruntime.LockOSThread() // the kernel ends the agent together with the thread that started it
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
	now, err := cloud.MomentOf()
	if err != nil {
		return nil, err
	}

	b.first = now.In(m.Until.Sub(now.Wall))
	b.next = now.Since + min(max(m.Boot-now.Wall.Sub(m.Launched), 0), m.Boot)
	b.listen()

	return b, nil
}

// bornWith returns the lock that this process inherited from the one that started it.
func bornWith(path string) (*os.File, error) {
	var mine, there unix.Stat_t
	if err := unix.Stat(path, &there); err != nil {
		return nil, fmt.Errorf("find the machine's lock: %w", err)
	}
	if err := unix.Fstat(lockFD, &mine); err != nil || mine.Ino != there.Ino || mine.Dev != there.Dev {
		return nil, errors.New("only a provider starts a machine")
	}

	unix.CloseOnExec(lockFD) // otherwise the agent would inherit it too

	return os.NewFile(lockFD, path), nil
}

// listen handles signals: the end of children, and requests to end.
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

// live runs the agent until the machine must end, and returns the reason.
func (b *box) live(ctx context.Context) string {
	for {
		b.reap()
		now, err := cloud.MomentOf()
		if err != nil {
			b.log.Error("cannot read the machine's clock", "error", err)
			return whyCrashed
		}

		b.warn(now)

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

// warn gives notice of the time at which the machine is reclaimed by chance.
func (b *box) warn(now cloud.Moment) {
	if b.Notice == 0 || b.ReclaimAt.IsZero() || now.Wall.Before(b.ReclaimAt.Add(-b.Notice)) {
		return
	}

	if err := b.giveNotice(b.ReclaimAt); err != nil {
		b.log.Error("machine got no notice", "error", err)
	}
}

// reclaimed reports whether the time of a notice has come.
func (b *box) reclaimed(now cloud.Moment) bool {
	var n notice

	given, err := readJSON(filepath.Join(b.dir, noticeFile), &n)
	if err != nil {
		b.log.Error("machine received an unreadable notice", "error", err)
	}

	return given && !now.Wall.Before(n.Time)
}

// end returns why the machine must end now, "" if it need not.
func (b *box) end(now cloud.Moment) string {
	asked := order{Why: whyTerminated}
	ordered, err := readJSON(filepath.Join(b.dir, endingFile), &asked)
	if err != nil {
		b.log.Error("machine received an unreadable deadline", "error", err)
	}

	switch {
	case b.shutdown.Load() || ordered: // a signal may have arrived before listen was called
		return asked.Why
	case !b.has(recordFile):
		return whyCrashed // the directory of the machine was removed
	case !b.ReclaimAt.IsZero() && !now.Wall.Before(b.ReclaimAt):
		return whySpot
	case b.reclaimed(now):
		return whySpot
	case b.over:
		return whyAgent
	case b.deadline().Remaining(now) <= -b.Slack:
		return whyDeadline
	}

	return ""
}

// deadline returns the deadline in the agent's file or, until that exists, the one of the request.
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

// boot starts the agent. A failure counts as temporary and is retried.
func (b *box) boot(ctx context.Context, now cloud.Moment) {
	// The machine is this one: its jobs run as the server does, whose files they need.
	args := []string{"agent", "join", b.Server, "--config", filepath.Join(b.dir, agentFile), "--isolation", "none"}
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

// failed schedules another start of the agent, with a longer delay each time.
func (b *box) failed(now cloud.Moment, why string) {
	b.fails++
	b.next = now.Since + job.Backoff(b.fails, againFirst, againMost)
	b.log.Warn("agent failed, restarting it", "why", why, "times", b.fails)
}

// reap records all children that have ended, and reports whether none is left. This process is the
// reaper of all its descendants, so that means that no descendant is left.
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

// agentEnded decides what the end of the agent means. An agent that exits normally, as at the end
// of its lease, or that is killed ends the machine too; one that fails is started again, as the
// service manager of a real machine does.
func (b *box) agentEnded(status syscall.WaitStatus) {
	b.agent = 0
	now, err := cloud.MomentOf()
	if err != nil || !status.Exited() || status.ExitStatus() == 0 {
		b.log.Info("agent exited", "exit", status.ExitStatus(), "signal", status.Signal())
		b.over = true
		return
	}

	b.failed(now, fmt.Sprintf("exit status %d", status.ExitStatus()))
}

// clear ends everything that runs in the machine: with SIGTERM, and after the grace period with
// SIGKILL until nothing is left.
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

// signOff records the end of the machine. If that fails, the provider finds the machine dead and
// records its end.
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
