package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"trainyard/internal/atomicfile"
	"trainyard/internal/diskspace"
	"trainyard/internal/fault"
)

// Dir keeps blobs as files of a folder.
type Dir struct {
	root string
	temp string // files that are being written
	disk atomicfile.Disk

	staging staging

	mu sync.Mutex
	// unsynced are the folders in which a Put has failed: its blob may have its name already, but not survive a power
	// cut.
	unsynced map[string]bool
	// writing counts the Puts that need a folder to stay, by the names of folders.
	writing map[string]int
}

var (
	_ Store  = (*Dir)(nil)
	_ Local  = (*Dir)(nil)
	_ Pruner = (*Dir)(nil)
)

// Unfinished is the folder of files that are being written. All are in one, so
// that a start need not look through everything for what a crash left, and a backup can leave it out.
const Unfinished = ".unfinished"

// OpenDir opens a folder as a blob store and makes it if it is not there. What
// a crash left half written is removed.
func OpenDir(root string) (*Dir, error) { return OpenDirOn(atomicfile.OS{}, root) }

// OpenDirOn opens a folder of a disk other than that of this machine; it is for tests.
func OpenDirOn(disk atomicfile.Disk, root string) (*Dir, error) {
	if err := os.RemoveAll(filepath.Join(root, Unfinished)); err != nil {
		return nil, fmt.Errorf("clean blob folder: %w", err)
	}
	if err := os.MkdirAll(filepath.Join(root, Unfinished), 0o700); err != nil {
		return nil, fmt.Errorf("create blob folder: %w", err)
	}
	if err := disk.SyncDir(filepath.Dir(root)); err != nil {
		return nil, fmt.Errorf("create blob folder: %w", err)
	}

	absolute, err := filepath.Abs(root)
	if err != nil {
		return nil, fmt.Errorf("open blob folder: %w", err)
	}

	return newDir(disk, absolute, filepath.Join(absolute, Unfinished)), nil
}

func newDir(disk atomicfile.Disk, root, temp string) *Dir {
	return &Dir{
		root: root, temp: temp, disk: disk, staging: staging{files: map[string]staged{}}, unsynced: map[string]bool{},
		writing: map[string]int{},
	}
}

// path returns the file of a name.
func (d *Dir) path(name string) (string, error) {
	if err := CheckName(name); err != nil {
		return "", err
	}

	if first, _, _ := strings.Cut(name, "/"); first == Unfinished {
		return "", fault.New(fault.Invalid, "blob_name", "blob name %q is reserved", name)
	}

	return filepath.Join(d.root, filepath.FromSlash(name)), nil
}

// Put writes to a file apart, syncs it, renames it and syncs the folder, so that a crash or a power
// cut leaves either nothing or all of it, and all of it once Put has returned.
func (d *Dir) Put(ctx context.Context, name string, r io.Reader) error {
	file, err := d.path(name)
	if err != nil {
		return err
	}

	d.hold(name, 1)
	defer d.hold(name, -1)

	if err := atomicfile.MkdirAll(d.disk, d.root, filepath.Dir(file)); err != nil {
		return d.unavailable("write", name, err)
	}

	temp := atomicfile.TempDir(d.temp)
	if err := atomicfile.WriteFrom(file, readerUntil{ctx, r}, temp, atomicfile.On(d.disk)); err != nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.unsynced[filepath.Dir(file)] = true

		return d.unavailable("write", name, err)
	}

	return nil
}

// hold adds to how many Puts need the folders of a blob.
func (d *Dir) hold(name string, puts int) {
	d.mu.Lock()
	defer d.mu.Unlock()

	for folder := path.Dir(name); folder != "."; folder = path.Dir(folder) {
		d.writing[folder] += puts
		if d.writing[folder] == 0 {
			delete(d.writing, folder)
		}
	}
}

// Prune removes the folders of a blob that was deleted, as far as they are empty, except the outermost. Only Put may be
// used for blobs beside it: Stage relies on folders that were there once.
func (d *Dir) Prune(name string) error {
	if _, err := d.path(name); err != nil {
		return err
	}

	d.mu.Lock()
	defer d.mu.Unlock()

	for folder := path.Dir(name); path.Dir(folder) != "."; folder = path.Dir(folder) {
		if d.writing[folder] > 0 {
			return nil
		}

		err := d.disk.Remove(filepath.Join(d.root, filepath.FromSlash(folder)))
		if errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EEXIST) {
			return nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return d.unavailable("remove the folder of", name, err)
		}
	}

	return nil
}

// syncNames makes the names in a folder survive a power cut, if a Put has failed there.
func (d *Dir) syncNames(folder string) error {
	d.mu.Lock()
	defer d.mu.Unlock()

	if !d.unsynced[folder] {
		return nil
	}

	if err := d.disk.SyncDir(folder); err != nil {
		return err
	}

	delete(d.unsynced, folder)

	return nil
}

// readerUntil stops reading when its context ends.
type readerUntil struct {
	ctx context.Context //nolint:containedctx // lives for one copy
	r   io.Reader
}

func (u readerUntil) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}

	return u.r.Read(p)
}

// Get opens a blob for reading.
func (d *Dir) Get(_ context.Context, name string) (io.ReadCloser, error) {
	f, _, err := d.open(name)
	if err != nil {
		return nil, err
	}

	return f, nil
}

// GetRange opens a part of a blob for reading.
func (d *Dir) GetRange(_ context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	f, size, err := d.open(name)
	if err != nil {
		return nil, err
	}

	if offset < 0 || length < 0 || offset > size || length > size-offset {
		return nil, errors.Join(BadRange(name, offset, length), f.Close())
	}

	return &section{io.NewSectionReader(f, offset, length), f}, nil
}

// section is a part of a file, which is closed with it.
type section struct {
	*io.SectionReader
	io.Closer
}

// open opens the file of a blob and returns its size.
func (d *Dir) open(name string) (*os.File, int64, error) {
	info, err := d.Stat(context.Background(), name)
	if err != nil {
		return nil, 0, err
	}

	file, err := d.path(name)
	if err != nil {
		return nil, 0, err
	}

	f, err := os.Open(d.staging.where(name, file))
	if errors.Is(err, fs.ErrNotExist) {
		f, err = os.Open(file) // it may have got its name in between
	}
	if errors.Is(err, fs.ErrNotExist) { // deleted in between
		return nil, 0, d.missing(name)
	}
	if err != nil {
		return nil, 0, d.unavailable("read", name, err)
	}

	return f, info.Size, nil
}

// Stat describes a blob.
func (d *Dir) Stat(_ context.Context, name string) (Info, error) {
	file, err := d.path(name)
	if err != nil {
		return Info{}, err
	}

	info, err := os.Stat(d.staging.where(name, file))
	if errors.Is(err, fs.ErrNotExist) {
		info, err = os.Stat(file) // it may have got its name in between
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) { // a blob has the name that a folder would
		return Info{}, d.missing(name)
	}
	if err != nil {
		return Info{}, d.unavailable("look for", name, err)
	}
	if !info.Mode().IsRegular() { // a folder of blobs
		return Info{}, NotFound(name)
	}
	if err := d.syncNames(filepath.Dir(file)); err != nil {
		return Info{}, d.unavailable("look for", name, err)
	}

	return Info{Name: name, Size: info.Size(), Stored: info.ModTime().UTC()}, nil
}

// missing answers for a blob that was not found. It is NotFound only if the folder is there: when its volume is not
// mounted every blob looks removed, and checkpoints would be taken for lost.
func (d *Dir) missing(name string) error {
	if _, err := os.Stat(filepath.Join(d.root, Unfinished)); err != nil {
		return d.unavailable("look for", name, err)
	}

	return NotFound(name)
}

// Has reports whether there is a blob of this name.
func (d *Dir) Has(ctx context.Context, name string) (bool, error) {
	_, err := d.Stat(ctx, name)
	if fault.KindOf(err) == fault.NotFound {
		return false, nil
	}

	return err == nil, err
}

// Delete removes a blob.
func (d *Dir) Delete(ctx context.Context, name string) error {
	file, err := d.path(name)
	if err != nil {
		return err
	}
	if has, err := d.Has(ctx, name); err != nil || !has {
		return err
	}
	if err := d.discard(name); err != nil {
		return d.unavailable("remove", name, err)
	}
	if err := d.disk.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return d.unavailable("remove", name, err)
	}

	return nil
}

// List describes the blobs whose names begin with prefix. Those that are staged are synced first, so that they are
// among them.
func (d *Dir) List(ctx context.Context, prefix string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		err := CheckPrefix(prefix)
		if err == nil && strings.HasPrefix(prefix, Unfinished+"/") {
			_, err = d.path(Unfinished)
		}

		if err == nil {
			err = d.Sync(ctx, d.staging.names())
		}

		if err != nil && fault.KindOf(err) != fault.NotFound { // one that is removed meanwhile
			yield(Info{}, err)
			return
		}

		// From the folder of the prefix on: the folders above it may have as many entries as there are jobs.
		err = d.walk(ctx, path.Dir(prefix), prefix, func(info Info) bool { return yield(info, nil) })
		if err != nil && !errors.Is(err, errStop) {
			yield(Info{}, d.unavailable("list", prefix, err))
		}
	}
}

// errStop ends a walk early.
var errStop = errors.New("enough")

// walk visits the blobs below a folder in the order of their names, until visit returns false.
func (d *Dir) walk(ctx context.Context, folder, prefix string, visit func(Info) bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}

	entries, err := os.ReadDir(filepath.Join(d.root, filepath.FromSlash(folder)))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) { // removed in between, or never there
		return nil
	}
	if err != nil {
		return err
	}

	// The names of blobs in a folder begin with its name and a slash, which is not the first of characters.
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(sortKey(a), sortKey(b)) })

	for _, e := range entries {
		name := path.Join(folder, e.Name())
		if e.IsDir() {
			inside := name + "/"
			if name == Unfinished || !strings.HasPrefix(inside, prefix) && !strings.HasPrefix(prefix, inside) {
				continue
			}
			if err := d.walk(ctx, name, prefix, visit); err != nil {
				return err
			}

			continue
		}

		if !strings.HasPrefix(name, prefix) || !e.Type().IsRegular() {
			continue
		}

		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if !visit(Info{Name: name, Size: info.Size(), Stored: info.ModTime().UTC()}) {
			return errStop
		}
	}

	return nil
}

func sortKey(e fs.DirEntry) string {
	if e.IsDir() {
		return e.Name() + "/"
	}

	return e.Name()
}

func (d *Dir) unavailable(what, name string, err error) error {
	if diskspace.Full(err) {
		return diskspace.Error(d.root, err)
	}

	return fault.New(fault.Unavailable, "blob_store", "cannot %s %s in the blob store", what, name).WithCause(err)
}
