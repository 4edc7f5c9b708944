// Package disktest is a disk whose power can be cut: what was not synced may then be lost.
//
// It works on a real directory, so that whoever reads uses package os as ever, and keeps beside it what
// would survive. A power cut is as bad as POSIX lets it be: of the writes to a file since its last
// sync any may be missing, also those before others that survive, and the first of them may be torn; of
// the names that were made, moved or removed since the last sync of their directory any may be as
// before. What the power cut leaves is then put into the directory.
package disktest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"trainyard/internal/atomicfile"
)

// Disk is a disk below a root. It may be used from several goroutines.
type Disk struct {
	root string

	mu      sync.Mutex
	top     *node
	cuts    int // files that were opened before the last power cut are dead
	left    int // calls until the power fails
	limited bool
	syncs   int
}

var _ atomicfile.Disk = (*Disk)(nil)

// New returns a disk that holds what is below root, all of it synced.
func New(root string) (*Disk, error) {
	d := &Disk{root: filepath.Clean(root)}

	var err error
	d.top, err = adopt(d.root)

	return d, err
}

// node is a file or a directory.
type node struct {
	// Of a file: what is on the disk for sure, and what was written since.
	data    []byte
	pending []write

	// Of a directory: the names as everybody sees them, those that are on the disk for sure, and what
	// was done to them since.
	names   map[string]*node
	synced  map[string]*node
	changes []change
}

// write is one change of a file's content: bytes at an offset, or a new length if cut is set.
type write struct {
	at   int64
	data []byte
	cut  bool
}

// change is one change of a name; the node is nil if it was removed.
type change struct {
	name string
	node *node
}

func newDir() *node { return &node{names: map[string]*node{}, synced: map[string]*node{}} }

// adopt reads what is on the real disk as synced.
func adopt(path string) (*node, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}

	if !info.IsDir() {
		data, err := os.ReadFile(path)
		return &node{data: data}, err
	}

	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}

	dir := newDir()
	for _, e := range entries {
		child, err := adopt(filepath.Join(path, e.Name()))
		if err != nil {
			return nil, err
		}

		dir.names[e.Name()], dir.synced[e.Name()] = child, child
	}

	return dir, nil
}

// FailAfter lets so many more changes and syncs through; the power fails before the next.
// Cut then says what is left and gives the power back.
func (d *Disk) FailAfter(calls int) {
	d.mu.Lock()
	defer d.mu.Unlock()

	d.left, d.limited = calls, true
}

// Syncs returns how many files and directories were synced so far.
func (d *Disk) Syncs() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.syncs
}

// power counts a change and fails if the power is gone.
func (d *Disk) power() error {
	if !d.limited {
		return nil
	}
	if d.left == 0 {
		return errPower
	}

	d.left--

	return nil
}

// find returns the node at a path. One that was made past this disk counts as synced.
func (d *Disk) find(path string) (*node, error) {
	below, err := filepath.Rel(d.root, path)
	if err != nil || !filepath.IsLocal(below) {
		return nil, fmt.Errorf("%s is not below %s", path, d.root)
	}
	if below == "." {
		return d.top, nil
	}

	at, walked := d.top, d.root
	for name := range strings.SplitSeq(below, string(filepath.Separator)) {
		walked = filepath.Join(walked, name)

		next := at.names[name]
		if next == nil {
			if next, err = adopt(walked); err != nil {
				return nil, err
			}

			at.names[name], at.synced[name] = next, next
		}

		at = next
	}

	return at, nil
}

// set changes a name.
func (d *Disk) set(path string, to *node) error {
	dir, err := d.find(filepath.Dir(path))
	if err != nil {
		return err
	}

	name := filepath.Base(path)
	if to == nil {
		delete(dir.names, name)
	} else {
		dir.names[name] = to
	}

	dir.changes = append(dir.changes, change{name, to})

	return nil
}

// OpenFile opens a file.
func (d *Disk) OpenFile(path string, flag int) (atomicfile.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()

	if err := d.power(); err != nil {
		return nil, err
	}

	_, err := os.Lstat(path)
	made := errors.Is(err, fs.ErrNotExist)

	real, err := os.OpenFile(path, flag, 0o600)
	if err != nil {
		return nil, err
	}

	return d.opened(real, made, flag)
}

// CreateTemp makes a temporary file.
func (d *Disk) CreateTemp(dir, pattern string) (atomicfile.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()

	if err := d.power(); err != nil {
		return nil, err
	}

	real, err := os.CreateTemp(dir, pattern)
	if err != nil {
		return nil, err
	}

	return d.opened(real, true, 0)
}

func (d *Disk) opened(real *os.File, made bool, flag int) (atomicfile.File, error) {
	var n *node
	var err error

	if made {
		n = &node{}
		err = d.set(real.Name(), n)
	} else {
		n, err = d.find(real.Name())
	}

	if err != nil {
		return nil, errors.Join(err, real.Close())
	}

	if flag&os.O_TRUNC != 0 {
		n.pending = append(n.pending, write{cut: true})
	}

	return &file{real: real, disk: d, node: n, cuts: d.cuts}, nil
}

// Mkdir makes a directory.
func (d *Disk) Mkdir(dir string) error {
	d.mu.Lock()
	defer d.mu.Unlock()

	if err := d.power(); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}

	return d.set(dir, newDir())
}

// Rename moves a file.
func (d *Disk) Rename(from, to string) error {
	d.mu.Lock()
	defer d.mu.Unlock()

	if err := d.power(); err != nil {
		return err
	}

	n, err := d.find(from)
	if err != nil {
		return err
	}
	if err := os.Rename(from, to); err != nil {
		return err
	}

	return errors.Join(d.set(to, n), d.set(from, nil))
}

// Remove removes a file.
func (d *Disk) Remove(path string) error {
	d.mu.Lock()
	defer d.mu.Unlock()

	if err := d.power(); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil {
		return err
	}

	return d.set(path, nil)
}

// SyncDir makes the names in a directory survive.
func (d *Disk) SyncDir(dir string) error {
	d.mu.Lock()
	defer d.mu.Unlock()

	if err := d.power(); err != nil {
		return err
	}

	n, err := d.find(dir)
	if err != nil {
		return err
	}

	d.syncs++
	for _, c := range n.changes {
		n.apply(c)
	}

	n.changes = nil

	return nil
}

// apply puts a change of a name onto the disk.
func (n *node) apply(c change) {
	if c.node == nil {
		delete(n.synced, c.name)
	} else {
		n.synced[c.name] = c.node
	}
}

// file is an open file.
type file struct {
	real *os.File // not embedded: it has more ways to write than are recorded here
	disk *Disk
	node *node
	cuts int
}

// errPower is what those get who were at work when the power was cut.
var errPower = errors.New("the power was cut")

// power fails if the power is gone, or was gone since the file was opened.
func (f *file) power() error {
	if f.cuts != f.disk.cuts {
		return errPower
	}

	return f.disk.power()
}

func (f *file) record(w write) error {
	if err := f.power(); err != nil {
		return err
	}

	w.data = slices.Clone(w.data)
	f.node.pending = append(f.node.pending, w)

	return nil
}

// Name returns the path.
func (f *file) Name() string { return f.real.Name() }

// Stat describes the file.
func (f *file) Stat() (fs.FileInfo, error) { return f.real.Stat() }

// ReadAt reads at an offset.
func (f *file) ReadAt(p []byte, at int64) (int, error) { return f.real.ReadAt(p, at) }

// Close closes the file, which syncs nothing.
func (f *file) Close() error { return f.real.Close() }

// Write appends at the end of the file: nobody who uses a Disk writes elsewhere without an offset.
func (f *file) Write(p []byte) (int, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}

	return f.WriteAt(p, info.Size())
}

// WriteAt writes at an offset.
func (f *file) WriteAt(p []byte, at int64) (int, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()

	if err := f.record(write{at: at, data: p}); err != nil {
		return 0, err
	}

	return f.real.WriteAt(p, at)
}

// Truncate changes the length of the file.
func (f *file) Truncate(size int64) error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()

	if err := f.record(write{at: size, cut: true}); err != nil {
		return err
	}

	return f.real.Truncate(size)
}

// Sync makes the content survive, and not the name.
func (f *file) Sync() error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()

	if err := f.power(); err != nil {
		return err
	}

	f.disk.syncs++
	for _, w := range f.node.pending {
		f.node.data = w.onto(f.node.data)
	}

	f.node.pending = nil

	return nil
}

// onto returns data with the write in it. A gap before it is read as zeros.
func (w *write) onto(data []byte) []byte {
	end := w.at
	if !w.cut {
		end += int64(len(w.data))
	}

	if w.cut && int64(len(data)) > end {
		data = data[:end]
	}
	if grow := end - int64(len(data)); grow > 0 {
		data = append(data, make([]byte, grow)...)
	}

	copy(data[min(w.at, int64(len(data))):], w.data)

	return data
}

// Cut cuts the power and puts into the directory what is left. For every choice it asks choose, which
// returns a number from 0 to n-1; with always 0 everything that was not synced is lost. Files that are
// open are dead afterwards.
func (d *Disk) Cut(choose func(n int) int) error {
	d.mu.Lock()
	defer d.mu.Unlock()

	d.cuts++
	d.limited = false
	d.top = d.top.survive(choose, map[*node]*node{})

	entries, err := os.ReadDir(d.root)
	if err != nil {
		return err
	}

	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(d.root, e.Name())); err != nil {
			return err
		}
	}

	return d.top.restore(d.root)
}

// survive returns what a power cut leaves of a node. One that has two names is left once.
func (n *node) survive(choose func(int) int, done map[*node]*node) *node {
	if left := done[n]; left != nil {
		return left
	}

	if n.names == nil {
		left := &node{data: n.dataLeft(choose)}
		done[n] = left

		return left
	}

	for _, c := range n.changes {
		if choose(2) == 1 {
			n.apply(c)
		}
	}

	left := newDir()
	done[n] = left

	names := make([]string, 0, len(n.synced))
	for name := range n.synced {
		names = append(names, name)
	}

	slices.Sort(names) // so that the same choices give the same disk

	for _, name := range names {
		child := n.synced[name].survive(choose, done)
		left.names[name], left.synced[name] = child, child
	}

	return left
}

// dataLeft is what a power cut leaves of a file's content.
func (n *node) dataLeft(choose func(int) int) []byte {
	data := slices.Clone(n.data)
	for _, w := range n.pending {
		switch choose(3) {
		case 0: // lost
		case 1:
			data = w.onto(data)
		case 2: // torn: a part is there, and the length may have grown without the rest
			torn := w
			if !w.cut {
				torn.data = w.data[:choose(len(w.data)+1)]
			}

			data = torn.onto(data)
			if choose(2) == 1 && !w.cut {
				full := write{at: w.at + int64(len(w.data))}
				data = full.onto(data)
			}
		}
	}

	return data
}

// restore writes a directory.
func (n *node) restore(path string) error {
	for name, child := range n.names {
		at := filepath.Join(path, name)

		var err error
		if child.names == nil {
			err = os.WriteFile(at, child.data, 0o600)
		} else {
			err = errors.Join(os.Mkdir(at, 0o700), child.restore(at))
		}

		if err != nil {
			return err
		}
	}

	return nil
}
