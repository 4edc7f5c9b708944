// Package blob keeps bytes under names: files of working directories, the
// output of ended runs, checkpoints.
//
// What is put is never changed. server alone uses it; agents and people get at
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
type Dir struct{ root string }

var _ Store = (*Dir)(nil)

// unfinished marks files that are being written.
const unfinished = ".part-"

// OpenDir opens a folder as a blob store and makes it if it is not there. What
// a crash left half written is removed.
func OpenDir(root string) (*Dir, error) {
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, fmt.Errorf("make blob folder: %w", err)
	}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasPrefix(d.Name(), unfinished) {
			return os.Remove(path)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("clean blob folder: %w", err)
	}
	return &Dir{root}, nil
}

// path returns the file of a name. Names are made by the server; one that
// would lead out of the folder is refused all the same.
func (d *Dir) path(name string) (string, error) {
	if !filepath.IsLocal(name) || strings.Contains(name, unfinished) {
		return "", fault.New(fault.Invalid, "blob_name", "%q cannot name a blob", name)
	}
	return filepath.Join(d.root, filepath.FromSlash(name)), nil
}

// Put writes to a file beside the target and renames it, so that a crash
// leaves either nothing or all of it.
func (d *Dir) Put(ctx context.Context, name string, r io.Reader) error {
	path, err := d.path(name)
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return unavailable("write", name, err)
	}
	f, err := os.CreateTemp(dir, unfinished+"*")
	if err != nil {
		return unavailable("write", name, err)
	}
	if err := fill(ctx, f, r); err != nil {
		return errors.Join(unavailable("write", name, err), os.Remove(f.Name()))
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return errors.Join(unavailable("write", name, err), os.Remove(f.Name()))
	}
	return syncDir(dir)
}

// fill copies r into f and makes it durable.
func fill(ctx context.Context, f *os.File, r io.Reader) error {
	_, err := io.Copy(f, readerUntil{ctx, r})
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
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

// syncDir makes a rename durable.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("open blob folder: %w", err)
	}
	return errors.Join(f.Sync(), f.Close())
}

// Get opens a blob for reading.
func (d *Dir) Get(_ context.Context, name string) (io.ReadCloser, error) {
	path, err := d.path(name)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fault.New(fault.NotFound, "blob_not_found", "there is no %s", name)
	}
	if err != nil {
		return nil, unavailable("read", name, err)
	}
	return f, nil
}

// Has reports whether there is a blob of this name.
func (d *Dir) Has(_ context.Context, name string) (bool, error) {
	path, err := d.path(name)
	if err != nil {
		return false, err
	}
	_, err = os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, unavailable("look for", name, err)
	}
	return true, nil
}

// Delete removes a blob.
func (d *Dir) Delete(_ context.Context, name string) error {
	path, err := d.path(name)
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return unavailable("remove", name, err)
	}
	return nil
}

// List returns the names that begin with prefix.
func (d *Dir) List(ctx context.Context, prefix string) ([]string, error) {
	start, err := d.path(filepath.Dir(prefix + "x"))
	if err != nil {
		return nil, err
	}
	var names []string
	err = filepath.WalkDir(start, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || entry.IsDir() || strings.HasPrefix(entry.Name(), unfinished) {
			return errors.Join(err, ctx.Err())
		}
		rel, err := filepath.Rel(d.root, path)
		if err != nil {
			return err
		}
		if name := filepath.ToSlash(rel); strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
		return nil
	})
	if err != nil {
		return nil, unavailable("list", prefix, err)
	}
	slices.Sort(names)
	return names, nil
}

func unavailable(what, name string, err error) error {
	return fault.New(fault.Unavailable, "blob_store", "cannot %s %s in the blob store", what, name).WithCause(err)
}
