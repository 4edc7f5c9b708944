package sandbox

import "golang.org/x/sys/unix"

const (
	auditArch    = unix.AUDIT_ARCH_X86_64
	firstForeign = 0x40000000 // calls of the x32 ABI
)

// deniedHere are denied calls that other architectures do not have.
var deniedHere = []uint32{
	unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_CREATE_MODULE, unix.SYS_QUERY_MODULE,
	unix.SYS_GET_KERNEL_SYMS, unix.SYS_USELIB, unix.SYS_USTAT, unix.SYS_SYSFS, unix.SYS__SYSCTL, unix.SYS_NFSSERVCTL,
	unix.SYS_LOOKUP_DCOOKIE,
}
