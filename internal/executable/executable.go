// Package executable writes files that are executed right away.
//
// A file that is open for writing cannot be executed: the kernel refuses it with "text file busy". Closing the file is
// not enough in a program that starts others, because a process that is just being started has a copy of every open
// file until it executes its program.
package executable

import (
	"io/fs"
	"os"
	"syscall"
)

// Write writes a file like os.WriteFile, while this program starts no process. It can be executed when Write returns.
func Write(path string, content []byte, mode fs.FileMode) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()

	return os.WriteFile(path, content, mode)
}
