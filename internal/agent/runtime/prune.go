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

	"trainyard/internal/agent/runtime/tree"
	"trainyard/internal/job"
)

// unfinishedAge is after how long a set-up that was never finished is removed.
const unfinishedAge = 24 * time.Hour

// cachedSetup is a set-up that could be removed.
type cachedSetup struct {
	dir  string
	size job.Bytes
	used time.Time
}

// pruneSetups removes the set-ups that are too old and, the least recently used
// first, as many as it takes to keep the cache within its size. One that a run uses stays.
func (r *Runtime) pruneSetups() {
	r.prune.Lock()
	defer r.prune.Unlock()
	root := filepath.Join(r.dir, setupsDir)
	entries, err := os.ReadDir(root)
	if err != nil {
		r.log.Error("cannot look at the set-ups", "error", err)
		return
	}
	now := r.clk.Now()
	var kept []cachedSetup
	var total job.Bytes
	for _, e := range entries {
		dir := filepath.Join(root, e.Name())
		if strings.HasPrefix(e.Name(), ".gone-") {
			r.dropped(dir, tree.Remove(dir))
			continue
		}
		c, done, err := lookAtSetup(dir)
		switch age := now.Sub(c.used); {
		case errors.Is(err, fs.ErrNotExist): // removed meanwhile
		case err != nil:
			r.log.Error("cannot look at a set-up", "dir", dir, "error", err)
		case !done && age > unfinishedAge, done && age > r.opt.SetupAge:
			r.dropped(dir, removeSetup(dir))
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
		r.dropped(c.dir, err)
		if err == nil {
			total -= c.size
		}
	}
}

// errInUse says that a set-up cannot be removed now.
var errInUse = errors.New("in use")

func (r *Runtime) dropped(dir string, err error) {
	if err != nil && !errors.Is(err, errInUse) {
		r.log.Error("cannot remove a set-up", "dir", dir, "error", err)
	}
}

// lookAtSetup reads the size and age of a set-up and whether it is finished.
func lookAtSetup(dir string) (cachedSetup, bool, error) {
	c := cachedSetup{dir: dir}
	var made setupMade
	done, err := readJSON(filepath.Join(dir, setupDone), &made)
	if err != nil {
		return c, false, err
	}
	c.size = made.Size
	path := dir
	if done {
		path = filepath.Join(dir, setupDone)
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
	lock, err := tryLockSetup(dir, setupUseLock, unix.LOCK_EX)
	if err != nil {
		return err
	}
	if lock == nil {
		return errInUse
	}
	defer func() { _ = lock.Close() }()
	gone := filepath.Join(filepath.Dir(dir), ".gone-"+filepath.Base(dir))
	if err := tree.Remove(gone); err != nil {
		return err
	}
	if err := os.Rename(dir, gone); err != nil {
		return err
	}
	return tree.Remove(gone)
}
