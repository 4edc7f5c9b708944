// Package blob stores immutable files under names: working directories, the output of ended runs, checkpoints.
//
// A stored blob is never changed. server alone uses it; agents and people get at
// it through the API. Dir keeps blobs in a folder; an object store can stand
// in for it by the same few calls.
package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"trainyard/internal/atomicfile"
	"trainyard/internal/diskspace"
	"trainyard/internal/fault"
)

// Store keeps blobs. It is safe for concurrent use.
type Store interface {
	// Put stores what it reads under a name, at once and whole: a reader that
	// fails leaves no trace.
	Put(ctx context.Context, name string, r io.Reader) error
	// Get opens a blob for reading, or answers fault.NotFound.
	Get(ctx context.Context, name string) (io.ReadCloser, error)
	// Has reports whether there is a blob of this name.
	Has(ctx context.Context, name string) (bool, error)
	// Delete removes a blob; one that is not there is no error.
	Delete(ctx context.Context, name string) error
	// List returns the names that begin with prefix, in order.
	List(ctx context.Context, prefix string) ([]string, error)
}

// Dir keeps blobs as files of a folder.
type Dir struct {
	root string
	disk atomicfile.Disk
}

var _ Store = (*Dir)(nil)

// unfinished is the folder of files that are being written. All are in one, so
// that a start need not look through everything for what a crash left.
const unfinished = ".unfinished"

// OpenDir opens a folder as a blob store and makes it if it is not there. What
// a crash left half written is removed.
func OpenDir(root string) (*Dir, error) { return OpenDirOn(atomicfile.OS{}, root) }

// OpenDirOn opens a folder of a disk other than that of this machine; it is for tests.
func OpenDirOn(disk atomicfile.Disk, root string) (*Dir, error) {
	if err := os.RemoveAll(filepath.Join(root, unfinished)); err != nil {
		return nil, fmt.Errorf("clean blob folder: %w", err)
	}
	if err := os.MkdirAll(filepath.Join(root, unfinished), 0o700); err != nil {
		return nil, fmt.Errorf("create blob folder: %w", err)
	}
	if err := disk.SyncDir(filepath.Dir(root)); err != nil {
		return nil, fmt.Errorf("create blob folder: %w", err)
	}

	return &Dir{root, disk}, nil
}

// path returns the file of a name. Names are made by the server; one that
// would lead out of the folder is refused all the same.
func (d *Dir) path(name string) (string, error) {
	first, _, _ := strings.Cut(name, "/")
	if !fs.ValidPath(name) || !filepath.IsLocal(name) || name == "." || first == unfinished ||
		strings.ContainsRune(name, 0) {
		return "", fault.New(fault.Invalid, "blob_name", "invalid blob name %q", name)
	}

	return filepath.Join(d.root, filepath.FromSlash(name)), nil
}

// Put writes to a file apart, syncs it, renames it and syncs the folder, so that a crash or a power
// cut leaves either nothing or all of it, and all of it once Put has returned.
func (d *Dir) Put(ctx context.Context, name string, r io.Reader) error {
	path, err := d.path(name)
	if err != nil {
		return err
	}

	if err := atomicfile.MkdirAll(d.disk, d.root, filepath.Dir(path)); err != nil {
		return d.unavailable("write", name, err)
	}

	temp := atomicfile.TempDir(filepath.Join(d.root, unfinished))
	if err := atomicfile.WriteFrom(path, readerUntil{ctx, r}, temp, atomicfile.On(d.disk)); err != nil {
		return d.unavailable("write", name, err)
	}

	return nil
}

// readerUntil stops reading when its context ends.
type readerUntil struct {
	ctx context.Context //nolint:containedctx // lives for one copy
	r   io.Reader
}

func (u readerUntil) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}

	return u.r.Read(p)
}

// Get opens a blob for reading.
func (d *Dir) Get(_ context.Context, name string) (io.ReadCloser, error) {
	path, err := d.path(name)
	if err != nil {
		return nil, err
	}

	if has, err := isFile(path); err != nil {
		return nil, d.unavailable("look for", name, err)
	} else if !has {
		return nil, notFound(name)
	}

	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) { // deleted in between
		return nil, notFound(name)
	}
	if err != nil {
		return nil, d.unavailable("read", name, err)
	}

	return f, nil
}

func notFound(name string) error {
	return fault.New(fault.NotFound, "blob_not_found", "there is no %s", name)
}

// isFile reports whether there is a file, and not a folder of blobs, at a path.
func isFile(path string) (bool, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) { // a blob has the name that a folder would
		return false, nil
	}

	return err == nil && info.Mode().IsRegular(), err
}

// Has reports whether there is a blob of this name.
func (d *Dir) Has(_ context.Context, name string) (bool, error) {
	path, err := d.path(name)
	if err != nil {
		return false, err
	}

	has, err := isFile(path)
	if err != nil {
		return false, d.unavailable("look for", name, err)
	}

	return has, nil
}

// Delete removes a blob.
func (d *Dir) Delete(_ context.Context, name string) error {
	path, err := d.path(name)
	if err != nil {
		return err
	}
	if has, err := isFile(path); err != nil || !has {
		return err
	}
	if err := d.disk.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return d.unavailable("remove", name, err)
	}

	return nil
}

// List returns the names that begin with prefix.
func (d *Dir) List(ctx context.Context, prefix string) ([]string, error) {
	start := d.root

	if end := strings.LastIndexByte(prefix, '/'); end >= 0 {
		var err error
		start, err = d.path(prefix[:end])
		if err != nil {
			return nil, err
		}
	}

	var names []string

	err := filepath.WalkDir(start, func(file string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}

		if err != nil || entry.IsDir() {
			if file == filepath.Join(d.root, unfinished) {
				return fs.SkipDir
			}

			return errors.Join(err, ctx.Err())
		}

		rel, err := filepath.Rel(d.root, file)
		if err != nil {
			return err
		}

		if name := filepath.ToSlash(rel); strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}

		return nil
	})
	if err != nil {
		return nil, d.unavailable("list", prefix, err)
	}

	slices.Sort(names)

	return names, nil
}

func (d *Dir) unavailable(what, name string, err error) error {
	if diskspace.Full(err) {
		return diskspace.Error(d.root, err)
	}

	return fault.New(fault.Unavailable, "blob_store", "cannot %s %s in the blob store", what, name).WithCause(err)
}
