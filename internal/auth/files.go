package auth

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"trainyard/internal/fault"
)

// maxFile bounds what is read from a file of ours; the real ones are far smaller.
const maxFile = 64 << 10

// ownDir makes the folder if need be and closes it to others.
func ownDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	if err := os.Chmod(dir, 0o700); err != nil { //nolint:gosec // a folder needs its x bit
		return fmt.Errorf("close folder to others: %w", err)
	}
	return nil
}

// readPrivate reads a file that holds a key. One that everybody may read is
// refused, because its key may be known. Group bits are let pass: volumes that
// belong to a service's group set them by themselves.
func readPrivate(path string) (data []byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open key file: %w", err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("look at key file: %w", err)
	}
	if info.Mode().Perm()&0o007 != 0 {
		return nil, fault.New(fault.Internal, "key_exposed", "%s holds a key and is open to every user of this machine (mode %04o)", path, info.Mode().Perm()).
			WithRemedy("chmod 600 %s, and consider the key known if others use this machine", path)
	}
	data, err = io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return nil, fmt.Errorf("read key file: %w", err)
	}
	return data, nil
}

// writeAtomic puts data at path with mode 0600 so that after a crash either
// the old or the new content is there, whole. It first clears away what earlier
// crashes left.
func writeAtomic(path string, data []byte) (err error) {
	if err := clearLeftovers(path); err != nil {
		return err
	}
	dir, base := filepath.Split(path)
	f, err := os.CreateTemp(dir, leftoverPrefix(base)+"*") // with mode 0600
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			_ = f.Close() // the first error is the one that counts
			_ = os.Remove(f.Name())
			err = fmt.Errorf("write %s: %w", path, err)
		}
	}()
	if _, err = f.Write(data); err != nil {
		return err
	}
	if err = f.Sync(); err != nil {
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func leftoverPrefix(base string) string { return "." + base + ".new-" }

// clearLeftovers removes half-written files beside path.
func clearLeftovers(path string) error {
	dir, base := filepath.Split(path)
	entries, err := fs.Glob(os.DirFS(filepath.Clean(dir)), leftoverPrefix(base)+"*")
	if err != nil {
		return fmt.Errorf("look for half-written files: %w", err)
	}
	for _, name := range entries {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("remove half-written file: %w", err)
		}
	}
	return nil
}

// syncDir makes a rename in dir last through a power cut.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("open folder to sync it: %w", err)
	}
	defer func() { _ = d.Close() }()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("sync folder: %w", err)
	}
	return nil
}
