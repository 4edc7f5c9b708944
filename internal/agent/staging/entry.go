package staging

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"trainyard/internal/atomicfile"
	"trainyard/internal/dataset"
	"trainyard/internal/fault"
	"trainyard/internal/job"
)

// Names inside the cache.
const (
	holdsDir   = ".holds"
	viewsDir   = ".views"
	goneDir    = ".gone-" // prefix of directories that are being deleted
	partDir    = "part"
	dataDir    = "data"
	contentDir = "content"
	aboutFile  = "about.json"
	fromFile   = "from.json"
)

// about is the content of about.json.
type about struct {
	Name   string    `json:"name"`
	Source string    `json:"source"`
	Base   string    `json:"base"`
	Size   job.Bytes `json:"size"`
}

// entry is a complete dataset in the cache.
type entry struct {
	about
	dir  string
	used time.Time
}

// path returns the path of the content.
func (e *entry) path() string { return contentPath(e.dir, e.Base) }

func contentPath(dir, base string) string { return filepath.Join(dir, dataDir, contentDir, base) }

// located is a dataset of a rank together with the path at which its program will find it.
type located struct {
	ref  job.DataRef
	src  dataset.Source
	key  string // key of the cache entry, "" if the data is read in place
	base string
	path string
}

// keyOf returns the key of a dataset's entry. The source is part of the key, because the same name
// with another source is different data.
func keyOf(name, source string) string {
	sum := sha256.Sum256([]byte(source))
	return name + "-" + hex.EncodeToString(sum[:8])
}

// locate decides whether a dataset is read in place or comes from the cache, and determines its
// path.
func (c *Cache) locate(ref job.DataRef) (located, error) {
	p := located{ref: ref}
	if ref.Path != "" && filepath.IsAbs(ref.Path) {
		err := c.roots.usable(filepath.Clean(ref.Path))
		if err == nil {
			p.path = ref.Path
			return p, nil
		}

		// Elsewhere it may be had all the same: this node has not got the copy, or may not read it.
		if ref.Source == "" || !errors.Is(err, fs.ErrNotExist) && fault.KindOf(err) != fault.Denied {
			return p, c.denied(ref.Name, fmt.Errorf("registered copy not found at %s: %w", ref.Path, err))
		}
	}

	src, err := dataset.ParseSource(ref.Source)
	if err != nil {
		return p, failed(ref.Name, "%v", err)
	}

	p.src = src
	switch src.Kind {
	case dataset.SourceNone:
		return p, failed(ref.Name, "no copy on this node and no source to fetch it from").
			WithRemedy("set a source: trainyard data add %s --source …", ref.Name)
	case dataset.SourcePath:
		if err := c.roots.usable(src.At); err != nil {
			return p, c.denied(ref.Name, err)
		}

		p.path = src.At
	case dataset.SourceFile, dataset.SourceHTTP:
		if _, _, err := c.roots.of(src.At); src.Kind == dataset.SourceFile && err != nil {
			return p, c.denied(ref.Name, err)
		}

		p.key, p.base = keyOf(ref.Name, ref.Source), src.Base
		if p.base == "" {
			p.base = ref.Name
		}

		p.path = contentPath(filepath.Join(c.opt.Dir, p.key), p.base)
	}

	return p, nil
}

// loadEntries reads the entries that an earlier agent process left.
func (c *Cache) loadEntries() error {
	list, err := os.ReadDir(c.opt.Dir)
	if err != nil {
		return err
	}

	for _, f := range list {
		dir := filepath.Join(c.opt.Dir, f.Name())
		if strings.HasPrefix(f.Name(), goneDir) {
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
		}

		if strings.HasPrefix(f.Name(), ".") || !f.IsDir() {
			continue
		}

		e, err := loadEntry(dir)
		if err != nil {
			// The entry is unusable. A run that needs the dataset fetches it again, so this is only
			// a warning.
			c.opt.Log.Warn("cannot read a cached dataset, fetching it again", "dir", dir, "error", err)

			if err := os.RemoveAll(filepath.Join(dir, dataDir)); err != nil {
				return err
			}
		}

		if e != nil {
			c.entries[f.Name()] = e
		}
	}

	return nil
}

// loadEntry reads an entry. It returns nil if the entry is not complete.
func loadEntry(dir string) (*entry, error) {
	path := filepath.Join(dir, dataDir, aboutFile)
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}

	e := &entry{dir: dir, used: info.ModTime()}
	if err := readJSON(path, &e.about); err != nil {
		return nil, err
	}
	if _, err := os.Lstat(e.path()); err != nil {
		return nil, err
	}

	return e, nil
}

// finish turns a fetched part into an entry by a rename, so that a dataset is either complete or
// absent.
func (c *Cache) finish(p located, size job.Bytes) (*entry, error) {
	e := &entry{
		dir:   filepath.Join(c.opt.Dir, p.key),
		used:  c.opt.Clock.Now(),
		about: about{Name: p.ref.Name, Source: p.ref.Source, Base: p.base, Size: size},
	}

	part := filepath.Join(e.dir, partDir)
	if err := writeJSON(filepath.Join(part, aboutFile), e.about); err != nil {
		return nil, err
	}
	if err := os.RemoveAll(filepath.Join(e.dir, fromFile)); err != nil {
		return nil, err
	}
	if err := settle(part); err != nil {
		return nil, err
	}

	return e, os.Rename(part, filepath.Join(e.dir, dataDir))
}

// settle flushes everything written to the disk, so that after a power failure no dataset looks
// complete without being so. It flushes the whole file system at once, because a directory may hold
// a million files.
func settle(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}

	return errors.Join(unix.Syncfs(int(f.Fd())), f.Close())
}

// touch records the time of use of an entry, which decides the order of removal.
func (c *Cache) touch(e *entry) {
	e.used = c.opt.Clock.Now()
	if err := os.Chtimes(filepath.Join(e.dir, dataDir, aboutFile), e.used, e.used); err != nil {
		c.opt.Log.Warn("cannot note the use of a dataset", "dataset", e.Name, "error", err)
	}
}

func readJSON(path string, v any) error {
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, v)
	}

	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}

	return nil
}

// writeJSON replaces a file atomically.
func writeJSON(path string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}

	// A lost record costs only another fetch, so the write is not flushed to the disk.
	return atomicfile.Write(path, text, atomicfile.SingleWriter(), atomicfile.Volatile())
}
