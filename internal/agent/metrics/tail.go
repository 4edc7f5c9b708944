package metrics

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"trainyard/internal/fault"
)

// tail reads a file that a program writes, as it grows. A file that was made anew, or is
// another than before, is read from its beginning.
type tail struct {
	dir      string // the program may have made what is in it; no link leads out of it
	path     string // in dir
	whole    bool   // it is read from its beginning whenever it has changed
	offset   int64
	state    fileState
	head     []byte // how it began when it was last read
	lastRead float64
}

// fileState is by what a change is noticed without reading.
type fileState struct {
	size  int64
	mtime time.Time
	inode uint64
}

// headSize is how much of a file's beginning is compared.
const headSize = 512

// piece is what was read at once.
type piece struct {
	data      []byte
	restarted bool // it begins at the beginning of the file: what was read before does not count
	rest      bool // there is more
	from      float64
	until     float64 // between these times it was written
}

// read returns what is new, at most as many bytes; nil if nothing is.
func (t *tail) read(limit int, since float64) (p *piece, err error) {
	info, err := t.lstat()
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}

		return nil, err
	}

	if !info.Mode().IsRegular() {
		return nil, notRegular(t.full(), nil)
	}

	state := stateOf(info)
	if state == t.state && (t.whole || t.offset >= state.size) {
		return nil, nil
	}

	f, err := t.open()
	if err != nil {
		return nil, err
	}

	defer func() { err = errors.Join(err, f.Close()) }()

	p = &piece{from: max(t.lastRead, since), until: seconds(state.mtime)}

	if t.whole {
		t.offset = 0
	} else if t.state.size > 0 && (state.inode != t.state.inode || state.size < t.offset || !t.sameHead(f)) {
		t.offset, t.head, p.restarted = 0, nil, true
	}

	t.state = state
	p.data, err = readAt(f, t.offset, int(min(int64(limit), state.size-t.offset)))
	if err != nil {
		return nil, err
	}

	if t.offset == 0 {
		t.head = bytes.Clone(p.data[:min(len(p.data), headSize)])
	}

	p.rest = t.offset+int64(len(p.data)) < state.size
	t.lastRead = p.until

	return p, nil
}

// used says how much of a piece has been taken.
func (t *tail) used(n int) { t.offset += int64(n) }

// sameHead says whether the file begins as it did.
func (t *tail) sameHead(f *os.File) bool {
	if len(t.head) == 0 {
		return true
	}

	now, err := readAt(f, 0, len(t.head))

	return err == nil && bytes.Equal(now, t.head)
}

// at spreads times over the rows of a piece of which n is the how-manieth of all.
func (p *piece) at(n, all int) float64 {
	if p.until <= p.from || all < 1 {
		return p.until
	}

	return p.from + (p.until-p.from)*float64(n)/float64(all)
}

func stateOf(info fs.FileInfo) fileState {
	s := fileState{size: info.Size(), mtime: info.ModTime()}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		s.inode = sys.Ino
	}

	return s
}

// full returns the whole path, for messages.
func (t *tail) full() string { return filepath.Join(t.dir, t.path) }

func (t *tail) lstat() (fs.FileInfo, error) {
	root, err := os.OpenRoot(t.dir)
	if err != nil {
		return nil, err
	}

	defer func() { _ = root.Close() }()

	return root.Lstat(t.path)
}

// open opens a file that a program has made and that may be anything.
func (t *tail) open() (*os.File, error) {
	f, err := openIn(t.dir, t.path, 0)
	if err != nil {
		return nil, err
	}

	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = notRegular(t.full(), nil)
	}

	if err != nil {
		return nil, errors.Join(err, f.Close())
	}

	return f, nil
}

// openIn opens what lies in a directory in which a program does what it likes, also at this moment. It must not wait,
// as on a pipe that nobody writes to, nor follow a link elsewhere: the agent may read what the program may not.
func openIn(dir, path string, flags int) (*os.File, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}

	defer func() { _ = root.Close() }()

	return root.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|flags, 0)
}

func notRegular(path string, cause error) error {
	return fault.New(fault.Invalid, "no_file", "%s is not a regular file", path).WithCause(cause)
}

// readAt reads at most so many bytes from a place on.
func readAt(f *os.File, offset int64, limit int) ([]byte, error) {
	data := make([]byte, limit)
	n, err := f.ReadAt(data, offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}

	return data[:n], nil
}
