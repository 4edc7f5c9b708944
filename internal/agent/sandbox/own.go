package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"syscall"
)

// MakeFolder makes a directory of a user in a directory that no program can write to, unless it is there.
func MakeFolder(dir string, u *User) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make a folder of %s: %w", u, err)
	}

	if err := os.Lchown(dir, u.UID, u.GID); err != nil {
		return fmt.Errorf("give %s to %s: %w", dir, u, err)
	}

	return nil
}

// Own gives a directory and all that is in it to a user, except the entries of the directory itself that skip names.
// It follows no link. Programs of the user must not run meanwhile.
func Own(dir string, u *User, skip func(name string) bool) error {
	return change(dir, u, skip, func(root *os.Root, name string, info fs.FileInfo) error {
		st, ok := info.Sys().(*syscall.Stat_t)
		if ok && int(st.Uid) == u.UID && int(st.Gid) == u.GID {
			return nil
		}

		return root.Lchown(name, u.UID, u.GID)
	})
}

// Seal takes a directory and all that is in it from a user, who may then only read it. It follows no link. Programs of
// the user must not run meanwhile.
func Seal(dir string, u *User) error {
	return change(dir, u, nil, func(root *os.Root, name string, info fs.FileInfo) error {
		if err := root.Lchown(name, 0, u.GID); err != nil || info.Mode()&fs.ModeSymlink != 0 {
			return err
		}

		// The group has the user alone, and gets what the owner had.
		perm := info.Mode().Perm() & 0o700

		return root.Chmod(name, perm|perm>>3&0o050)
	})
}

// change walks over a directory. What a directory contains is changed before itself, since it may become closed.
func change(
	dir string, u *User, skip func(name string) bool, do func(*os.Root, string, fs.FileInfo) error,
) (err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("change the owner of %s: %w", dir, err)
	}

	defer func() { err = errors.Join(err, root.Close()) }()

	if err := changeBelow(root, ".", skip, do); err != nil {
		return fmt.Errorf("change the owner of %s to %s: %w", dir, u, err)
	}

	return nil
}

func changeBelow(
	root *os.Root, name string, skip func(name string) bool, do func(*os.Root, string, fs.FileInfo) error,
) error {
	info, err := root.Lstat(name)
	if err != nil {
		return err
	}

	if info.IsDir() {
		d, err := root.Open(name)
		if err != nil {
			return err
		}

		names, err := d.Readdirnames(-1)
		if err := errors.Join(err, d.Close()); err != nil {
			return err
		}

		for _, n := range names {
			if skip != nil && skip(n) {
				continue
			}

			if err := changeBelow(root, path.Join(name, n), nil, do); err != nil {
				return err
			}
		}
	}

	return do(root, name, info)
}

// CheckOwn makes sure that a directory and all that is in it belongs to the user of this process, and that nobody else
// can write to it.
func CheckOwn(dir string) error {
	return filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}

		info, err := d.Info()
		if err != nil {
			return err
		}

		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok || int(st.Uid) != os.Geteuid() || info.Mode().Perm()&0o022 != 0 || info.Mode()&fs.ModeSymlink != 0 {
			return fmt.Errorf("%s was not written by an agent", name)
		}

		return nil
	})
}
