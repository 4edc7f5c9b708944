package sandbox

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// confine takes all privileges from this thread that a program started by it could use: it and its descendants never
// get more rights than their user has. The thread keeps what it needs to become that user.
func confine() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}

	for c := uintptr(0); ; c++ {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) {
			break // the kernel has no more of them
		}
		if err != nil {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}

	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("drop the ambient capabilities: %w", err)
	}
	if err := clearInheritable(); err != nil {
		return err
	}

	return installFilter(filter())
}

// MaySave returns why CRIU cannot save the programs of other users here: it asks for their limits, and root in a
// container may lack the capability for that.
func MaySave() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("read the capabilities: %w", err)
	}

	if data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) == 0 {
		return errors.New("the agent lacks CAP_SYS_RESOURCE, which saving programs of other users needs")
	}

	return nil
}

// clearInheritable empties the set of capabilities that survive an exec. The others are lost with the user id.
func clearInheritable() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("read the capabilities: %w", err)
	}

	for i := range data {
		data[i].Inheritable = 0
	}

	if err := unix.Capset(&header, &data[0]); err != nil {
		return fmt.Errorf("drop the inheritable capabilities: %w", err)
	}

	return nil
}

// installFilter applies a seccomp filter to this thread. An empty one is that of an architecture without one.
func installFilter(f []unix.SockFilter) error {
	if len(f) == 0 {
		return nil
	}

	prog := unix.SockFprog{Len: uint16(len(f)), Filter: &f[0]}

	//nolint:gosec // the kernel takes the address of the filter
	_, _, errno := unix.Syscall(unix.SYS_PRCTL, unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER,
		uintptr(unsafe.Pointer(&prog)))

	switch errno {
	case 0, unix.EINVAL: // EINVAL: a kernel without filters
		return nil
	default:
		return fmt.Errorf("install the seccomp filter: %w", errno)
	}
}
