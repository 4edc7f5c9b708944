package checkpoints

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// beingWritten reports whether a program has one of the files open for writing. The kernel says so when it is asked
// for a read lease. Where it has none to give, as on network file systems, the answer is no.
func beingWritten(t *tree, files []file) bool {
	for i := range files {
		if files[i].link == "" && openForWriting(t, files[i].path) {
			return true
		}
	}

	return false
}

func openForWriting(t *tree, name string) bool {
	f, err := t.root.OpenFile(filepath.FromSlash(name), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}

	defer func() { _ = f.Close() }()

	_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK)
	if err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
	}

	return errors.Is(err, unix.EAGAIN)
}
