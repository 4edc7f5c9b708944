package workdir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"trainyard/internal/atomicfile"
)

// cacheSettle is how old a change must be for its digest to be kept: some file
// systems count time in steps of up to two seconds, and a second change within
// the same step would not show.
const cacheSettle = 3 * time.Second

// cache remembers the digests of one folder's files between scans.
type cache struct {
	file string // "" if nothing is kept
	now  time.Time
	old  map[string]cached
	new  map[string]cached
	err  error // why the old ones could not be read
}

type cached struct {
	stamp
	Digest string `json:"digest"`
}

// openCache reads what an earlier scan of root kept. A cache that cannot be
// read costs time and nothing else, so save reports it and the scan goes on.
func openCache(dir, root string, now time.Time) *cache {
	c := &cache{now: now, new: map[string]cached{}}
	if dir == "" {
		return c
	}

	c.file = filepath.Join(dir, "workdir-"+sumHex([]byte(root))[:32]+".json")
	text, err := os.ReadFile(c.file)
	if err == nil {
		err = json.Unmarshal(text, &c.old)
	}

	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.old, c.err = nil, fmt.Errorf("read %s: %w", c.file, err)
	}

	return c
}

func (c *cache) get(name string, mark stamp) (string, bool) {
	e, ok := c.old[name]
	if !ok || e.stamp != mark || !isDigest(e.Digest) {
		return "", false
	}

	c.new[name] = e

	return e.Digest, true
}

func (c *cache) put(name string, mark stamp, digest string) {
	newest := time.Unix(0, max(mark.MTime, mark.CTime))
	if c.now.Sub(newest) >= cacheSettle {
		c.new[name] = cached{mark, digest}
	}
}

// save replaces the kept digests by those of this scan.
func (c *cache) save() error {
	if c.file == "" {
		return nil
	}

	text, err := json.Marshal(c.new)
	if err != nil {
		return fmt.Errorf("encode digests: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(c.file), 0o700); err != nil {
		return fmt.Errorf("create cache folder: %w", err)
	}

	// A cache that a power cut empties costs one scan, less than a sync on every submit.
	if err := atomicfile.Write(c.file, text, atomicfile.Volatile()); err != nil {
		return fmt.Errorf("write digests: %w", err)
	}

	return c.err
}
