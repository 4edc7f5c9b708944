package inventory

import (
	"errors"
	"io/fs"
	"os"
)

// replaceFile puts a text in place of a file: a reader sees the old one or the
// new one.
func replaceFile(path string, text []byte) error {
	tmp := path + ".new"
	err := os.WriteFile(tmp, text, 0o600)
	if err == nil {
		return os.Rename(tmp, path)
	}
	if gone := os.Remove(tmp); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
		err = errors.Join(err, gone)
	}
	return err
}
