package sandbox

import "golang.org/x/sys/unix"

const (
	auditArch    = unix.AUDIT_ARCH_AARCH64
	firstForeign = 0 // there is no other ABI with the same architecture
)

// deniedHere are denied calls that other architectures do not have.
var deniedHere = []uint32{unix.SYS_KEXEC_FILE_LOAD, unix.SYS_NFSSERVCTL, unix.SYS_LOOKUP_DCOOKIE}
