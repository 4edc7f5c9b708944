package rundir

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
)

// MakePipe makes a named pipe unless it exists. Agent and supervisors wake each other
// by such pipes; the information itself is in files.
func MakePipe(path string) error {
	if err := unix.Mkfifo(path, 0o600); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("create the pipe %s: %w", path, err)
	}

	return nil
}

// Poke writes to a named pipe. It is not an error if no process has the pipe open or
// if the pipe is full: its reader looks at all files when it opens the pipe or finds
// it full.
func Poke(path, text string) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}

	_, err = unix.Write(fd, []byte(text))
	if cerr := unix.Close(fd); err == nil {
		err = cerr
	}

	if err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EPIPE) {
		return fmt.Errorf("write %s: %w", path, err)
	}

	return nil
}
