package subprocess

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Program is a program in memory. It needs no file that somebody could remove or replace, and no file system on which
// programs may be executed. Processes that run it outlive the one that loaded it.
type Program struct{ fd int }

// Load puts a program into memory, where it stays until Close.
func Load(content []byte) (*Program, error) {
	// What is open for writing cannot be executed, also not if it is open in a process that is just being started.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()

	fd, err := unix.MemfdCreate("trainyard", unix.MFD_CLOEXEC|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // a kernel on which every such file can be executed
		fd, err = unix.MemfdCreate("trainyard", unix.MFD_CLOEXEC)
	}

	if err != nil {
		return nil, fmt.Errorf("load a program: %w", err)
	}

	file := os.NewFile(uintptr(fd), "trainyard")
	p := &Program{}

	_, err = file.Write(content)
	if err == nil {
		p.fd, err = unix.Open(descriptor(fd), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	}

	if err := errors.Join(err, file.Close()); err != nil {
		return nil, fmt.Errorf("load a program: %w", err)
	}

	return p, nil
}

// Path returns a path by which this process, and no other, can start the program.
func (p *Program) Path() string { return descriptor(p.fd) }

// Close frees the memory once no process runs the program.
func (p *Program) Close() error { return unix.Close(p.fd) }

func descriptor(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }
