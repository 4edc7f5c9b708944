package rundir

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// InputVar is the variable with the path of a program's input, of one that reads some.
const InputVar = "TRAINYARD_INPUT"

// InputPath returns the path of the program's input, given the run directory; "" if it reads none.
func (r *Record) InputPath(dir string) string {
	if !r.Launch.Input {
		return ""
	}

	return filepath.Join(r.Requests(dir), InputPipe)
}

// MakeInput makes the input of a program: a named pipe, to which people who are let into the run can write. It is there
// from the start to the end of the run, whoever comes and goes.
func (r *Record) MakeInput(dir string) error {
	path := r.InputPath(dir)
	if path == "" {
		return nil
	}

	if err := unix.Mkfifo(path, 0o600); err != nil {
		return fmt.Errorf("make the input of the program: %w", err)
	}

	if r.User == nil {
		return nil
	}

	return os.Chown(path, r.User.UID, r.User.GID)
}

// Script returns the command of a program, which opens its input first. It opens it for both directions, so that the
// input never ends: one person may leave, and another come.
func (r *Record) Script() string {
	if !r.Launch.Input {
		return r.Launch.Command
	}

	return `exec 0<>"$` + InputVar + `"; ` + r.Launch.Command
}
