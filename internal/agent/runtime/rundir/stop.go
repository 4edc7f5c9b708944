package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"trainyard/internal/atomicfile"
	"trainyard/internal/job"
)

// ReadStop returns how a rank is to stop, StopNone if no stop was requested.
func ReadStop(dir string) (job.StopMode, error) {
	data, err := os.ReadFile(filepath.Join(dir, StopFile))
	if errors.Is(err, fs.ErrNotExist) {
		return job.StopNone, nil
	}
	if err != nil {
		return job.StopNone, err
	}

	mode := job.StopMode(data)
	if mode != job.StopTerm && mode != job.StopKill {
		return job.StopNone, fmt.Errorf("read %s: unknown stop mode %q", StopFile, data)
	}

	return mode, nil
}

// RequestStop writes how a rank is to stop and wakes its supervisor. A kill is never
// weakened to a term. A supervisor that starts later reads the file first.
func RequestStop(dir string, mode job.StopMode) error {
	requested, err := ReadStop(dir)
	if err != nil {
		return err
	}

	if requested != mode && requested != job.StopKill {
		path := filepath.Join(dir, StopFile)
		if err := atomicfile.Write(path, []byte(mode), atomicfile.SingleWriter(), atomicfile.Volatile()); err != nil {
			return err
		}
	}

	return Poke(filepath.Join(dir, ControlPipe), "s")
}
