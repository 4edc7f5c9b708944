package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// Disk changes files so that a power cut can be reckoned with: what was written counts from the
// Sync of its file on, and a name that was made, moved or removed from the SyncDir of its directory
// on. Who only reads uses package os. Tests put in disktest.Disk, whose power can be cut.
type Disk interface {
	// OpenFile is os.OpenFile for a file of mode 0600.
	OpenFile(path string, flag int) (File, error)
	// CreateTemp is os.CreateTemp.
	CreateTemp(dir, pattern string) (File, error)
	// Mkdir is os.Mkdir for a directory of mode 0700.
	Mkdir(dir string) error
	// Rename is os.Rename.
	Rename(from, to string) error
	// Remove is os.Remove.
	Remove(path string) error
	// SyncDir makes the names in a directory survive a power cut.
	SyncDir(dir string) error
}

// File is an open file of a Disk.
type File interface {
	io.ReaderAt
	io.Writer
	io.WriterAt
	io.Closer
	Name() string
	Stat() (fs.FileInfo, error)
	Truncate(size int64) error
	// Sync makes the content survive a power cut. The name needs a SyncDir of its own.
	Sync() error
}

// OS is the disk of this machine.
type OS struct{}

var _ Disk = OS{}

// OpenFile opens a file.
func (OS) OpenFile(path string, flag int) (File, error) { return file(os.OpenFile(path, flag, perm)) }

// CreateTemp makes a temporary file, which has mode 0600.
func (OS) CreateTemp(dir, pattern string) (File, error) { return file(os.CreateTemp(dir, pattern)) }

// file keeps a nil *os.File from becoming a File that is not nil.
func file(f *os.File, err error) (File, error) {
	if err != nil {
		return nil, err
	}

	return f, nil
}

// Mkdir makes a directory.
func (OS) Mkdir(dir string) error { return os.Mkdir(dir, dirPerm) }

// Rename moves a file.
func (OS) Rename(from, to string) error { return os.Rename(from, to) }

// Remove removes a file or an empty directory.
func (OS) Remove(path string) error { return os.Remove(path) }

// SyncDir syncs a directory. Windows has no such call and needs none.
func (OS) SyncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}

	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync directory %s: %w", dir, err)
	}

	return nil
}

// MkdirAll makes a directory below root, and those above it that are missing, so that they survive a
// power cut. It syncs also those that are there already: whoever made one may not have come so far. A
// directory in which nothing has changed costs next to nothing to sync.
func MkdirAll(disk Disk, root, dir string) error {
	if dir == root {
		return nil
	}

	if err := MkdirAll(disk, root, filepath.Dir(dir)); err != nil {
		return err
	}
	if err := disk.Mkdir(dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}

	return disk.SyncDir(filepath.Dir(dir))
}
