package checkpoints

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"trainyard/internal/fault"
)

const (
	// maxEntries bounds the work of one look at a checkpoint directory. A larger directory is not saved.
	maxEntries = 200_000
	// maxDepth bounds how deep a checkpoint directory may be.
	maxDepth = 32
	// readBatch is how many entries of a directory are read at a time.
	readBatch = 1024
)

// file is a regular file or a symbolic link of a checkpoint directory, as it was seen at one moment.
type file struct {
	path  string // below the checkpoint directory, with forward slashes
	link  string // target, relative to the directory of the link; "" for a regular file
	size  int64
	mtime time.Time
	ctime time.Time
	inode uint64
	mode  fs.FileMode
	uid   int
}

// same reports whether two looks saw the same content: it was neither written nor replaced.
func (f *file) same(g *file) bool {
	return f.path == g.path && f.link == g.link && f.size == g.size && f.mtime.Equal(g.mtime) && f.inode == g.inode
}

// tree is a checkpoint directory as it was seen at one moment.
type tree struct {
	root  *os.Root
	files []file          // sorted by path
	dirs  map[string]bool // by path; "." is the top
}

// scan looks at a checkpoint directory. It follows no symbolic link and skips whatever is not a file or a directory.
func scan(root *os.Root) (*tree, error) {
	t := &tree{root: root, dirs: map[string]bool{}}
	if err := t.walk(".", 0); err != nil {
		return nil, err
	}

	slices.SortFunc(t.files, func(a, b file) int { return strings.Compare(a.path, b.path) })

	return t, nil
}

// walk reads one directory. One that is removed meanwhile is left out.
func (t *tree) walk(dir string, depth int) error {
	if depth > maxDepth {
		return fault.New(fault.OverLimit, "checkpoint_too_deep",
			"the checkpoint directory is nested deeper than %d", maxDepth)
	}

	d, err := t.root.Open(dir)
	if errors.Is(err, fs.ErrNotExist) && depth > 0 {
		return nil
	}
	if err != nil {
		return err
	}

	defer func() { _ = d.Close() }()

	t.dirs[dir] = true

	for {
		entries, err := d.ReadDir(readBatch)
		for _, e := range entries {
			if err := t.enter(dir, e, depth); err != nil {
				return err
			}
		}

		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// enter takes one entry of a directory.
func (t *tree) enter(dir string, e fs.DirEntry, depth int) error {
	if len(t.files)+len(t.dirs) >= maxEntries {
		return fault.New(fault.OverLimit, "checkpoint_too_many_files",
			"the checkpoint directory has more than %d files", maxEntries)
	}

	name := path.Join(dir, e.Name())
	if unfinished(e.Name()) {
		return nil
	}

	if e.IsDir() {
		return t.walk(name, depth+1)
	}

	f, err := t.lstat(name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNotAFile) {
		return nil
	}
	if err != nil {
		return err
	}

	t.files = append(t.files, f)

	return nil
}

// errNotAFile is for sockets, pipes, devices and links that lead out of the checkpoint directory.
var errNotAFile = errors.New("not a regular file")

// lstat looks at one file.
func (t *tree) lstat(name string) (file, error) {
	info, err := t.root.Lstat(filepath.FromSlash(name))
	if err != nil {
		return file{}, err
	}

	f := describe(name, info)
	switch {
	case info.Mode().IsRegular():
		return f, nil
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := t.root.Readlink(filepath.FromSlash(name))
		if err != nil {
			return file{}, err
		}

		f.size = 0
		f.link = t.inside(name, target)
		if f.link != "" {
			return f, nil
		}
	}

	return file{}, errNotAFile
}

// describe returns what a stat says of a file.
func describe(name string, info fs.FileInfo) file {
	f := file{path: name, size: info.Size(), mtime: info.ModTime(), mode: info.Mode().Perm()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		f.inode, f.uid = st.Ino, int(st.Uid)
		f.ctime = time.Unix(st.Ctim.Unix())
	}

	return f
}

// inside returns the target of a link as a path relative to the directory of the link, "" if it leads out of the
// checkpoint directory.
func (t *tree) inside(name, target string) string {
	from := path.Dir(name)

	if filepath.IsAbs(target) {
		below, err := filepath.Rel(t.root.Name(), target)
		if err != nil || !filepath.IsLocal(below) {
			return ""
		}

		rel, err := filepath.Rel(filepath.FromSlash(from), below)
		if err != nil {
			return ""
		}

		target = rel
	}

	target = filepath.ToSlash(target)
	if !filepath.IsLocal(path.Join(from, target)) {
		return ""
	}

	return target
}

// unfinished reports whether a name is one that programs give to what they still write, and rename when it is
// complete, or one of our own.
func unfinished(name string) bool {
	lower := strings.ToLower(name)
	for _, suffix := range []string{".tmp", ".temp", ".part", ".partial", ".incomplete", ".swp", ".lock"} {
		if strings.HasSuffix(lower, suffix) {
			return true
		}
	}

	for _, prefix := range []string{"tmp-", "tmp_", ".tmp", ".nfs", "__pycache__"} {
		if strings.HasPrefix(lower, prefix) {
			return true
		}
	}

	return strings.Contains(lower, ".orbax-checkpoint-tmp") || strings.Contains(lower, ".tmp-") ||
		strings.Contains(lower, ".tmp.")
}

// below returns the files in a directory and its subdirectories.
func (t *tree) below(dir string) []file {
	if dir == "." {
		return t.files
	}

	prefix := dir + "/"
	at, _ := slices.BinarySearchFunc(t.files, prefix, func(f file, p string) int { return strings.Compare(f.path, p) })
	end := at
	for end < len(t.files) && strings.HasPrefix(t.files[end].path, prefix) {
		end++
	}

	return t.files[at:end]
}

// find returns a file by its path.
func (t *tree) find(name string) (*file, bool) {
	at, ok := slices.BinarySearchFunc(t.files, name, func(f file, p string) int { return strings.Compare(f.path, p) })
	if !ok {
		return nil, false
	}

	return &t.files[at], true
}

// read returns the content of a small file; a larger one is an error.
func (t *tree) read(name string, limit int64) ([]byte, error) {
	f, err := t.root.OpenFile(filepath.FromSlash(name), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}

	defer func() { _ = f.Close() }()

	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(text)) > limit {
		return nil, fault.New(fault.Invalid, "too_large", "%s must not be larger than %d bytes", name, limit)
	}

	return text, nil
}

// newest returns when the last of some files was written.
func newest(files []file) time.Time {
	var at time.Time
	for i := range files {
		if files[i].link == "" && files[i].mtime.After(at) {
			at = files[i].mtime
		}
	}

	return at
}
