package rundir

import (
	"fmt"
	"path/filepath"

	"trainyard/internal/job"
)

// ReadStop returns how a rank is to stop, StopNone if no stop was requested.
func ReadStop(dir string) (job.StopMode, error) {
	mode := job.StopNone
	ok, err := readRecord(filepath.Join(dir, StopFile), &mode)
	if err != nil || !ok {
		return job.StopNone, err
	}
	if mode != job.StopDump && mode != job.StopTerm && mode != job.StopKill {
		return job.StopNone, fmt.Errorf("read %s: unknown stop mode %q", StopFile, mode)
	}

	return mode, nil
}

// RequestStop writes how a rank is to stop and wakes its supervisor. A kill is never
// weakened to a term, nor a term to a dump. A supervisor that starts later reads the file first. It needs no disk
// space.
func RequestStop(dir string, mode job.StopMode) error {
	old, err := former(dir)
	if err == nil && old {
		err = requestFormerStop(dir, mode)
	} else if err == nil {
		err = requestStop(dir, mode)
	}

	if err != nil {
		return err
	}

	return Poke(filepath.Join(dir, ControlPipe), "s")
}

func requestStop(dir string, mode job.StopMode) error {
	requested, err := ReadStop(dir)
	if err == nil &&
		(requested == mode || requested == job.StopKill || mode == job.StopDump && requested != job.StopNone) {
		return nil // a damaged request is replaced
	}

	return writeRecord(filepath.Join(dir, StopFile), mode)
}
