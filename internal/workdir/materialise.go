package workdir

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sync"

	"trainyard/internal/api"
	"trainyard/internal/fault"
)

// fetchers is how many files are fetched at a time: enough to hide the way to
// the server, few enough for a small machine.
const fetchers = 8

// Fetch opens a content by its digest. It is called by several goroutines.
type Fetch func(ctx context.Context, digest string) (io.ReadCloser, error)

// Materialise makes the folder dir as the manifest says. It is built beside its
// place and renamed, so that dir is there whole or not at all; dir itself must
// not be there yet, or be empty. Every content is checked against its digest.
// Links are made last, so that nothing is ever written through one.
func Materialise(ctx context.Context, m api.Manifest, dir string, fetch Fetch) (err error) {
	if err := Check(m); err != nil {
		return err
	}

	tmp, err := os.MkdirTemp(filepath.Dir(dir), ".materialise-*")
	if err != nil {
		return fmt.Errorf("create working directory: %w", err)
	}

	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(tmp))
		}
	}()

	if err := os.Chmod(tmp, 0o755); err != nil { //nolint:gosec // the program may run as another user
		return fmt.Errorf("create working directory: %w", err)
	}

	// A Root refuses every name that leads outside, whatever the manifest says.
	root, err := os.OpenRoot(tmp)
	if err != nil {
		return fmt.Errorf("create working directory: %w", err)
	}

	defer func() { _ = root.Close() }()

	if err := writeFiles(ctx, root, m.Files, fetch); err != nil {
		return err
	}

	for _, f := range m.Files {
		if f.Link == "" {
			continue
		}
		if err := makeLink(root, f); err != nil {
			return err
		}
	}

	// os.Rename refuses a folder that is there, even an empty one.
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("rename working directory: %w", err)
	}
	if err := os.Rename(tmp, dir); err != nil {
		return fmt.Errorf("rename working directory: %w", err)
	}

	return nil
}

func makeLink(root *os.Root, f api.ManifestFile) error {
	if err := root.MkdirAll(path.Dir(f.Path), 0o755); err != nil {
		return fmt.Errorf("create folder of %s: %w", f.Path, err)
	}
	if err := root.Symlink(f.Link, f.Path); err != nil {
		return fmt.Errorf("create link %s: %w", f.Path, err)
	}

	return nil
}

// writeFiles fetches and writes all files, several at a time, and stops at the
// first failure.
func writeFiles(ctx context.Context, root *os.Root, files []api.ManifestFile, fetch Fetch) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	work := make(chan api.ManifestFile)

	var all sync.WaitGroup
	for range fetchers {
		all.Go(func() {
			for f := range work {
				if err := writeFile(ctx, root, f, fetch); err != nil {
					cancel(err)
					return
				}
			}
		})
	}

	func() {
		defer close(work)

		for _, f := range files {
			if f.Link != "" {
				continue
			}

			select {
			case work <- f:
			case <-ctx.Done():
				return
			}
		}
	}()

	all.Wait()

	return context.Cause(ctx)
}

// writeFile fetches one file, checks it and gives it its mode.
func writeFile(ctx context.Context, root *os.Root, f api.ManifestFile, fetch Fetch) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("write %s: %w", f.Path, err)
		}
	}()

	content, err := fetch(ctx, f.Digest)
	if err != nil {
		return err
	}

	defer func() { err = errors.Join(err, content.Close()) }()

	if dir := path.Dir(f.Path); dir != "." {
		if err := root.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}

	out, err := root.OpenFile(f.Path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}

	hash := sha256.New()
	_, err = io.Copy(io.MultiWriter(out, hash), cancellable(ctx, content))
	if err == nil {
		err = out.Chmod(fs.FileMode(f.Mode).Perm())
	}

	if closeErr := out.Close(); err == nil {
		err = closeErr
	}

	if err == nil && hex.EncodeToString(hash.Sum(nil)) != f.Digest {
		err = damaged(f.Digest)
	}

	return err
}

// damaged is the error for a content that is not what its digest says.
func damaged(digest string) error {
	return fault.New(fault.Unavailable, "workdir_content_damaged", "content %.12s… is corrupt", digest).
		WithRemedy("it is fetched again at the next try")
}
