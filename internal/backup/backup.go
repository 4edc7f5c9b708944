// Package backup copies the files of a yard into a folder, and puts them back.
//
// A backup is a folder: the database as one file, folders of files, a list of these files with their digests, and
// a manifest, which is written last. The folder gets its name when all of it is on the disk, so that a folder of
// that name is a complete backup. Blobs never change, so those that an earlier backup beside it has are linked to
// it instead of copied: only what is new takes time and room. Which folders a yard has, and how its database is
// copied, is the caller's to say: cmd/trainyard.
package backup

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"trainyard/internal/atomicfile"
	"trainyard/internal/fault"
)

// The names in a backup beside the folders.
const (
	Database     = "yard.db"
	manifestFile = "backup.json"
	listFile     = "files"
)

const format = 1 // of the manifest and the list

// Manifest describes a backup.
type Manifest struct {
	Format  int       `json:"format"`
	Version string    `json:"version"` // of the program that made it
	Yard    string    `json:"yard"`    // what tells its yard from others: the hash of its CA
	Store   string    `json:"store"`   // that the database was copied from: sqlite or postgres
	Blobs   string    `json:"blobs"`   // where the blobs are if they are not in the backup
	Created time.Time `json:"created"`
	Files   int       `json:"files"`
	Bytes   int64     `json:"bytes"`
}

// entry is a file of a backup.
type entry struct {
	path   string // with slashes, below the backup
	size   int64
	stored int64 // nanoseconds of Unix time at which it was last changed
	digest string
}

// Writer makes a backup.
type Writer struct {
	folder string // its name when it is complete
	part   string // while it is made
	base   string // an earlier one, "" if there is none
	old    map[string]entry
	list   []entry

	Linked int // files that were not copied, because an earlier backup has them
}

// New begins a backup in a new folder. Yard tells which earlier backups beside it are of the same yard.
func New(folder, yard string) (*Writer, error) {
	folder = filepath.Clean(folder)
	if _, err := os.Lstat(folder); err == nil {
		return nil, fault.New(fault.Conflict, "file_exists", "%s already exists", folder).
			WithRemedy("name a new folder; files that an earlier backup beside it has are linked to that, not copied again")
	}

	w := &Writer{folder: folder, part: folder + ".part", old: map[string]entry{}}
	if err := os.RemoveAll(w.part); err != nil {
		return nil, fmt.Errorf("remove an unfinished backup: %w", err)
	}
	if err := os.MkdirAll(w.part, 0o700); err != nil {
		return nil, fmt.Errorf("create the backup: %w", err)
	}

	base, err := newest(filepath.Dir(folder), yard)
	if err != nil || base == "" {
		return w, err
	}

	list, err := readList(base)
	if err != nil {
		return w, err
	}

	w.base = base
	for _, e := range list {
		w.old[e.path] = e
	}

	return w, nil
}

// newest returns the newest complete backup of a yard in a folder, "" if there is none.
func newest(parent, yard string) (string, error) {
	found, err := filepath.Glob(filepath.Join(parent, "*", manifestFile))
	if err != nil {
		return "", fmt.Errorf("look for earlier backups: %w", err)
	}

	best, at := "", time.Time{}

	for _, path := range found {
		folder := filepath.Dir(path)

		m, err := Open(folder)
		if err != nil || m.Yard != yard || !m.Created.After(at) || strings.HasSuffix(folder, ".part") {
			continue // one that cannot be used is copied anew
		}

		best, at = folder, m.Created
	}

	return best, nil
}

// Path returns where a file of the backup is while it is made.
func (w *Writer) Path(name string) string { return filepath.Join(w.part, name) }

// Include lists a file that the caller has written into the backup.
func (w *Writer) Include(name string) error {
	info, err := os.Stat(w.Path(name))
	if err != nil {
		return fmt.Errorf("read the backup: %w", err)
	}

	digest, size, err := digestOf(w.Path(name))
	if err != nil {
		return fmt.Errorf("read the backup: %w", err)
	}

	w.list = append(w.list, entry{path: name, size: size, stored: info.ModTime().UnixNano(), digest: digest})

	return nil
}

// Add copies a folder into the backup under a name. Files that disappear meanwhile are left out. Of files that never
// change once they are there, those of an earlier backup are linked, and those that the backup has already are left as
// they are.
func (w *Writer) Add(ctx context.Context, from, name string, lasting bool, skip ...string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}

		below, err := filepath.Rel(from, path)
		if err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}

		switch {
		case d.IsDir() && slices.Contains(skip, below):
			return fs.SkipDir
		case d.IsDir():
			if err := os.MkdirAll(filepath.Join(w.part, name, below), 0o700); err != nil {
				return fmt.Errorf("create the backup: %w", err)
			}

			return nil
		case !d.Type().IsRegular():
			return nil
		}

		return w.add(path, filepath.ToSlash(filepath.Join(name, below)), lasting)
	})
}

func (w *Writer) add(from, name string, lasting bool) error {
	info, err := os.Stat(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", from, err)
	}

	to := filepath.Join(w.part, filepath.FromSlash(name))
	if _, err := os.Lstat(to); lasting && err == nil {
		return nil
	}

	was, known := w.old[name]

	if lasting && known && was.size == info.Size() && was.stored == info.ModTime().UnixNano() &&
		os.Link(filepath.Join(w.base, filepath.FromSlash(name)), to) == nil {
		w.list = append(w.list, was)
		w.Linked++

		return nil
	}

	made, err := copyFile(from, to, info.ModTime())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	if lasting && made.size != info.Size() {
		return fmt.Errorf("copy %s: it had %d bytes and has %d", from, info.Size(), made.size)
	}

	made.path = name
	w.list = append(w.list, made)

	return nil
}

// copyFile copies a file with its time and returns its size and digest.
func copyFile(from, to string, stored time.Time) (e entry, err error) {
	src, err := os.Open(from)
	if err != nil {
		return e, err
	}

	defer func() { _ = src.Close() }() // it was only read

	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return e, err
	}

	sum := sha256.New()

	e.size, err = io.Copy(io.MultiWriter(dst, sum), src)
	if err := errors.Join(err, dst.Close()); err != nil {
		return e, err
	}

	e.digest, e.stored = hex.EncodeToString(sum.Sum(nil)), stored.UnixNano()

	return e, os.Chtimes(to, stored, stored)
}

// Finish writes the list and the manifest, waits until all is on the disk, and gives the backup its name.
func (w *Writer) Finish(m Manifest) (Manifest, error) {
	var list strings.Builder
	for _, e := range w.list {
		fmt.Fprintf(&list, "%s %d %d %s\n", e.digest, e.size, e.stored, e.path)

		m.Files++
		m.Bytes += e.size
	}

	m.Format = format

	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return m, fmt.Errorf("describe the backup: %w", err)
	}

	if err := os.WriteFile(w.Path(listFile), []byte(list.String()), 0o600); err != nil {
		return m, fmt.Errorf("write the backup: %w", err)
	}
	if err := os.WriteFile(w.Path(manifestFile), append(text, '\n'), 0o600); err != nil {
		return m, fmt.Errorf("write the backup: %w", err)
	}
	if err := w.sync(); err != nil {
		return m, fmt.Errorf("write the backup: %w", err)
	}
	if err := os.Rename(w.part, w.folder); err != nil {
		return m, fmt.Errorf("write the backup: %w", err)
	}

	return m, atomicfile.SyncDir(filepath.Dir(w.folder))
}

// sync waits until the disk has everything: one call for all files, however many there are.
func (w *Writer) sync() (err error) {
	f, err := os.Open(w.part)
	if err != nil {
		return err
	}

	defer func() { err = errors.Join(err, f.Close()) }()

	return unix.Syncfs(int(f.Fd()))
}

// Discard removes what there is of a backup that is not complete.
func (w *Writer) Discard() error { return os.RemoveAll(w.part) }

// Open reads what a complete backup says of itself.
func Open(folder string) (Manifest, error) {
	var m Manifest

	text, err := os.ReadFile(filepath.Join(folder, manifestFile))
	if err != nil {
		return m, fault.New(fault.Invalid, "not_a_backup", "%s is not a complete backup", folder).WithCause(err)
	}
	if err := json.Unmarshal(text, &m); err != nil || m.Format < 1 {
		return m, fault.New(fault.Invalid, "not_a_backup", "%s is not a backup of Trainyard", folder).WithCause(err)
	}
	if m.Format > format {
		return m, fault.New(fault.Conflict, "backup_too_new", "%s was made by a newer version (%s)", folder, m.Version).
			WithRemedy("use that version to restore it")
	}

	return m, nil
}

// readList reads the list of files of a backup.
func readList(folder string) ([]entry, error) {
	f, err := os.Open(filepath.Join(folder, listFile))
	if err != nil {
		return nil, fmt.Errorf("read the list of %s: %w", folder, err)
	}

	defer func() { _ = f.Close() }() // it was only read

	var list []entry

	lines := bufio.NewScanner(f)
	for lines.Scan() {
		parts := strings.SplitN(lines.Text(), " ", 4)
		if len(parts) != 4 {
			return nil, damaged(folder, listFile)
		}

		size, err1 := strconv.ParseInt(parts[1], 10, 64)
		stored, err2 := strconv.ParseInt(parts[2], 10, 64)

		if err1 != nil || err2 != nil || !filepath.IsLocal(filepath.FromSlash(parts[3])) {
			return nil, damaged(folder, listFile)
		}

		list = append(list, entry{path: parts[3], size: size, stored: stored, digest: parts[0]})
	}

	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the list of %s: %w", folder, err)
	}

	return list, nil
}

func damaged(folder, name string) error {
	return fault.New(fault.Invalid, "damaged_backup", "the backup %s is damaged: %s is not as it was written",
		folder, name)
}

// Verify reads every file of a backup and compares it with its digest.
func Verify(ctx context.Context, folder string) error {
	list, err := readList(folder)
	if err != nil {
		return err
	}

	for _, e := range list {
		if ctx.Err() != nil {
			return ctx.Err()
		}

		if err := check(folder, e); err != nil {
			return err
		}
	}

	return nil
}

func check(folder string, e entry) error {
	digest, size, err := digestOf(filepath.Join(folder, filepath.FromSlash(e.path)))
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("read the backup: %w", err)
	case err != nil || size != e.size || digest != e.digest:
		return damaged(folder, e.path)
	}

	return nil
}

// digestOf reads a file and returns its SHA-256 and its size.
func digestOf(path string) (digest string, size int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", 0, err
	}

	defer func() { _ = f.Close() }() // it was only read

	sum := sha256.New()
	size, err = io.Copy(sum, f)

	return hex.EncodeToString(sum.Sum(nil)), size, err
}

// PutBack copies the files that a backup has under a name to where they belong, if they are missing there: what is
// there is as new or newer, and stays. It returns how many were missing.
func PutBack(ctx context.Context, folder, name, to string) (int, error) {
	list, err := readList(folder)
	if err != nil {
		return 0, err
	}

	missing := 0

	for _, e := range list {
		below, ok := strings.CutPrefix(e.path, name+"/")
		if !ok {
			continue
		}
		if ctx.Err() != nil {
			return missing, ctx.Err()
		}

		target := filepath.Join(to, filepath.FromSlash(below))
		if _, err := os.Lstat(target); err == nil {
			continue
		}

		if err := putBack(folder, target, e); err != nil {
			return missing, err
		}

		missing++
	}

	return missing, nil
}

// putBack copies one file under another name first, so that one that is there is complete and as it was.
func putBack(folder, target string, e entry) error {
	if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
		return fmt.Errorf("create a folder for %s: %w", target, err)
	}

	part := target + ".part"

	made, err := copyFile(filepath.Join(folder, filepath.FromSlash(e.path)), part, time.Unix(0, e.stored))
	if err == nil && (made.size != e.size || made.digest != e.digest) {
		err = damaged(folder, e.path)
	}

	if err != nil {
		return errors.Join(fmt.Errorf("put %s back: %w", target, err), os.RemoveAll(part))
	}

	if err := os.Rename(part, target); err != nil {
		return fmt.Errorf("put %s back: %w", target, err)
	}

	return nil
}
