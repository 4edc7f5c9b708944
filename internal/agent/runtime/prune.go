package runtime

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// unfinishedAge is the age at which an unfinished set-up is removed.
const unfinishedAge = 24 * time.Hour

// cachedSetup is a set-up that may be removed.
type cachedSetup struct {
	dir  string
	size job.Bytes
	used time.Time
}

// pruneSetups removes set-ups that are too old, and then the least recently used ones until the
// cache is within its size. It keeps set-ups that a run uses.
func (r *Runtime) pruneSetups() {
	r.prune.Lock()
	defer r.prune.Unlock()

	root := filepath.Join(r.dir, rundir.SetupsDir)
	entries, err := os.ReadDir(root)
	if err != nil {
		r.log.Error("cannot list the set-ups", "error", err)
		return
	}

	now := r.clk.Now()
	var kept []cachedSetup

	var total job.Bytes
	for _, e := range entries {
		dir := filepath.Join(root, e.Name())
		if strings.HasPrefix(e.Name(), ".gone-") {
			r.logRemoval(dir, rundir.RemoveTree(dir))
			continue
		}

		c, done, err := readSetup(dir)
		switch age := now.Sub(c.used); {
		case errors.Is(err, fs.ErrNotExist): // removed meanwhile
		case err != nil:
			r.log.Error("cannot read a set-up", "dir", dir, "error", err)
		case !done && age > unfinishedAge, done && age > r.opt.SetupAge:
			r.logRemoval(dir, removeSetup(dir))
		case done:
			kept = append(kept, c)
			total += c.size
		}
	}

	slices.SortFunc(kept, func(a, b cachedSetup) int { return a.used.Compare(b.used) })
	for _, c := range kept {
		if total <= r.opt.SetupBytes {
			return
		}

		err := removeSetup(c.dir)
		r.logRemoval(c.dir, err)

		if err == nil {
			total -= c.size
		}
	}
}

// errInUse says that a set-up cannot be removed because a run uses it.
var errInUse = errors.New("in use")

func (r *Runtime) logRemoval(dir string, err error) {
	if err != nil && !errors.Is(err, errInUse) {
		r.log.Error("cannot remove a set-up", "dir", dir, "error", err)
	}
}

// readSetup reads the size and age of a set-up and whether it is finished.
func readSetup(dir string) (cachedSetup, bool, error) {
	c := cachedSetup{dir: dir}
	var made rundir.SetupResult
	done, err := rundir.ReadJSON(filepath.Join(dir, rundir.SetupResultFile), &made)
	if err != nil {
		return c, false, err
	}

	c.size = made.Size

	path := dir
	if done {
		path = filepath.Join(dir, rundir.SetupResultFile)
	}

	info, err := os.Stat(path)
	if err != nil {
		return c, false, err
	}

	c.used = info.ModTime()

	return c, done, nil
}

// removeSetup removes a set-up that no run uses.
func removeSetup(dir string) error {
	lock, err := rundir.TryLockSetup(dir, rundir.SetupUseLock, unix.LOCK_EX)
	if err != nil {
		return err
	}
	if lock == nil {
		return errInUse
	}

	defer func() { _ = lock.Close() }()

	gone := filepath.Join(filepath.Dir(dir), ".gone-"+filepath.Base(dir))
	if err := rundir.RemoveTree(gone); err != nil {
		return err
	}
	if err := os.Rename(dir, gone); err != nil {
		return err
	}

	return rundir.RemoveTree(gone)
}

// pruneCheckpoints removes the checkpoint directories of jobs that have no rank here: empty ones at
// once, others when nothing in them has changed for CheckpointAge. The server does not tell agents
// when a job has ended for good, so age has to decide.
func (r *Runtime) pruneCheckpoints() {
	root := filepath.Join(r.dir, rundir.CheckpointsDir)
	entries, err := os.ReadDir(root)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			r.log.Error("cannot list the checkpoints", "error", err)
		}

		return
	}

	for _, e := range entries {
		r.pruneCheckpoint(id.Job(e.Name()))
	}
}

// pruneCheckpoint removes the checkpoints of one job if they are due.
func (r *Runtime) pruneCheckpoint(j id.Job) {
	dir := filepath.Join(r.dir, rundir.CheckpointsDir, string(j))
	touched, empty, err := lastTouched(dir)
	if errors.Is(err, fs.ErrNotExist) { // its rank never began, but whose they would be is recorded
		empty, err = true, nil
	}

	empty = empty && !strings.HasPrefix(string(j), ".") // others are those of restores
	if err == nil && (empty || r.clk.Now().Sub(touched) > r.opt.CheckpointAge) {
		err = r.dropCheckpoints(j, dir, empty)
	}

	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.log.Error("cannot remove checkpoints", "dir", dir, "error", err)
	}
}

// dropCheckpoints removes a checkpoint directory unless the job has a rank here. It holds the lock
// under which new ranks are recorded, before their supervisor creates the directory.
func (r *Runtime) dropCheckpoints(j id.Job, dir string, empty bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()

	for _, rk := range r.ranks {
		if rk.rec.Job == j {
			return nil
		}
	}

	owner := os.Remove(filepath.Join(r.dir, rundir.CheckpointOwnersDir, string(j)))
	if owner != nil && !errors.Is(owner, fs.ErrNotExist) {
		return owner
	}

	if empty {
		return os.Remove(dir)
	}

	return rundir.RemoveTree(dir)
}

// lastTouched returns when a directory or an entry directly in it last changed.
func lastTouched(dir string) (at time.Time, empty bool, err error) {
	info, err := os.Stat(dir)
	if err != nil {
		return at, false, err
	}

	at = info.ModTime()

	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if inner, err := e.Info(); err == nil && inner.ModTime().After(at) {
			at = inner.ModTime()
		}
	}

	return at, len(entries) == 0, err
}
