package sandbox

import "golang.org/x/sys/unix"

// Offsets in the data that a filter sees: the call, the architecture, and the lower halves of the first arguments
// on the little-endian machines that we support.
const (
	numberOffset = 0
	archOffset   = 4
	arg0Offset   = 16
	arg1Offset   = 24
	arg2Offset   = 32
)

// newNamespaces are the flags of clone and unshare that make namespaces.
const newNamespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET |
	unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWTIME

// denied are calls that no training needs and that need privileges, or through which kernels have been attacked. They
// fail with EPERM.
var denied = []uint32{
	// Mounts and namespaces.
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_SETNS, unix.SYS_OPEN_TREE,
	unix.SYS_MOVE_MOUNT, unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR,
	unix.SYS_OPEN_BY_HANDLE_AT,
	// The kernel itself.
	unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_KEXEC_LOAD, unix.SYS_REBOOT,
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_SYSLOG, unix.SYS_ACCT, unix.SYS_SWAPON, unix.SYS_SWAPOFF,
	unix.SYS_QUOTACTL, unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_VHANGUP, unix.SYS_FANOTIFY_INIT,
	// Keys are shared by all processes of a user, in whichever run.
	unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY,
	// Often attacked.
	unix.SYS_USERFAULTFD, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
}

// filter returns the seccomp filter of programs. It lists what is denied, not what is allowed: what trainings call is
// not known, and the walls between users are ids, capabilities and namespaces; the filter makes them thicker.
//
// ptrace is allowed, for debuggers and profilers: a program sees only its own processes.
func filter() []unix.SockFilter {
	if auditArch == 0 {
		return nil
	}

	eperm := ret(unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM))
	enosys := ret(unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS))
	allow := ret(unix.SECCOMP_RET_ALLOW)

	f := []unix.SockFilter{
		load(archOffset), jumpEqual(auditArch, 1, 0), enosys, // calls of another architecture have other numbers
		load(numberOffset),
	}

	if firstForeign > 0 {
		f = append(f, jumpAtLeast(firstForeign, 0, 1), enosys)
	}

	for _, list := range [][]uint32{denied, deniedHere} {
		for _, call := range list {
			f = append(f, jumpEqual(call, 0, 1), eperm)
		}
	}

	// A filter cannot read the flags of clone3, which are in memory. Libraries use clone if it does not exist.
	f = append(f, jumpEqual(unix.SYS_CLONE3, 0, 1), enosys)

	// A socket that is bound to a device is not subject to routing rules, by which the metadata service is blocked: where
	// they refuse a way, the kernel takes the address for one on the wire.
	f = append(f,
		jumpEqual(unix.SYS_SETSOCKOPT, 0, 7),
		load(arg1Offset), jumpEqual(unix.SOL_SOCKET, 0, 4),
		load(arg2Offset), jumpEqual(unix.SO_BINDTODEVICE, 1, 0), jumpEqual(unix.SO_BINDTOIFINDEX, 0, 1), eperm, allow)

	// clone and unshare are for threads and processes, not for namespaces.
	f = append(f,
		jumpEqual(unix.SYS_CLONE, 1, 0), jumpEqual(unix.SYS_UNSHARE, 0, 3),
		load(arg0Offset), jumpSet(newNamespaces, 0, 1), eperm)

	return append(f, allow)
}

func load(offset uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
}

func ret(action uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: action}
}

// A jump skips so many instructions if its condition is true, and so many if it is false.
func jump(how uint16, k uint32, isTrue, isFalse uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | how | unix.BPF_K, K: k, Jt: isTrue, Jf: isFalse}
}

func jumpEqual(k uint32, isTrue, isFalse uint8) unix.SockFilter {
	return jump(unix.BPF_JEQ, k, isTrue, isFalse)
}

func jumpAtLeast(k uint32, isTrue, isFalse uint8) unix.SockFilter {
	return jump(unix.BPF_JGE, k, isTrue, isFalse)
}

func jumpSet(k uint32, isTrue, isFalse uint8) unix.SockFilter {
	return jump(unix.BPF_JSET, k, isTrue, isFalse)
}
