package supervisor

import (
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"trainyard/internal/job"
)

// fingerprint returns a digest that changes when anything in a directory changes, and the size of
// its content. It considers names, sizes and times, not the content of files.
func fingerprint(root string) ([sha256.Size]byte, job.Bytes, error) {
	h := sha256.New()
	var size int64
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}

		info, err := d.Info()
		if err != nil {
			return err
		}

		var changed int64
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			changed = st.Ctim.Nano()
		}

		size += info.Size()
		_, err = fmt.Fprintf(h, "%q %v %d %d %d\n", path, info.Mode(), info.Size(), info.ModTime().UnixNano(), changed)

		return err
	})

	var sum [sha256.Size]byte
	h.Sum(sum[:0])

	return sum, job.Bytes(size), err
}

// copyTree copies a directory with its links, modes and times. Pipes, sockets and devices are left
// out. Files share their blocks where the file system supports that.
func copyTree(from, to string) error {
	type folder struct {
		path string
		info fs.FileInfo
	}

	var folders []folder

	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}

		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}

		info, err := d.Info()
		if err != nil {
			return err
		}

		dst := filepath.Join(to, rel)
		switch {
		case d.IsDir():
			folders = append(folders, folder{dst, info})
			return os.Mkdir(dst, 0o700)
		case d.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}

			return os.Symlink(target, dst) //nolint:gosec // no process of the run is left to change it
		case d.Type().IsRegular():
			return copyFile(path, dst, info)
		}

		return nil
	})
	if err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}

	// From the inside out, because a directory may become read-only, and writing into it changes
	// its time.
	for i := len(folders) - 1; i >= 0; i-- {
		if err := setModeAndTime(folders[i].path, folders[i].info); err != nil {
			return fmt.Errorf("copy %s: %w", from, err)
		}
	}

	return nil
}

func setModeAndTime(path string, info fs.FileInfo) error {
	if err := os.Chtimes(path, info.ModTime(), info.ModTime()); err != nil {
		return err
	}

	// Not setuid or setgid: the copy belongs to another user than the file.
	return os.Chmod(path, info.Mode().Perm()|info.Mode()&fs.ModeSticky)
}

func copyFile(from, to string, info fs.FileInfo) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}

	defer func() { _ = in.Close() }()

	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}

	if unix.IoctlFileClone(int(out.Fd()), int(in.Fd())) != nil {
		_, err = io.Copy(out, in)
	}

	if cerr := out.Close(); err == nil {
		err = cerr
	}

	if err != nil {
		return err
	}

	return setModeAndTime(to, info)
}
