package staging

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"trainyard/internal/job"
)

// step is how many bytes are reserved at a time while data of unknown size is fetched.
const step = 64 << 20

// reserve makes sure that a fetch can grow to size bytes. It removes datasets that no rank uses if
// there is too little room.
func (c *Cache) reserve(f *fetch, size int64) error {
	c.space.Lock()
	defer c.space.Unlock()

	for {
		lacks, err := c.lacks(f, size)
		if err != nil {
			return failed(f.ref.Name, "%v", err)
		}

		if lacks == "" {
			f.reserved.Store(size)
			return nil
		}

		removed, err := c.evict()
		if err != nil {
			return failed(f.ref.Name, "%s, and the cache cannot be cleared: %v", lacks, err)
		}

		if !removed {
			return failed(f.ref.Name, "%s, and all cached datasets are in use",
				lacks).WithRemedy("free some space, or run the job on a node with more")
		}
	}
}

// lacks says what prevents a fetch from growing to size bytes (the disk or the limit of the cache),
// "" if nothing does.
func (c *Cache) lacks(f *fetch, size int64) (string, error) {
	free, total, err := c.opt.Free(c.opt.Dir)
	if err != nil {
		return "", err
	}

	c.mu.Lock()
	defer c.mu.Unlock()

	need := job.Bytes(size - f.got.Load())
	spare := c.opt.MinFree.WithSpare(total)

	var kept, coming job.Bytes
	for _, e := range c.entries {
		kept += e.Size
	}

	for _, o := range c.fetches {
		if o != f {
			kept += job.Bytes(max(o.reserved.Load(), o.got.Load()))
			coming += job.Bytes(max(0, o.reserved.Load()-o.got.Load()))
		}
	}

	switch {
	case need+coming+spare > free:
		return fmt.Sprintf(
			"%s needed, %s free on disk, %s of that reserved",
			need.Short(),
			free.Short(),
			(coming + spare).Short(),
		), nil
	case c.opt.Limit > 0 && kept+job.Bytes(size) > c.opt.Limit:
		return fmt.Sprintf(
			"%s needed, %s of the %s dataset cache in use",
			job.Bytes(size).Short(),
			kept.Short(),
			c.opt.Limit.Short(),
		), nil
	}

	return "", nil
}

// evict removes the least recently used dataset, or an abandoned part of one, that no rank uses. It
// reports whether there was any.
func (c *Cache) evict() (bool, error) {
	gone, err := c.retire()
	if gone == "" || err != nil {
		return false, err
	}

	return true, os.RemoveAll(gone)
}

// retire moves the entry that evict has chosen out of the cache and returns the directory to
// delete, "" if there is none. A rename is quick, so c.mu is not held while the files are deleted.
func (c *Cache) retire() (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	oldest, when := "", time.Time{}

	list, err := os.ReadDir(c.opt.Dir)
	if err != nil {
		return "", err
	}

	for _, d := range list {
		key := d.Name()
		if strings.HasPrefix(key, ".") || !d.IsDir() || c.fetches[key] != nil || c.held(key) {
			continue
		}

		used := time.Time{} // abandoned parts are removed first
		if e := c.entries[key]; e != nil {
			used = e.used
		}

		if oldest == "" || used.Before(when) {
			oldest, when = key, used
		}
	}

	if oldest == "" {
		return "", nil
	}

	return c.unname(oldest)
}

// unname renames the directory of an entry, so that it is no longer in the cache, and returns its
// new path for deletion. The caller holds c.mu.
func (c *Cache) unname(key string) (string, error) {
	gone, err := os.MkdirTemp(c.opt.Dir, goneDir)
	if err != nil {
		return "", err
	}
	if err := os.Rename(filepath.Join(c.opt.Dir, key), filepath.Join(gone, key)); err != nil {
		return "", errors.Join(err, os.Remove(gone))
	}

	c.opt.Log.Info("dataset removed", "entry", key)
	delete(c.entries, key)

	return gone, nil
}

// Remove removes a dataset that must no longer be on this machine, unless a rank uses it. The
// dataset leaves the cache at once; its files are deleted in the background.
func (c *Cache) Remove(name, source string) {
	key := keyOf(name, source)
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.entries[key] == nil || c.held(key) || c.ctx.Err() != nil {
		return
	}

	gone, err := c.unname(key)
	if err != nil {
		c.opt.Log.Error("cannot remove a dataset", "dataset", name, "error", err)
		return
	}

	c.tasks.Go(func() {
		if err := os.RemoveAll(gone); err != nil { // the next start deletes the rest
			c.opt.Log.Error("cannot remove a dataset", "dataset", name, "error", err)
		}
	})
}
