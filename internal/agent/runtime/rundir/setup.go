package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"trainyard/internal/job"
)

// SetupPlan says where a rank's set-up is cached.
type SetupPlan struct {
	Key string `json:"key"`
	Dir string `json:"dir"` // <data>/setups/<key>
}

// Names inside the directory of a cached set-up.
const (
	SetupDirName    = "dir"         // TRAINYARD_SETUP_DIR
	SetupTreeName   = "tree"        // the working directory after the set-up, if the set-up changed it
	SetupResultFile = "result.json" // written last; its modification time is that of the last use
	SetupUseLock    = "use.lock"    // shared by the runs that use the set-up, exclusive for its removal
	SetupMakeLock   = "make.lock"   // held by the run that makes the set-up
)

// SetupResult is the content of SetupResultFile.
type SetupResult struct {
	Tree bool      `json:"tree"` // the set-up changed the working directory
	Size job.Bytes `json:"size"`
}

// OutputDir returns the value of TRAINYARD_SETUP_DIR, "" for a rank without a set-up.
func (p *SetupPlan) OutputDir() string {
	if p == nil {
		return ""
	}

	return filepath.Join(p.Dir, SetupDirName)
}

// TryLockSetup takes a lock of a set-up. It returns nil if another process holds it. If the
// directory is removed at the same moment, it is created again.
func TryLockSetup(dir, name string, how int) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}

	path := filepath.Join(dir, name)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}

	err = unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
	if err == nil {
		mine, err1 := f.Stat()
		there, err2 := os.Stat(path)
		if err1 == nil && err2 == nil && os.SameFile(mine, there) {
			return f, nil
		}

		err = unix.EWOULDBLOCK
	}

	if cerr := f.Close(); cerr != nil {
		return nil, cerr
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, nil
	}

	return nil, fmt.Errorf("lock set-up %s: %w", path, err)
}
