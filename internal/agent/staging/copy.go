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
)

// copyFrom copies a file or directory that the machine can read, such as one on a network file
// system. It always starts over: resuming is not worth its complexity for sources this close.
func (c *Cache) copyFrom(ctx context.Context, f *fetch) error {
	if err := f.discard(); err != nil {
		return failed(f.ref.Name, "%v", err)
	}

	root, err := filepath.EvalSymlinks(f.src.At)
	if err != nil {
		return failed(f.ref.Name, "%v", err)
	}

	total, err := measure(ctx, root)
	if err != nil {
		return failed(f.ref.Name, "%v", err)
	}
	if err := f.sized(total); err != nil {
		return err
	}

	f.total.Store(total)

	if err := c.reserve(f, total); err != nil {
		return err
	}

	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}

		inside, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}

		return f.copyOne(ctx, path, filepath.Join(f.target(), inside), d)
	})

	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return errors.Join(failed(f.ref.Name, "%v", err), f.discard())
	}

	return f.checkCopy()
}

// measure returns the total size in bytes of the files below a path.
func measure(ctx context.Context, root string) (total int64, err error) {
	err = filepath.WalkDir(root, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}

		if d.Type().IsRegular() {
			info, err := d.Info()
			if err != nil {
				return err
			}

			total += info.Size()
		}

		return nil
	})

	return total, err
}

// copyOne copies one directory entry: a directory without its content, a link as a link, or a file
// with its bytes.
func (f *fetch) copyOne(ctx context.Context, from, to string, d fs.DirEntry) error {
	switch {
	case d.IsDir():
		return os.Mkdir(to, 0o755) //nolint:gosec // programs that run as others may read it
	case d.Type()&fs.ModeSymlink != 0:
		link, err := os.Readlink(from)
		if err != nil {
			return err
		}

		return os.Symlink(link, to)
	case !d.Type().IsRegular():
		return &fs.PathError{Op: "copy", Path: from, Err: errors.New("not a file, folder or symbolic link")}
	}

	in, err := os.Open(from)
	if err != nil {
		return err
	}

	defer func() { _ = in.Close() }()

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
