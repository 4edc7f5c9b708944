package staging

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"trainyard/internal/fault"
)

// copyFrom copies a file or directory that the machine can read, such as one on a network file
// system. It always starts over: resuming is not worth its complexity for sources this close.
func (c *Cache) copyFrom(ctx context.Context, f *fetch) (err error) {
	if err := f.discard(); err != nil {
		return failed(f.ref.Name, "%v", err)
	}

	from, err := c.openTree(f.src.At)
	if err != nil {
		return c.denied(f.ref.Name, err)
	}

	defer func() { err = errors.Join(err, from.close()) }()

	total, err := from.measure(ctx)
	if err != nil {
		return c.denied(f.ref.Name, err)
	}
	if err := f.sized(total); err != nil {
		return err
	}

	f.total.Store(total)

	if err := c.reserve(f, total); err != nil {
		return err
	}

	err = from.walk(ctx, func(path string, d fs.DirEntry) error { return f.copyOne(ctx, from, path, d) })

	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return errors.Join(failed(f.ref.Name, "%v", err), f.discard())
	}

	return f.checkCopy()
}

// denied returns the fault that says why a source cannot be read, with its remedy.
func (c *Cache) denied(name string, err error) error {
	var f *fault.Error
	if !errors.As(err, &f) {
		return failed(name, "%v", err)
	}

	out := failed(name, "%s", f.Message)
	out.Remedy = f.Remedy

	return out
}

// tree is a file or directory that is being copied. It is open, so that it stays the one that was checked.
type tree struct {
	top   *os.File
	dir   *os.Root // nil if it is a file
	roots *roots
}

// openTree opens a source below a data root.
func (c *Cache) openTree(path string) (*tree, error) {
	top, err := c.roots.open(path, unix.O_RDONLY|unix.O_NOCTTY|unix.O_NONBLOCK)
	if err != nil {
		return nil, err
	}

	t := &tree{top: top, roots: &c.roots}

	info, err := top.Stat()
	switch {
	case err != nil:
	case info.IsDir():
		t.dir, err = os.OpenRoot(pathOf(top))
	case !info.Mode().IsRegular():
		err = notCopied(path)
	}

	if err != nil {
		return nil, errors.Join(err, top.Close())
	}

	return t, nil
}

func (t *tree) close() error {
	var err error
	if t.dir != nil {
		err = t.dir.Close()
	}

	return errors.Join(err, t.top.Close())
}

// walk visits the entries of a directory, or the file. Links are visited, and not followed.
func (t *tree) walk(ctx context.Context, visit func(path string, d fs.DirEntry) error) error {
	if t.dir == nil {
		info, err := t.top.Stat()
		if err != nil {
			return err
		}

		return visit(".", fs.FileInfoToDirEntry(info))
	}

	return fs.WalkDir(t.dir.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}

		if d.IsDir() {
			info, err := d.Info()
			if err != nil {
				return err
			}
			if t.roots.isPrivateDir(info) {
				return isPrivate(filepath.Join(t.top.Name(), path))
			}
		}

		return visit(path, d)
	})
}

// measure returns the total size in bytes of the files.
func (t *tree) measure(ctx context.Context) (total int64, err error) {
	err = t.walk(ctx, func(_ string, d fs.DirEntry) error {
		if !d.Type().IsRegular() {
			return nil
		}

		info, err := d.Info()
		if err == nil {
			total += info.Size()
		}

		return err
	})

	return total, err
}

// open opens one of its files. What is a file when it is visited may be something else by now.
func (t *tree) open(path string) (*os.File, error) {
	if t.dir == nil {
		_, err := t.top.Seek(0, io.SeekStart)
		return t.top, err
	}

	in, err := t.dir.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}

	info, err := in.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = notCopied(in.Name())
	}

	if err != nil {
		return nil, errors.Join(err, in.Close())
	}

	return in, nil
}

func notCopied(path string) error {
	return &fs.PathError{Op: "copy", Path: path, Err: errors.New("not a file, folder or symbolic link")}
}

// copyOne copies one directory entry: a directory without its content, a link as a link, or a file
// with its bytes.
func (f *fetch) copyOne(ctx context.Context, from *tree, path string, d fs.DirEntry) error {
	to := filepath.Join(f.target(), path)

	switch {
	case d.IsDir():
		return os.Mkdir(to, 0o755) //nolint:gosec // programs that run as others may read it
	case d.Type()&fs.ModeSymlink != 0:
		link, err := from.dir.Readlink(path)
		if err != nil {
			return err
		}

		return os.Symlink(link, to)
	case !d.Type().IsRegular():
		return notCopied(filepath.Join(from.top.Name(), path))
	}

	in, err := from.open(path)
	if err != nil {
		return err
	}

	if from.dir != nil {
		defer func() { _ = in.Close() }()
	}

	//nolint:gosec // programs that run as other users may read it
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o444)
	if err != nil {
		return err
	}

	_, err = io.Copy(out, &counted{in, ctx, f})

	return errors.Join(err, out.Close())
}

// counted counts the bytes read and stops reading when its context is cancelled.
type counted struct {
	io.Reader
	ctx context.Context //nolint:containedctx // of one copy
	f   *fetch
}

// Read implements io.Reader.
func (c *counted) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}

	n, err := c.Reader.Read(p)
	c.f.got.Add(int64(n))

	return n, err
}

// checkCopy compares the digest of a copied file with the registered digest.
func (f *fetch) checkCopy() error {
	if f.src.SHA256 == "" {
		return nil
	}

	in, err := os.Open(f.target())
	if err != nil {
		return failed(f.ref.Name, "%v", err)
	}

	defer func() { _ = in.Close() }()

	sum := sha256.New()
	if _, err := io.Copy(sum, in); err != nil {
		return errors.Join(failed(f.ref.Name, "cannot compute SHA-256: %v", err), f.discard())
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != f.src.SHA256 {
		return errors.Join(failed(f.ref.Name, "SHA-256 of %s is not the registered one: got %s", f.src.At, got), f.discard())
	}

	return nil
}
