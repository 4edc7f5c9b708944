// Package fifo is the named pipes by which an agent and the supervisors of its runs wake each other. What is
// to be known lies in files; the pipes only say that there is something new.
package fifo

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
)

// Make makes a named pipe, unless it is there.
func Make(path string) error {
	if err := unix.Mkfifo(path, 0o600); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make the pipe %s: %w", path, err)
	}
	return nil
}

// Poke writes to a named pipe. If nobody has it open, or it is full, that is no
// error: who opens it, or finds it full, looks at everything.
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
