package rundir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// RemoveTree removes a directory, including directories in it that a program made read-only.
func RemoveTree(root string) error {
	err := os.RemoveAll(root)
	if err == nil || !errors.Is(err, fs.ErrPermission) {
		return err
	}

	werr := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			return os.Chmod(path, 0o700) //nolint:gosec // a directory, to be removed
		}

		return err
	})

	return errors.Join(werr, os.RemoveAll(root))
}
