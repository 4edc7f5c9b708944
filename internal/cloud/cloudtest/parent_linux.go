package cloudtest

import "syscall"

// endWithParent makes the kernel end the server when the program that started it is killed.
func endWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
