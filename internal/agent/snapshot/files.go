package snapshot

import (
	"archive/tar"
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// pack writes the files of a program into an archive.
func pack(path string, kept Kept) (err error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("save the files of the program: %w", err)
	}

	buf := bufio.NewWriterSize(file, 1<<20)
	w := tar.NewWriter(buf)
	for _, name := range kept.Names {
		if err == nil {
			err = packTree(w, kept.Dir, name)
		}
	}

	err = errors.Join(err, w.Close(), buf.Flush(), file.Sync(), file.Close())
	if err != nil {
		return fmt.Errorf("save the files of the program: %w", err)
	}

	return nil
}

// packTree adds a file, or a directory with all that is in it.
func packTree(w *tar.Writer, dir, name string) error {
	err := filepath.WalkDir(filepath.Join(dir, name), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}

		info, err := d.Info()
		if err != nil {
			return err
		}
		if info.Mode()&fs.ModeSocket != 0 {
			return nil // it is of no use without its process, which makes a new one
		}

		return packEntry(w, dir, path, info)
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	return err
}

func packEntry(w *tar.Writer, dir, path string, info fs.FileInfo) error {
	link := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		var err error
		link, err = os.Readlink(path)
		if err != nil {
			return err
		}
	}

	h, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}

	h.Name, err = filepath.Rel(dir, path)
	if err != nil {
		return err
	}

	h.Format = tar.FormatPAX // keeps fractions of seconds
	if err := w.WriteHeader(h); err != nil || !info.Mode().IsRegular() {
		return err
	}

	file, err := os.Open(path)
	if err != nil {
		return err
	}

	_, err = io.Copy(w, file)

	return errors.Join(err, file.Close())
}

// unpack replaces the files of a program by those of an archive.
func unpack(path string, kept Kept) (err error) {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("put the files of the program back: %w", err)
	}

	defer func() { _ = file.Close() }()

	// A Root does not follow links out of the directory.
	root, err := os.OpenRoot(kept.Dir)
	if err != nil {
		return fmt.Errorf("put the files of the program back: %w", err)
	}

	defer func() { _ = root.Close() }()

	for _, name := range kept.Names {
		err = errors.Join(err, root.RemoveAll(name))
	}

	if err == nil {
		err = unpackAll(tar.NewReader(bufio.NewReaderSize(file, 1<<20)), root)
	}

	if err != nil {
		return fmt.Errorf("put the files of the program back: %w", err)
	}

	return nil
}

// unpackAll puts directories right at the end, because one may be read-only.
func unpackAll(r *tar.Reader, root *os.Root) error {
	var dirs []*tar.Header
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}

		switch h.Typeflag {
		case tar.TypeDir:
			dirs = append(dirs, h)
			err = root.MkdirAll(h.Name, 0o700)
		case tar.TypeSymlink:
			err = root.Symlink(h.Linkname, h.Name)
		case tar.TypeReg:
			err = unpackFile(r, root, h)
		}

		if err != nil {
			return err
		}
	}

	for i := len(dirs) - 1; i >= 0; i-- {
		h := dirs[i]
		if err := root.Chtimes(h.Name, h.ModTime, h.ModTime); err != nil {
			return err
		}
		if err := root.Chmod(h.Name, h.FileInfo().Mode().Perm()); err != nil {
			return err
		}
	}

	return nil
}

func unpackFile(r io.Reader, root *os.Root, h *tar.Header) error {
	file, err := root.OpenFile(h.Name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}

	_, err = io.Copy(file, r)

	return errors.Join(err, file.Chmod(h.FileInfo().Mode().Perm()), file.Close(), root.Chtimes(h.Name, h.ModTime,
		h.ModTime))
}
