package rundir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// TakeLock takes a rank's lock for this process and reports whether it got it. The lock is released
// when the file is closed or the process dies. Children do not inherit it.
func TakeLock(dir string) (*os.File, bool, error) { return takeLock(filepath.Join(dir, LockFile)) }

// TakeWatchLock takes the lock of a rank's watcher, of which one is enough, as TakeLock does. One process may hold
// those of many ranks.
func TakeWatchLock(dir string) (*os.File, bool, error) {
	return takeLock(filepath.Join(dir, WatchLockFile))
}

func takeLock(path string) (*os.File, bool, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, false, err
	}

	err = unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
	if err == nil {
		return f, true, nil
	}
	if cerr := f.Close(); cerr != nil {
		return nil, false, cerr
	}
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return nil, false, nil
	}

	return nil, false, fmt.Errorf("lock %s: %w", path, err)
}

// LockHolder returns the process, other than this one, that holds a rank's lock; 0 if none does.
func LockHolder(dir string) (int, error) {
	f, err := os.OpenFile(filepath.Join(dir, LockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return 0, err
	}

	defer func() { _ = f.Close() }()

	lk := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &lk); err != nil {
		return 0, fmt.Errorf("query the lock of %s: %w", dir, err)
	}
	if lk.Type == unix.F_UNLCK {
		return 0, nil
	}

	return int(lk.Pid), nil
}
