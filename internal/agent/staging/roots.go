package staging

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"trainyard/internal/fault"
)

// roots are the directories below which datasets may be read, as the operator of this machine lists them. The agent
// may read more than the users whose datasets it stages, so that what a source names is opened only through them.
type roots struct {
	dirs    []string
	private []private // directories that no dataset is read from, wherever they lie
}

// private is a directory by its path and by what identifies it under any other.
type private struct {
	path string
	info fs.FileInfo
}

// newRoots returns the roots. Directories of both lists need not exist.
func newRoots(dirs, secret []string) (roots, error) {
	r := roots{}
	for _, dir := range dirs {
		if !filepath.IsAbs(dir) {
			return r, fmt.Errorf("data root %q must be an absolute path", dir)
		}

		r.dirs = append(r.dirs, filepath.Clean(dir))
	}

	for _, dir := range secret {
		resolved, err := filepath.EvalSymlinks(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return r, fmt.Errorf("find the directory %s: %w", dir, err)
		}

		info, err := os.Stat(resolved)
		if err != nil {
			return r, fmt.Errorf("find the directory %s: %w", dir, err)
		}

		r.private = append(r.private, private{resolved, info})
	}

	return r, nil
}

// below reports whether a path is a directory or lies below it.
func below(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// of returns the root that a path lies below as it is written, and the way from there.
func (r *roots) of(path string) (root, rest string, err error) {
	for _, dir := range r.dirs {
		if !below(path, dir) {
			continue
		}

		if slices.ContainsFunc(r.private, func(p private) bool { return below(path, p.path) }) {
			return "", "", isPrivate(path)
		}

		rest, err := filepath.Rel(dir, path)

		return dir, rest, err
	}

	f := fault.New(fault.Denied, "data_root", "%s is not below a data root of this node", path)
	if len(r.dirs) == 0 {
		return "", "", f.WithRemedy("this node has none; its operator lists them with --data-roots")
	}

	return "", "", f.WithRemedy("its data roots are %s", strings.Join(r.dirs, ", "))
}

// open opens a file or directory below a root with flags. No link on the way may lead out of the roots, and none of
// those of /proc, which lead to open files instead of paths, is followed.
func (r *roots) open(path string, flags int) (*os.File, error) {
	f, err := r.openBeneath(path, flags)
	if !errors.Is(err, unix.EXDEV) {
		return f, err
	}

	// An absolute link counts as one that leads out, even if it leads back in. So the place where it leads is opened,
	// which has to be below a root as well.
	resolved, err := filepath.EvalSymlinks(path)
	if err == nil {
		f, err = r.openBeneath(resolved, flags)
	}

	// Nobody is told what is there outside, not even that something is.
	if err != nil {
		return nil, fault.New(fault.Denied, "data_root", "%s leads out of the data roots of this node", path)
	}

	return f, err
}

// opens is how often an opening is tried that a change of the directories on the way has disturbed.
const opens = 10

// openBeneath opens a file or directory without leaving its root on the way.
func (r *roots) openBeneath(path string, flags int) (*os.File, error) {
	root, rest, err := r.of(path)
	if err != nil {
		return nil, err
	}

	dir, err := os.Open(root)
	if err != nil {
		return nil, fmt.Errorf("open data root: %w", err)
	}

	defer func() { _ = dir.Close() }()

	how := unix.OpenHow{
		Flags:   uint64(flags) | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS,
	}

	fd := -1
	err = unix.EAGAIN

	for try := 0; try < opens && (errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR)); try++ {
		fd, err = unix.Openat2(int(dir.Fd()), rest, &how)
	}

	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}

	f := os.NewFile(uintptr(fd), path)
	if err := r.public(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}

	return f, nil
}

// public refuses an open file or directory that lies in a private directory, or that has one in it.
func (r *roots) public(f *os.File) error {
	resolved, err := os.Readlink(pathOf(f))
	if err != nil {
		return fmt.Errorf("find out where %s is: %w", f.Name(), err)
	}

	for _, p := range r.private {
		if below(resolved, p.path) || below(p.path, resolved) {
			return isPrivate(f.Name())
		}
	}

	return nil
}

// isPrivateDir reports whether a directory is a private one, by whatever path it was found.
func (r *roots) isPrivateDir(info fs.FileInfo) bool {
	return slices.ContainsFunc(r.private, func(p private) bool { return os.SameFile(info, p.info) })
}

func isPrivate(path string) error {
	return fault.New(fault.Denied, "data_private", "%s belongs to the agent of this node", path)
}

// usable checks that a file or directory can be read in place: it exists, and lies below a root.
func (r *roots) usable(path string) error {
	f, err := r.open(path, unix.O_PATH)
	if err != nil {
		return err
	}

	return f.Close()
}

// pathOf is a path by which this process finds an open file, whatever becomes of its name.
func pathOf(f *os.File) string { return "/proc/self/fd/" + strconv.Itoa(int(f.Fd())) }
