// Package diskspace says how much room a disk has, and recognises and names a full one.
//
// Server and agents use it: a full disk must be reported as what it is, with the path that needs room, and
// not as a database, a node or a run that failed. The package decides nothing about what happens then.
package diskspace

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"trainyard/internal/fault"
	"trainyard/internal/job"
)

// CodeFull is the code of errors about a full disk.
const CodeFull = "no_space"

// Full reports whether an error says that a disk is full or its quota used up.
func Full(err error) bool {
	var f *fault.Error
	if errors.As(err, &f) && f.Code == CodeFull {
		return true
	}

	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// Error returns the error that the disk which holds a path is full.
func Error(path string, cause error) error {
	return fault.New(fault.Unavailable, CodeFull, "no space left on the disk that holds %s", path).
		WithRemedy("free some space there").WithCause(cause)
}

// Named returns an error as it is, unless it says that a disk is full: then it names the path.
func Named(path string, err error) error {
	if !Full(err) {
		return err
	}

	return Error(path, err)
}

// Free returns the free and total bytes of the disk that holds a directory. Free is what an ordinary user may use.
func Free(dir string) (free, total job.Bytes, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, 0, fmt.Errorf("get the free space of %s: %w", dir, err)
	}

	size := job.Bytes(s.Bsize)

	return job.Bytes(s.Bavail) * size, job.Bytes(s.Blocks) * size, nil
}
