package blob

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"trainyard/internal/atomicfile"
)

const (
	// flushBytes is how much may be staged before it is synced in the background, and maxStaged before who stages more
	// waits for that: so much is lost at most if the process is killed.
	flushBytes = 256 << 20
	maxStaged  = 4 * flushBytes
	// syncers is how many files are synced at the same time. Those that are share commits of the file system's journal.
	syncers = 16
	// copyBuffer is how much is written at a time, and writePiece how much of what is in memory: the kernel takes more
	// processor time for larger pieces, which it copies past the caches.
	copyBuffer = 256 << 10
	writePiece = 64 << 10
)

// staging is what a Dir has taken and not synced yet. Such a blob has a file apart: after a power cut a file may have
// its name and not its content, so it gets its name only when its content is on the disk.
type staging struct {
	mu       sync.Mutex
	files    map[string]staged // by the name of the blob
	size     int64             // of all of them
	flushing bool
	made     map[string]bool // folders that survive a power cut

	syncing sync.Mutex // one sync at a time: whoever waits for another's rename needs its sync of the folder too
	buffers sync.Pool
}

type staged struct {
	file string
	size int64
}

// where returns the file that has the content of a blob: the one apart, or else the one of its name.
func (s *staging) where(name, file string) string {
	s.mu.Lock()
	defer s.mu.Unlock()

	if f, ok := s.files[name]; ok {
		return f.file
	}

	return file
}

// take removes a blob from those that are staged.
func (s *staging) take(name string) (staged, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	f, ok := s.files[name]
	if ok {
		delete(s.files, name)
		s.size -= f.size
	}

	return f, ok
}

// add adds a blob. It reports false if there is one of its name already, and whether it is time to sync.
func (s *staging) add(name string, f staged) (added, flush bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if _, ok := s.files[name]; ok {
		return false, false
	}

	s.files[name] = f
	s.size += f.size
	flush = s.size >= flushBytes && !s.flushing
	s.flushing = s.flushing || flush

	return true, flush
}

// full reports whether so much is staged that no more should be.
func (s *staging) full() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.size >= maxStaged
}

// names returns the names of all that are staged.
func (s *staging) names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()

	list := make([]string, 0, len(s.files))
	for name := range s.files {
		list = append(list, name)
	}

	return list
}

// Stage writes to a file apart and begins to write it to the disk, but does not wait for that.
func (d *Dir) Stage(ctx context.Context, name string, r io.Reader) error {
	if _, err := d.path(name); err != nil {
		return err
	}

	if d.staging.full() {
		if err := d.Sync(ctx, d.staging.names()); err != nil {
			return err
		}
	}

	f, err := d.write(ctx, r)
	if err != nil {
		return d.unavailable("write", name, err)
	}

	added, flush := d.staging.add(name, f)
	if !added { // the same content: a blob is never changed
		return d.disk.Remove(f.file)
	}

	if flush {
		go d.flush() //nolint:gosec // what is staged must be synced also if the request that filled it is gone
	}

	return nil
}

// write writes a file apart.
func (d *Dir) write(ctx context.Context, r io.Reader) (staged, error) {
	f, err := d.disk.CreateTemp(d.temp, "blob-*")
	if err != nil {
		return staged{}, err
	}

	n, err := d.fill(ctx, f, r)

	if file, ok := f.(*os.File); ok && err == nil {
		// Begins to write it to the disk, so that the sync is short. It is only a hint.
		_ = unix.SyncFileRange(int(file.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE)
	}

	err = errors.Join(err, f.Close())
	if err != nil {
		return staged{}, errors.Join(err, d.disk.Remove(f.Name()))
	}

	return staged{f.Name(), n}, nil
}

// fill writes all that it reads to a file.
func (d *Dir) fill(ctx context.Context, f io.Writer, r io.Reader) (int64, error) {
	if memory, ok := r.(*bytes.Reader); ok && ctx.Err() == nil {
		return memory.WriteTo(inPieces{f}) // from where it is
	}

	buf, ok := d.staging.buffers.Get().(*[]byte)
	if !ok {
		buf = new([]byte)
		*buf = make([]byte, copyBuffer)
	}

	defer d.staging.buffers.Put(buf)

	// The struct hides that a file could read for itself, which it does in small pieces.
	return io.CopyBuffer(struct{ io.Writer }{f}, filling{readerUntil{ctx, r}}, *buf)
}

// inPieces writes what it is given in pieces.
type inPieces struct{ io.Writer }

func (w inPieces) Write(p []byte) (int, error) {
	done := 0

	for piece := range slices.Chunk(p, writePiece) {
		n, err := w.Writer.Write(piece)
		done += n

		if err != nil {
			return done, err
		}
	}

	return done, nil
}

// filling fills what it is given as far as it can.
type filling struct{ io.Reader }

func (f filling) Read(p []byte) (int, error) {
	n, err := io.ReadFull(f.Reader, p)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = io.EOF
	}

	return n, err
}

// flush syncs what is staged now. What fails is gone, which the next Sync of its name finds out.
func (d *Dir) flush() {
	_ = d.Sync(context.Background(), d.staging.names())

	d.staging.mu.Lock()
	defer d.staging.mu.Unlock()
	d.staging.flushing = false
}

// Sync syncs the files of blobs that are staged, gives them their names, and syncs the folders of all.
func (d *Dir) Sync(ctx context.Context, names []string) error {
	d.staging.syncing.Lock()
	defer d.staging.syncing.Unlock()

	var mu sync.Mutex
	folders := map[string]bool{}

	err := each(ctx, names, func(name string) error {
		file, err := d.path(name)
		if err != nil {
			return err
		}

		mu.Lock()
		folders[filepath.Dir(file)] = true
		mu.Unlock()

		return d.settle(ctx, name, file)
	})
	if err != nil {
		return err
	}

	list := make([]string, 0, len(folders))
	for folder := range folders {
		list = append(list, folder)
	}

	return each(ctx, list, func(folder string) error {
		if err := d.disk.SyncDir(folder); err != nil {
			return d.unavailable("write", filepath.Base(folder), err)
		}

		return nil
	})
}

// settle gives a blob its name once its content is on the disk. One that has its name already was synced before.
func (d *Dir) settle(ctx context.Context, name, file string) error {
	d.staging.mu.Lock()
	f, ok := d.staging.files[name]
	d.staging.mu.Unlock()

	if !ok {
		_, err := d.Stat(ctx, name)
		return err
	}

	err := d.makeFolder(filepath.Dir(file))
	if err == nil {
		err = d.syncFile(f.file)
	}
	if err == nil {
		err = d.disk.Rename(f.file, file)
	}

	if err == nil {
		d.staging.take(name)
		return nil
	}

	// Nobody knows what of it is on the disk. It has to be put again.
	err = errors.Join(err, d.discard(name))
	if errors.Is(err, fs.ErrNotExist) {
		return NotFound(name) // another process has opened the folder and cleaned it
	}

	return d.unavailable("write", name, err)
}

// discard removes a blob that is staged.
func (d *Dir) discard(name string) error {
	f, ok := d.staging.take(name)
	if !ok {
		return nil
	}

	if err := d.disk.Remove(f.file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}

	return nil
}

func (d *Dir) syncFile(path string) error {
	f, err := d.disk.OpenFile(path, os.O_WRONLY)
	if err != nil {
		return err
	}

	return errors.Join(f.Sync(), f.Close())
}

// makeFolder makes a folder so that it survives a power cut.
func (d *Dir) makeFolder(folder string) error {
	s := &d.staging

	s.mu.Lock()
	made := s.made[folder]
	s.mu.Unlock()

	if made {
		return nil
	}

	if err := atomicfile.MkdirAll(d.disk, d.root, folder); err != nil {
		return err
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	if s.made == nil {
		s.made = map[string]bool{}
	}

	s.made[folder] = true

	return nil
}

// each calls a function for all of a list, several at a time, until one fails.
func each(ctx context.Context, list []string, fn func(string) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	var next atomic.Int64
	var workers sync.WaitGroup

	for range min(syncers, len(list)) {
		workers.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(list)) && ctx.Err() == nil; i = next.Add(1) - 1 {
				if err := fn(list[i]); err != nil {
					cancel(err)
				}
			}
		})
	}

	workers.Wait()

	return context.Cause(ctx)
}
