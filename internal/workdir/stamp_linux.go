package workdir

import (
	"io/fs"
	"syscall"
)

// stampOf includes the inode and the time of its last change, which no program
// can set back, so that a file replaced by one of equal size and time is noticed.
func stampOf(info fs.FileInfo) stamp {
	s := stamp{Size: info.Size(), MTime: info.ModTime().UnixNano()}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		s.Inode, s.CTime = sys.Ino, sys.Ctim.Nano()
	}

	return s
}
