//go:build !linux

package sql

import (
	"syscall"
	"time"
)

// userTimeout changes nothing where the kernel has no such limit; the timeouts of the store still hold.
func userTimeout(time.Duration) func(network, address string, c syscall.RawConn) error { return nil }
