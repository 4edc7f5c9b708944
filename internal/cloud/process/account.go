package process

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"trainyard/internal/atomicfile"
	"trainyard/internal/clock"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/money"
)

const (
	machinesDir = "machines"
	lockFile    = "lock"
	nextFile    = "next"
	logFile     = "log.jsonl"
)

// lockLook is how often a lock that another process holds is tried.
const lockLook = 2 * time.Millisecond

// account is the directory of the cloud. All its methods except lock and path require the lock.
type account struct {
	dir string
	mu  sync.Mutex // file locks do not exclude goroutines of the same process
}

func (a *account) path(names ...string) string {
	return filepath.Join(append([]string{a.dir}, names...)...)
}

// lock waits until no other process or goroutine changes the cloud.
func (a *account) lock(ctx context.Context) (unlock func(), err error) {
	for !a.mu.TryLock() {
		if !clock.Sleep(ctx, lockLook) {
			return nil, ctx.Err()
		}
	}

	f, err := os.OpenFile(a.path(lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		a.mu.Unlock()
		return nil, fmt.Errorf("lock the cloud: %w", err)
	}

	unlock = func() {
		_ = free(f) // nothing was written that could be lost
		a.mu.Unlock()
	}

	for {
		taken, err := tryLock(f)
		if err != nil {
			unlock()
			return nil, fmt.Errorf("lock the cloud: %w", err)
		}

		if taken {
			return unlock, nil
		}

		if !clock.Sleep(ctx, lockLook) {
			unlock()
			return nil, ctx.Err()
		}
	}
}

// tryLock takes the lock of an open file, and reports whether it was free.
func tryLock(f *os.File) (bool, error) {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EWOULDBLOCK):
			return false, nil
		default:
			return err == nil, err
		}
	}
}

// free releases a lock and closes its file. Closing alone may release it late: a child that is just
// being started shares the descriptor until it executes its program.
func free(f *os.File) error {
	return errors.Join(unix.Flock(int(f.Fd()), unix.LOCK_UN), f.Close())
}

// number returns the number of the next machine. No number is used twice.
func (a *account) number() (uint64, error) {
	text, err := os.ReadFile(a.path(nextFile))
	if errors.Is(err, fs.ErrNotExist) {
		text, err = []byte("1"), nil
	}

	var n uint64
	if err == nil {
		n, err = strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	}

	if err == nil {
		err = atomicfile.Write(a.path(nextFile), strconv.AppendUint(nil, n+1, 10))
	}

	if err != nil {
		return 0, fmt.Errorf("number a machine: %w", err)
	}

	return n, nil
}

// machines returns every machine whose directory still exists, by number.
func (a *account) machines() ([]*machine, error) {
	entries, err := os.ReadDir(a.path(machinesDir))
	if err != nil {
		return nil, fmt.Errorf("list machines: %w", err)
	}

	var all []*machine
	for _, e := range entries {
		m, err := a.machine(e.Name())
		if err != nil {
			return nil, err
		}

		if m != nil {
			all = append(all, m)
		}
	}

	slices.SortFunc(all, func(x, y *machine) int {
		return cmp.Or(cmp.Compare(len(x.ID), len(y.ID)), strings.Compare(x.ID, y.ID))
	})

	return all, nil
}

// machine reads one machine, nil if there is none of that name.
func (a *account) machine(name string) (*machine, error) {
	if !id.Name(name) { // for instance a directory that is being created or removed
		return nil, nil
	}

	return readMachine(a.path(machinesDir, name))
}

// Entry is a line of the cloud's own log.
type Entry struct {
	Event   string       `json:"event"` // launched or ended
	At      time.Time    `json:"at"`
	Machine string       `json:"machine"`
	Yard    string       `json:"yard"`
	Lease   id.Lease     `json:"lease"`
	Offer   string       `json:"offer"`
	Hourly  job.Money    `json:"hourly"`
	Why     string       `json:"why,omitempty"`    // reason of its end
	Uptime  float64      `json:"kept_s,omitempty"` // from launch to end, in seconds
	Billed  job.Duration `json:"billed,omitempty"` // charged time
	Bill    money.Amount `json:"bill,omitempty"`   // charged amount
}

// The events of the log.
const (
	EventLaunched = "launched"
	EventEnded    = "ended"
)

// Log returns the cloud's own log of machines, oldest first. Tests compare the ledger with it.
func Log(dir string) ([]Entry, error) {
	text, err := os.ReadFile(filepath.Join(dir, logFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the state of the cloud: %w", err)
	}

	var all []Entry

	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		var e Entry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("read the state of the cloud: line %d: %w", len(all)+1, err)
		}

		all = append(all, e)
	}

	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the state of the cloud: %w", err)
	}

	return all, nil
}

// enter adds a line to the log, unless the machine already has one for that event.
func (a *account) enter(e Entry) error {
	all, err := Log(a.dir)
	if err != nil || slices.ContainsFunc(all, func(x Entry) bool { return x.Machine == e.Machine && x.Event == e.Event }) {
		return err
	}

	line, err := json.Marshal(e)
	if err != nil {
		return err
	}

	f, err := os.OpenFile(a.path(logFile), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("write the state of the cloud: %w", err)
	}

	_, err = f.Write(append(line, '\n'))
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write the state of the cloud: %w", err)
	}

	return nil
}

// launched logs the start of a machine.
func (a *account) launched(m *machine) error {
	e := m.entry(EventLaunched)
	e.At = m.Launched
	return a.enter(e)
}

// end logs the end of a machine and computes its bill. The log is written before ended.json: if the
// process dies between the two, the second attempt finds the line and adds no other.
func (a *account) end(m *machine, at time.Time, why string) error {
	if m.ended != nil {
		return nil
	}
	if err := a.launched(m); err != nil { // the process that started it may have died before logging it
		return err
	}

	kept := max(at.Sub(m.Launched), 0)
	e := m.entry(EventEnded)
	e.At, e.Why, e.Uptime = m.Launched.Add(kept), why, kept.Seconds()
	if why != whyNeverStarted {
		e.Billed, e.Bill = m.Offer.BilledDuration(job.Duration(kept)), m.Offer.Cost(job.Duration(kept))
	}

	if err := a.enter(e); err != nil {
		return err
	}

	ended := &end{At: e.At, Why: e.Why, Bill: e.Bill}
	if err := writeJSON(filepath.Join(m.dir, endedFile), ended); err != nil {
		return fmt.Errorf("write the end of machine %s: %w", m.ID, err)
	}

	m.ended = ended

	return nil
}
