//go:build !linux

package cloudtest

import "syscall"

// endWithParent does nothing where the kernel cannot do it.
func endWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }
