package rundir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"trainyard/internal/atomicfile"
	"trainyard/internal/contact"
	"trainyard/internal/job"
)

// Names of files of version 0.1.0. A supervisor of that version that outlives an upgrade of its agent reads and
// writes these, so the agent does too, for that rank only.
const (
	formerStateFile = "state.json"
	formerStopFile  = "stop"
	formerLeaseFile = "contact-lease"
)

// former reports whether a run directory was made by version 0.1.0: it has no room for a stop request.
func former(dir string) (bool, error) {
	_, err := os.Stat(filepath.Join(dir, StopFile))
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}

	return false, err
}

// Renew makes room in a run directory of version 0.1.0 that no supervisor has taken, so that one of this version
// can. Any other is left alone.
func Renew(dir string) error {
	if old, err := former(dir); err != nil || !old {
		return err
	}

	return Reserve(dir)
}

// requestFormerStop asks a supervisor of version 0.1.0 to stop.
func requestFormerStop(dir string, mode job.StopMode) error {
	path := filepath.Join(dir, formerStopFile)

	requested, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if job.StopMode(requested) == job.StopKill {
		return nil
	}

	return atomicfile.Write(path, []byte(mode), atomicfile.SingleWriter(), atomicfile.Volatile())
}

// writeFormerLease renews the contact lease for supervisors of version 0.1.0, if there may be some: its file is
// there until DropFormerLease removes it.
func writeFormerLease(dir string, lease contact.Lease) error {
	path := filepath.Join(dir, formerLeaseFile)
	if _, err := os.Stat(path); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}

		return err
	}

	return WriteJSON(path, lease, false)
}

// DropFormerLease removes the contact lease for supervisors of version 0.1.0, unless one of these run
// directories may still have one.
func DropFormerLease(data string, dirs []string) error {
	for _, dir := range dirs {
		if old, err := former(dir); err != nil || old {
			return err
		}
	}

	err := os.Remove(filepath.Join(data, formerLeaseFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	return err
}
