// Package tarstream copies files and folders as tar streams, from below one folder to below another.
//
// It is used on both sides of trainyard cp: by the command line, and inside the walls of a job. Neither side trusts the
// other, so nothing is read or written outside of the folder that a side gives it, whatever names and links say.
package tarstream

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// folderMode is that of folders that have to be made on the way to a file.
const folderMode = 0o755

// inside makes a path one below the folder, or says why it is not.
func inside(name string) (string, error) {
	clean := path.Clean("./" + name)
	if path.IsAbs(name) || !filepath.IsLocal(clean) {
		return "", fmt.Errorf("the path must lie in the folder, got %q", name)
	}

	return clean, nil
}

// Write writes a file or folder below root to a tar stream. The first part of the names of its entries is that of the
// file or folder itself.
func Write(root *os.Root, name string, out io.Writer) error {
	at, err := inside(name)
	if err != nil {
		return err
	}

	info, err := root.Stat(at) // a link that is named is followed, if it stays inside
	if err != nil {
		return plain(err)
	}

	w := tar.NewWriter(out)
	base := path.Base(at)

	if !info.IsDir() {
		err = add(root, w, at, base, info)
	} else {
		err = fs.WalkDir(root.FS(), at, func(p string, d fs.DirEntry, err error) error {
			if err != nil {
				return plain(err)
			}

			info, err := d.Info()
			if errors.Is(err, fs.ErrNotExist) {
				return nil // the program has removed it meanwhile
			}
			if err != nil {
				return plain(err)
			}

			return add(root, w, p, path.Join(base, strings.TrimPrefix(strings.TrimPrefix(p, at), "/")), info)
		})
	}

	if err != nil {
		return err
	}

	return w.Close()
}

// add writes one entry. What is neither a file nor a folder nor a link, such as a socket, is left out.
func add(root *os.Root, w *tar.Writer, at, name string, info fs.FileInfo) error {
	link := ""
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		var err error
		if link, err = root.Readlink(at); err != nil {
			return plain(err)
		}
	case !info.IsDir() && !info.Mode().IsRegular():
		return nil
	}

	header, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}

	header.Name = name
	if info.IsDir() {
		header.Name += "/"
	}

	// Who it belongs to here means nothing elsewhere.
	header.Uid, header.Gid, header.Uname, header.Gname = 0, 0, "", ""

	if err := w.WriteHeader(header); err != nil || !info.Mode().IsRegular() {
		return err
	}

	f, err := root.Open(at)
	if err != nil {
		return plain(err)
	}

	defer func() { _ = f.Close() }()

	// A file that grows meanwhile is copied as it was; one that shrinks cannot be.
	n, err := io.CopyN(w, f, header.Size)
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%s became shorter while it was copied: %d of %d bytes", at, n, header.Size)
	}

	return err
}

// Read writes the entries of a tar stream to a place below root. If that is a folder, or ends with a slash, they come
// into it; otherwise what the stream has gets this name. Nothing is written outside of root, whatever the names and
// links of the stream are; a link that would lead out of what is copied is skipped, and noted by skipped if that is
// not nil. A file that is there is replaced as a whole.
func Read(root *os.Root, target string, in io.Reader, skipped func(name string)) error {
	at, err := inside(target)
	if err != nil {
		return err
	}

	rename := ""
	if info, err := root.Stat(at); (err != nil || !info.IsDir()) && !strings.HasSuffix(target, "/") {
		at, rename = path.Dir(at), path.Base(at)
	}

	if err := root.MkdirAll(at, folderMode); err != nil {
		return plain(err)
	}

	for r := tar.NewReader(in); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the files: %w", err)
		}

		name := path.Clean(header.Name)
		if !filepath.IsLocal(name) {
			return fmt.Errorf("the name of a file leads out of the folder: %q", header.Name)
		}

		if rename != "" {
			_, rest, _ := strings.Cut(name, "/")
			name = path.Join(rename, rest)
		}

		if err := extract(root, path.Join(at, name), name, header, r, skipped); err != nil {
			return plain(err)
		}
	}
}

// staysInside reports whether a link has a target in the folder that is copied, as far as its text tells.
func staysInside(name, link string) bool {
	top, _, _ := strings.Cut(name, "/")
	target := path.Join(path.Dir(name), link)

	return !path.IsAbs(link) && (target == top || strings.HasPrefix(target, top+"/"))
}

// extract writes one entry.
func extract(
	root *os.Root, target, name string, header *tar.Header, content io.Reader, skipped func(name string),
) error {
	mode := header.FileInfo().Mode().Perm()

	switch header.Typeflag {
	case tar.TypeDir:
		if err := root.MkdirAll(target, folderMode); err != nil {
			return err
		}

		return root.Chmod(target, mode|0o700)
	case tar.TypeSymlink:
		if !staysInside(name, header.Linkname) {
			if skipped != nil {
				skipped(name)
			}

			return nil
		}

		if err := root.MkdirAll(path.Dir(target), folderMode); err != nil {
			return err
		}

		if err := root.Remove(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}

		return root.Symlink(header.Linkname, target)
	case tar.TypeReg:
		if err := root.MkdirAll(path.Dir(target), folderMode); err != nil {
			return err
		}

		return writeFile(root, target, mode, content)
	}

	return nil // what is neither is nothing that we send
}

// writeFile writes a file beside its place and then puts it there: a program that reads it sees the old one or the new
// one.
func writeFile(root *os.Root, target string, mode fs.FileMode, content io.Reader) (err error) {
	draft := path.Join(path.Dir(target), "."+path.Base(target)+".trainyard-copy")
	if err := root.Remove(draft); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}

	f, err := root.OpenFile(draft, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode|0o600)
	if err != nil {
		return err
	}

	_, err = io.Copy(f, content)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = root.Rename(draft, target)
	}

	if err != nil {
		return errors.Join(err, root.Remove(draft))
	}

	return nil
}

// plain drops the name of the system call from an error of a path.
func plain(err error) error {
	var of *fs.PathError
	if errors.As(err, &of) {
		return fmt.Errorf("%s: %w", of.Path, of.Err)
	}

	return err
}
