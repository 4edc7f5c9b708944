//go:build !linux

package workdir

import "io/fs"

// stampOf goes by size and time alone where the inode is not to be had portably.
func stampOf(info fs.FileInfo) stamp {
	return stamp{Size: info.Size(), MTime: info.ModTime().UnixNano()}
}
