package sandbox

import (
	"errors"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// resolveInside keeps a path inside of the container: an image may have links that lead through /proc to the root of
// another process, such as that of the first process of the space, which has the files of the machine.
const resolveInside = unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS

// imageTarget opens the file or directory of an image on which something is mounted, and makes it if it is not there.
func imageTarget(name string, dir bool) (*os.File, error) {
	root, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}

	defer func() { _ = unix.Close(root) }()

	name = strings.TrimPrefix(path.Clean(name), "/")

	if dir {
		return imageFolder(root, name)
	}

	parent, err := imageFolder(root, path.Dir(name))
	if err != nil {
		return nil, err
	}

	defer func() { _ = parent.Close() }()

	// What is there may be a pipe, which would wait.
	const flags = unix.O_RDONLY | unix.O_CREAT | unix.O_NONBLOCK

	return openInside(root, name, flags)
}

// imageFolder opens a directory, and makes it and those that it is in.
func imageFolder(root int, name string) (*os.File, error) {
	f, err := openInside(root, name, unix.O_PATH|unix.O_DIRECTORY)
	if !errors.Is(err, unix.ENOENT) || name == "." {
		return f, err
	}

	parent, err := imageFolder(root, path.Dir(name))
	if err != nil {
		return nil, err
	}

	defer func() { _ = parent.Close() }()

	if err := unix.Mkdirat(int(parent.Fd()), path.Base(name), 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, &os.PathError{Op: "mkdir", Path: name, Err: err}
	}

	return openInside(root, name, unix.O_PATH|unix.O_DIRECTORY)
}

func openInside(root int, name string, flags uint64) (*os.File, error) {
	how := unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: resolveInside}
	if flags&unix.O_CREAT != 0 {
		how.Mode = 0o600
	}

	fd, err := unix.Openat2(root, name, &how)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}

	return os.NewFile(uintptr(fd), name), nil
}
