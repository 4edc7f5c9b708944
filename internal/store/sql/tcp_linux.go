package sql

import (
	"syscall"
	"time"
)

// tcpUserTimeout is TCP_USER_TIMEOUT, which the package syscall does not name.
const tcpUserTimeout = 0x12

// userTimeout lets the kernel take a connection for broken when what was sent on it is not acknowledged
// for so long; otherwise it tries for many minutes.
func userTimeout(d time.Duration) func(network, address string, c syscall.RawConn) error {
	return func(network, _ string, c syscall.RawConn) error {
		if network != "tcp4" && network != "tcp6" {
			return nil
		}

		var failed error
		err := c.Control(func(fd uintptr) {
			failed = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(d.Milliseconds()))
		})
		if err != nil {
			return err
		}

		return failed
	}
}
