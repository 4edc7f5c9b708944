// Package atomicfile replaces a file as a whole: whoever reads it, also after a
// crash or a power cut, finds the old content or the new one and never a part.
//
// Everything that keeps state in files writes with it: the server's keys and blobs, the agent's
// memory, the records of runs, the command line's logins. What is in the files is theirs.
//
// google/renameio was considered and not used. It does not sync the directory, so a write that was
// reported as done can be undone by a power cut; its WriteFile keeps the permissions of the file
// it replaces, so a key once readable by all stays so; its temporary files pile up after
// crashes; it cannot leave out the sync for content that is not worth one; and it refuses to write on
// Windows, where the command line runs too.
package atomicfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// perm is the mode of every file written here: the owner's alone, whatever the
// replaced file had. All of them hold keys, tokens or other people's work.
const perm = 0o600

// dirPerm is the mode of every directory made here, for the same reason.
const dirPerm = 0o700

// Option changes how a file is written.
type Option func(*settings)

type settings struct {
	tempDir      string
	volatile     bool
	singleWriter bool
	disk         Disk
}

// On writes to a disk other than that of this machine; it is for tests.
func On(disk Disk) Option {
	return func(s *settings) { s.disk = disk }
}

// Volatile leaves out the syncs. A crash of the process still leaves a whole file, but a power cut may
// leave the old content or an empty file. It is for what is written often and
// can be made again: caches, progress, orders that are worth nothing after a reboot.
func Volatile() Option {
	return func(s *settings) { s.volatile = true }
}

// SingleWriter promises that nobody else writes this file at the same time. The temporary file
// then always has one name, the path with ".new" behind it, so that what a crash
// left is overwritten by the next write instead of piling up.
func SingleWriter() Option {
	return func(s *settings) { s.singleWriter = true }
}

// TempDir puts the temporary file into this directory instead of beside the file. It must be on
// the same file system. It is for directories that are listed while they are written to, and for
// owners who clear away at start what a crash left.
func TempDir(dir string) Option {
	return func(s *settings) { s.tempDir = dir }
}

// Write replaces the file at path by data, with mode 0600. Once it returns
// without an error the data survives a power cut, unless it is Volatile.
func Write(path string, data []byte, options ...Option) error {
	return WriteFrom(path, bytes.NewReader(data), options...)
}

// WriteFrom replaces the file at path by all that it reads. A reader that fails changes nothing.
func WriteFrom(path string, content io.Reader, options ...Option) error {
	s := settings{disk: OS{}}
	for _, option := range options {
		option(&s)
	}

	temp, err := s.create(path)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}

	err = s.fill(temp, content)
	if err == nil {
		err = s.disk.Rename(temp.Name(), path)
	}

	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", path, err), removeIfPresent(s.disk, temp.Name()))
	}

	if s.volatile {
		return nil
	}

	return s.disk.SyncDir(filepath.Dir(path))
}

// create opens the temporary file.
func (s *settings) create(path string) (File, error) {
	dir, base := filepath.Split(path)
	if s.tempDir != "" {
		dir = s.tempDir
	}

	if !s.singleWriter {
		return s.disk.CreateTemp(filepath.Clean(dir), "."+base+".new-*")
	}

	// What is there already is removed and not reused: it could have another
	// mode, or be a link that leads elsewhere.
	name := filepath.Join(dir, base+".new")
	if err := removeIfPresent(s.disk, name); err != nil {
		return nil, err
	}

	return s.disk.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
}

// fill writes the temporary file and closes it.
func (s *settings) fill(temp File, content io.Reader) error {
	_, err := io.Copy(temp, content)

	// Without this sync some file systems store the new name before the content.
	if err == nil && !s.volatile {
		err = temp.Sync()
	}

	return errors.Join(err, temp.Close())
}

// SyncDir makes the names in a directory survive a power cut: files that were
// created in it, renamed or removed.
func SyncDir(dir string) error { return OS{}.SyncDir(dir) }

// RemoveLeftovers removes the temporary files that writers of this path left when they crashed.
// It must not be called while somebody writes the file.
func RemoveLeftovers(path string) error {
	dir, base := filepath.Split(path)
	dir = filepath.Clean(dir)

	names, err := fs.Glob(os.DirFS(dir), "."+base+".new-*")
	if err != nil {
		return fmt.Errorf("look for half-written files: %w", err)
	}

	for _, name := range append(names, base+".new") {
		if err := removeIfPresent(OS{}, filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("remove half-written file: %w", err)
		}
	}

	return nil
}

func removeIfPresent(disk Disk, path string) error {
	if err := disk.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}

	return nil
}
