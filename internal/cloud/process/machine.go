package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"trainyard/internal/atomicfile"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/money"
)

const (
	recordFile   = "machine.json"
	userDataFile = "user-data"
	agentFile    = "agent.json"
	pidFile      = "pid"
	upFile       = "up"
	noticeFile   = "notice.json"
	endingFile   = "ending"
	endedFile    = "ended.json"
	outputFile   = "machine.log"
	dataDir      = "data"
)

// Reasons for the end of a machine.
const (
	whyTerminated   = "terminated"    // it was terminated through the API
	whySpot         = "spot"          // a spot machine that was reclaimed
	whyDeadline     = "deadline"      // its dead man's switch ended it
	whyAgent        = "agent"         // its agent ended by itself
	whyCrashed      = "crashed"       // its process was killed from outside
	whyNeverStarted = "never started" // the server died between writing the record and starting the machine
)

// record is what is known of a machine at its start; it never changes.
type record struct {
	ID        string        `json:"id"`
	Yard      string        `json:"yard"`
	Lease     id.Lease      `json:"lease"`
	Name      string        `json:"name"`
	Offer     fleet.Offer   `json:"offer"`
	Server    string        `json:"server"`
	Program   string        `json:"program"`
	Until     time.Time     `json:"until"`
	Launched  time.Time     `json:"launched"`
	Boot      time.Duration `json:"boot_ns"`
	Grace     time.Duration `json:"grace_ns"`
	Slack     time.Duration `json:"slack_ns"`
	ReclaimAt time.Time     `json:"taken,omitzero"` // random time at which a spot machine is reclaimed
	Notice    time.Duration `json:"notice_ns,omitempty"`
}

// end is how a machine ended.
type end struct {
	At   time.Time    `json:"at"`
	Why  string       `json:"why"`
	Bill money.Amount `json:"bill"`
}

// order is a request to end a machine.
type order struct {
	Since time.Time `json:"since"`
	Why   string    `json:"why"`
}

// machine is the state of a machine according to its directory.
type machine struct {
	record
	dir   string
	ended *end // nil until it has ended
}

// readMachine reads a machine's directory, nil if it does not exist.
func readMachine(dir string) (*machine, error) {
	m := &machine{dir: dir}
	if ok, err := readJSON(filepath.Join(dir, recordFile), &m.record); err != nil || !ok {
		return nil, err
	}

	var ended end
	ok, err := readJSON(filepath.Join(dir, endedFile), &ended)
	if ok {
		m.ended = &ended
	}

	return m, err
}

// write creates the machine's directory. It gets its final name only when it is complete.
func (m *machine) write(script string, settings map[string]string) error {
	tmp := filepath.Join(filepath.Dir(m.dir), ".new-"+m.ID)
	err := os.RemoveAll(tmp) // left by a process that died while creating it
	if err == nil {
		err = os.MkdirAll(filepath.Join(tmp, dataDir), 0o700)
	}

	if err == nil {
		err = os.WriteFile(filepath.Join(tmp, userDataFile), []byte(script), 0o600)
	}

	if err == nil {
		err = writeJSON(filepath.Join(tmp, agentFile), settings)
	}

	if err == nil {
		err = writeJSON(filepath.Join(tmp, recordFile), m.record)
	}

	if err == nil {
		err = os.Rename(tmp, m.dir)
	}

	return err
}

// remove deletes a machine's directory.
func (m *machine) remove() error {
	tmp := filepath.Join(filepath.Dir(m.dir), ".old-"+m.ID)
	if err := os.Rename(m.dir, tmp); err != nil {
		return fmt.Errorf("forget machine %s: %w", m.ID, err)
	}
	if err := os.RemoveAll(tmp); err != nil {
		return fmt.Errorf("forget machine %s: %w", m.ID, err)
	}

	return nil
}

// entry returns a log line about the machine.
func (m *machine) entry(event string) Entry {
	return Entry{Event: event, Machine: m.ID, Yard: m.Yard, Lease: m.Lease, Offer: m.Offer.Name, Hourly: m.Offer.Hourly}
}

func (m *machine) has(name string) bool {
	_, err := os.Stat(filepath.Join(m.dir, name))
	return err == nil
}

// notice tells a machine when it is reclaimed, in the form in which Amazon tells it.
type notice struct {
	Action string    `json:"action"`
	Time   time.Time `json:"time"`
}

// giveNotice tells a machine when it is reclaimed. The first notice counts.
func (m *machine) giveNotice(at time.Time) error {
	path := filepath.Join(m.dir, noticeFile)

	given, err := readJSON(path, &notice{})
	if err == nil && !given {
		err = writeJSON(path, notice{Action: "terminate", Time: at.UTC()})
	}

	if err != nil {
		return fmt.Errorf("give notice to machine %s: %w", m.ID, err)
	}

	return nil
}

// openLock opens the lock that the machine's process holds while it lives. Unlike a PID a lock
// cannot be reused, and a zombie does not hold it.
func (m *machine) openLock() (*os.File, bool, error) {
	f, err := os.OpenFile(filepath.Join(m.dir, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, false, fmt.Errorf("inspect machine %s: %w", m.ID, err)
	}

	mine, err := tryLock(f)
	if err != nil {
		return nil, false, errors.Join(fmt.Errorf("inspect machine %s: %w", m.ID, err), f.Close())
	}

	return f, mine, nil
}

// alive reports whether the machine's process lives.
func (m *machine) alive() (bool, error) {
	f, mine, err := m.openLock()
	if err != nil {
		return false, err
	}
	if mine {
		return false, free(f)
	}

	return true, f.Close()
}

// start starts the machine's process in its own session, so that it outlives this one. The process
// inherits its lock already locked, so there is no moment at which it seems dead.
func (p *Provider) start(ctx context.Context, m *machine) error {
	lock, mine, err := m.openLock()
	if err != nil {
		return err
	}
	if !mine {
		return errors.Join(fmt.Errorf("machine %s is locked by another process", m.ID), lock.Close())
	}
	if err := p.spawn(ctx, m, lock); err != nil {
		return errors.Join(err, free(lock))
	}

	return lock.Close() // the machine has its own descriptor
}

// spawn starts the process of a machine and passes it its lock.
func (p *Provider) spawn(ctx context.Context, m *machine, lock *os.File) error {
	out, err := os.OpenFile(filepath.Join(m.dir, outputFile), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}

	defer func() { _ = out.Close() }() // the machine has its own descriptor

	// The directory is an argument only for people who read the list of processes.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), p.cfg.Program, Subcommand, m.dir)
	cmd.Dir = m.dir
	cmd.Stdout = out
	cmd.Stderr = out
	cmd.ExtraFiles = []*os.File{lock}
	cmd.Env = append(environ(p.cfg.Environ), machineVar+"="+m.dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}

	p.children.Go(func() {
		if err := cmd.Wait(); err != nil {
			p.cfg.Log.Warn("machine exited with an error", "machine", m.ID, "error", err)
		}
	})

	if err := m.writePID(cmd.Process.Pid); err != nil { // the machine writes it too
		p.cfg.Log.Warn("cannot record the process of a machine", "machine", m.ID, "error", err)
	}

	return nil
}

// environ removes the yard's own variables and makes sure that PATH is set.
func environ(all []string) []string {
	env := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	for _, e := range all {
		if !strings.HasPrefix(e, "TRAINYARD_") {
			env = append(env, e) // the last of two entries is valid
		}
	}

	return env
}

// writePID writes the PID file. Both the machine and the process that starts it call it, because
// either may die first.
func (m *machine) writePID(pid int) error {
	return atomicfile.Write(filepath.Join(m.dir, pidFile), strconv.AppendInt(nil, int64(pid), 10))
}

// end asks a machine to end, and kills it if it was asked long ago.
func (p *Provider) end(m *machine, why string) error {
	if m.ended != nil {
		return nil
	}

	now := p.cfg.Clock.Now()
	path := filepath.Join(m.dir, endingFile)
	asked := order{Since: now, Why: why}
	told, err := readJSON(path, &asked)
	if err == nil && !told {
		err = writeJSON(path, asked)
	}

	if err != nil {
		return fmt.Errorf("stop machine %s: %w", m.ID, err)
	}

	sig := unix.SIGTERM
	if now.Sub(asked.Since) > m.Grace+overdue {
		sig = unix.SIGKILL
	}

	alive, err := m.signal(sig)
	if err != nil || alive && sig == unix.SIGTERM {
		return err
	}

	return p.bury(m)
}

// overdue is how long after its grace period a machine that was asked to end is killed.
const overdue = 5 * time.Second

// signal sends a signal to the machine's process, and reports whether it was alive.
func (m *machine) signal(sig unix.Signal) (alive bool, err error) {
	text, err := os.ReadFile(filepath.Join(m.dir, pidFile))
	if errors.Is(err, fs.ErrNotExist) {
		return m.alive() // it is being started and will write its PID soon
	}

	var pid int
	if err == nil {
		pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
	}

	if err != nil {
		return false, fmt.Errorf("find the process of machine %s: %w", m.ID, err)
	}

	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return m.alive()
	}
	if err != nil {
		return false, fmt.Errorf("find the process of machine %s: %w", m.ID, err)
	}

	defer func() { _ = unix.Close(fd) }()

	// While the lock is held the PID belongs to the machine, and so does the pidfd.
	alive, err = m.alive()
	if err != nil || !alive {
		return false, err
	}
	if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return true, fmt.Errorf("signal machine %s: %w", m.ID, err)
	}

	return true, nil
}

// bury records the end of a machine whose process died without doing so. Processes that it left are
// killed, as they would have ended with a real machine.
func (p *Provider) bury(m *machine) error {
	if err := killAll(m.dir); err != nil {
		return fmt.Errorf("stop the remaining processes of machine %s: %w", m.ID, err)
	}

	fresh, err := readMachine(m.dir) // it may have recorded its end meanwhile
	if err != nil {
		return err
	}

	m.ended = fresh.ended
	if m.ended != nil {
		return nil
	}

	why, at := whyCrashed, p.cfg.Clock.Now()

	asked := order{}
	switch told, err := readJSON(filepath.Join(m.dir, endingFile), &asked); {
	case err != nil:
		return err
	case !m.has(pidFile):
		why, at = whyNeverStarted, m.Launched
	case told:
		why = asked.Why
	}

	p.cfg.Log.Warn("machine is gone", "provider", p.cfg.Name, "machine", m.ID, "lease", m.Lease, "why", why)

	return p.account.end(m, at, why)
}

// readJSON reads a file, and reports whether it exists.
func readJSON(path string, into any) (bool, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}

	if err == nil {
		err = json.Unmarshal(text, into)
	}

	if err != nil {
		return false, fmt.Errorf("read %s: %w", path, err)
	}

	return true, nil
}

// writeJSON replaces a file atomically.
func writeJSON(path string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}

	return atomicfile.Write(path, append(text, '\n'))
}
