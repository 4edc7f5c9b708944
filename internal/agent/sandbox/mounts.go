package sandbox

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// viewer makes the view of a program in the mount namespace of this process.
type viewer struct {
	user *User // nil if the program has the rights of this process
	// trees says that sources are mounts without a place, which can be moved into another namespace.
	trees   bool
	sources []*os.File
	placed  []string // where something of the machine is mounted; a program may have made what is in it
}

// Root is empty in every space, for mounts that are to be seen in the same place on every machine.
const Root = "/run/trainyard/job"

// mountAll gives the space its own view of processes and files. With enter it is that of a container, into which this
// thread is moved by it: what is mounted is of the machine all the same.
func mountAll(view View, user *User, enter func() error) (err error) {
	// Mounts of the machine still appear here, those made here do not appear outside.
	if err := separateMounts(); err != nil {
		return err
	}

	w := &viewer{user: user, trees: enter != nil}
	defer func() { err = errors.Join(err, w.close()) }()

	mounts := slices.Clone(view.Mounts)
	for _, dir := range append([]string{Root}, view.Covers...) {
		mounts = append(mounts, Mount{From: cover, To: dir})
	}

	// What lies inside of another comes after it.
	slices.SortStableFunc(mounts, func(a, b Mount) int { return cmp.Compare(len(a.To), len(b.To)) })

	// Opened before anything is covered.
	for _, m := range mounts {
		if err := w.openSource(m); err != nil {
			return err
		}
	}

	if enter != nil {
		if err := enter(); err != nil {
			return err
		}
		if err := separateMounts(); err != nil {
			return err
		}
	}

	for i, m := range mounts {
		if err := w.mount(m, w.sources[i]); err != nil {
			return fmt.Errorf("show %s: %w", m.To, err)
		}
	}

	if enter != nil { // what a program writes there would count for nobody's disk
		const flags = unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV
		if err := unix.Mount("", "/", "", flags, ""); err != nil {
			return fmt.Errorf("make the image read-only: %w", err)
		}
	}

	return mask(view.Masks)
}

// separateMounts keeps what is mounted here from appearing outside, and shows the processes of this namespace.
func separateMounts() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("separate the mounts: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}

	return nil
}

// cover is the source of a mount that only hides what it covers.
const cover = "\x00cover"

func (w *viewer) openSource(m Mount) error {
	if m.From == "" || m.From == cover {
		w.sources = append(w.sources, nil)
		return nil
	}

	if w.trees {
		fd, err := unix.OpenTree(unix.AT_FDCWD, m.From, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		if err != nil {
			return fmt.Errorf("show %s: %w", m.From, err)
		}

		w.sources = append(w.sources, os.NewFile(uintptr(fd), m.From))

		return nil
	}

	f, err := os.OpenFile(m.From, unix.O_PATH, 0)
	if err != nil {
		return fmt.Errorf("show %s: %w", m.From, err)
	}

	w.sources = append(w.sources, f)

	return nil
}

func (w *viewer) close() error {
	var errs []error
	for _, f := range w.sources {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}

	return errors.Join(errs...)
}

// mount carries out one mount.
func (w *viewer) mount(m Mount, source *os.File) error {
	switch m.From {
	case cover:
		return w.cover(m.To)
	case "":
		return w.mountEmpty(m.To)
	}

	info, err := source.Stat()
	if err != nil {
		return err
	}
	if err := w.openWay(m.To); err != nil {
		return err
	}

	at, err := w.target(m.To, info.IsDir())
	if err != nil {
		return err
	}

	defer func() { _ = at.Close() }()

	if err := w.place(source, at); err != nil {
		return err
	}

	w.placed = append(w.placed, m.To)

	if w.user == nil && !m.ReadOnly {
		return nil
	}

	flags := uintptr(unix.MS_BIND | unix.MS_REMOUNT | unix.MS_NOSUID | unix.MS_NODEV)
	if m.ReadOnly {
		flags |= unix.MS_RDONLY
	}

	return unix.Mount("", m.To, "", flags, "")
}

// place mounts a source on a file or directory.
func (w *viewer) place(source, at *os.File) error {
	if w.trees {
		return unix.MoveMount(int(source.Fd()), "", int(at.Fd()), "",
			unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
	}

	return unix.Mount(fdPath(source), fdPath(at), "", unix.MS_BIND, "")
}

func fdPath(f *os.File) string { return "/proc/self/fd/" + strconv.Itoa(int(f.Fd())) }

// cover hides the content of a directory. It does nothing if the directory is not seen anyway.
func (w *viewer) cover(dir string) error {
	if w.inPlaced(dir) {
		return nil
	}

	return w.mountMemory(dir, "mode=755,size=256k")
}

// mountMemory mounts an empty directory in memory.
func (w *viewer) mountMemory(dir, options string) error {
	at, err := w.plainTarget(dir, true)
	if err != nil {
		return err
	}

	defer func() { _ = at.Close() }()

	return unix.Mount("trainyard", fdPath(at), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options)
}

// mountEmpty puts an empty directory in memory, which all may use, in the place of one.
func (w *viewer) mountEmpty(dir string) error {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil // nothing to replace
	}

	return w.mountMemory(dir, "mode=1777")
}

// inPlaced reports whether a path lies in something that was mounted.
func (w *viewer) inPlaced(path string) bool { return w.outer(path) != "" }

// outer returns the innermost mounted directory in which a path lies, "" if there is none.
func (w *viewer) outer(path string) string {
	found := ""
	for _, dir := range w.placed {
		if dir != path && below(path, dir) && len(dir) > len(found) {
			found = dir
		}
	}

	return found
}

// openWay makes sure that the program can reach a path: directories on the way to it that only others may pass are
// covered.
func (w *viewer) openWay(path string) error {
	if w.user == nil {
		return nil
	}

	parts := strings.Split(strings.TrimPrefix(filepath.Dir(path), "/"), "/")
	for i := range parts {
		dir := "/" + filepath.Join(parts[:i+1]...)
		info, err := os.Stat(dir)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}

		if !w.user.mayPass(info) {
			return w.cover(dir)
		}
	}

	return nil
}

// mayPass reports whether a user may use the names in a directory.
func (u *User) mayPass(dir fs.FileInfo) bool {
	st, ok := dir.Sys().(*syscall.Stat_t)
	if !ok {
		return false
	}

	switch perm := dir.Mode().Perm(); {
	case int(st.Uid) == u.UID:
		return perm&0o100 != 0
	case int(st.Gid) == u.GID || slices.Contains(u.Groups, int(st.Gid)):
		return perm&0o010 != 0
	default:
		return perm&0o001 != 0
	}
}

// target opens the file or directory on which something is mounted, and makes it if it is not there. Inside of a
// directory that a program may have filled, as /tmp, no link leads out of that.
func (w *viewer) target(path string, dir bool) (*os.File, error) {
	outer := w.outer(path)
	if outer == "" {
		outer = "/"
	}

	rel, err := filepath.Rel(outer, path)
	if err != nil {
		return nil, err
	}

	if outer == "/" {
		return w.plainTarget(path, dir)
	}

	root, err := os.OpenRoot(outer)
	if err != nil {
		return nil, err
	}

	defer func() { _ = root.Close() }()

	parent := rel
	if !dir {
		parent = filepath.Dir(rel)
	}

	if err := root.MkdirAll(parent, 0o755); err != nil {
		return nil, err
	}

	if dir {
		return root.Open(rel)
	}

	return root.OpenFile(rel, os.O_RDONLY|os.O_CREATE, 0o600)
}

// plainTarget is target for what no program has made.
func (w *viewer) plainTarget(path string, dir bool) (*os.File, error) {
	if w.trees {
		return imageTarget(path, dir)
	}

	if dir {
		if err := os.MkdirAll(path, 0o755); err != nil { //nolint:gosec // programs of other users pass through it
			return nil, err
		}

		return os.Open(path)
	}

	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // likewise
		return nil, err
	}

	return os.OpenFile(path, os.O_RDONLY|os.O_CREATE, 0o600)
}

// mask makes files that the program must not open impossible to open.
func mask(paths []string) error {
	if len(paths) == 0 {
		return nil
	}

	nothing := filepath.Join(Root, ".masked")
	if err := os.WriteFile(nothing, nil, 0); err != nil {
		return fmt.Errorf("mask devices: %w", err)
	}

	for _, path := range paths {
		if err := unix.Mount(nothing, path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mask %s: %w", path, err)
		}
	}

	return nil
}
