// Package archive keeps the output of runs and finds lines in it.
//
// server appends what agents ship and reads pages for people; nothing here
// knows who may see what. The format is that of package logs. Output that is
// still written is a plain file; what is complete is compressed into the blob
// store. It never alters what it acknowledged, and a power cut takes none of it.
package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"trainyard/internal/atomicfile"
	"trainyard/internal/blob"
	"trainyard/internal/clock"
	"trainyard/internal/diskspace"
	"trainyard/internal/fault"
	"trainyard/internal/id"
)

// Archive keeps the output of runs, one stream of bytes for each rank in the
// format of package logs. While a rank runs its output is a plain file, to
// which an upload is appended before it is acknowledged: the file's length is
// at any time exactly what the agent need not send again. The journal makes that
// true also after a power cut. When the agent has sent all, the file is compressed
// piece by piece into the blob store.
type Archive struct {
	dir     string
	disk    atomicfile.Disk
	blobs   blob.Store
	clock   clock.Clock
	journal *journal
	mu      sync.Mutex // of open; nobody waits for a logFile's own while holding it
	open    map[string]*logFile

	unpacked unpackedCache
	indexes  indexCache

	formerMu sync.Mutex
	former   *bool // whether there are segments of earlier versions; nil while that is not known
}

// logFile is the output of one rank while it is written or followed.
type logFile struct {
	mu      sync.Mutex
	file    atomicfile.File // nil when archived or not there yet
	size    int64
	ended   bool // all of it is here
	changed chan struct{}
	used    time.Time
	gone    bool // dropped from memory; look it up again
}

// Open opens the archive in a folder.
func Open(dir string, blobs blob.Store, clk clock.Clock) (*Archive, error) {
	return openOn(atomicfile.OS{}, dir, blobs, clk)
}

func openOn(disk atomicfile.Disk, dir string, blobs blob.Store, clk clock.Clock) (*Archive, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create log folder: %w", err)
	}
	if err := errors.Join(disk.SyncDir(filepath.Dir(dir)), disk.SyncDir(dir)); err != nil {
		return nil, fmt.Errorf("create log folder: %w", err)
	}

	j, err := openJournal(disk, dir)
	if err != nil {
		return nil, err
	}

	return &Archive{dir: dir, disk: disk, blobs: blobs, clock: clk, journal: j, open: map[string]*logFile{}}, nil
}

// Log names the output of one rank of a run. Runs that got the same id in two histories of a yard
// have different UIDs, so their output is never mixed.
type Log struct {
	Run  id.Run
	UID  id.UID // "" for a run of an earlier version
	Rank int
}

// String returns the name of the log's file.
func (l Log) String() string {
	name := string(l.Run) + "-" + strconv.Itoa(l.Rank)
	if l.UID != "" {
		name += "-" + string(l.UID)
	}

	return name
}

// lock returns the log of a rank, locked, with its file open if it is still written.
func (b *Archive) lock(ctx context.Context, l Log) (*logFile, error) {
	for {
		f, err := b.get(ctx, l)
		if err != nil {
			return nil, err
		}

		f.mu.Lock()

		if !f.gone {
			f.used = b.clock.Now()
			return f, nil
		}

		f.mu.Unlock()
	}
}

// get returns the log of a rank. While it looks for one that nobody has open, it holds up no other log: the blob store
// may be slow to answer.
func (b *Archive) get(ctx context.Context, l Log) (*logFile, error) {
	name := l.String()
	b.mu.Lock()

	if f, ok := b.open[name]; ok {
		b.mu.Unlock()
		return f, nil
	}

	f := &logFile{changed: make(chan struct{})}

	f.mu.Lock() // whoever else wants it waits until it is found
	defer f.mu.Unlock()

	b.open[name] = f
	b.mu.Unlock()

	err := b.find(ctx, f, l)
	if err == nil && !f.ended {
		return f, nil
	}

	b.mu.Lock()
	delete(b.open, name)
	b.mu.Unlock()

	if err != nil {
		f.gone = true
		return nil, err
	}

	return f, nil // archived: nothing will change, so nobody need share it
}

// find opens the file of a log, or finds out that it is archived or not there yet.
func (b *Archive) find(ctx context.Context, f *logFile, l Log) error {
	name := l.String()

	file, err := b.disk.OpenFile(filepath.Join(b.dir, name), os.O_RDWR)
	switch {
	case err == nil:
		info, err := file.Stat()
		if err != nil {
			return errors.Join(fmt.Errorf("stat log %s: %w", name, err), file.Close())
		}

		f.file, f.size = file, info.Size()
	case errors.Is(err, fs.ErrNotExist):
		segments, err := b.segments(ctx, l)
		if err != nil {
			return err
		}

		if n := len(segments); n > 0 {
			f.size, f.ended = segments[n-1].end, true
		}
	default:
		return fault.New(fault.Unavailable, "log_store", "cannot open the log of %s", l.Run).WithCause(err)
	}

	return nil
}

// Append adds output at an offset and returns how much of the log is here now, safe from a power cut, and whether
// that is all of it. What is here already is passed over; what would leave a gap is not taken.
func (b *Archive) Append(
	ctx context.Context,
	l Log,
	offset int64,
	data []byte,
	final bool,
) (size int64, ended bool, err error) {
	f, err := b.lock(ctx, l)
	if err != nil {
		return 0, false, err
	}

	defer f.mu.Unlock()

	if f.ended || offset > f.size {
		return f.size, f.ended, nil
	}

	defer f.wake() // also when archiving fails: what came is there to be read

	if final && f.size == 0 && f.file == nil && len(data) <= segmentSize {
		err := b.putWhole(ctx, f, l, data)
		return f.size, f.ended, err
	}

	if known := f.size - offset; known < int64(len(data)) {
		added := &addition{log: f, name: l.String(), offset: f.size, data: data[known:]}
		if err := b.journal.add(added); err != nil {
			if diskspace.Full(err) {
				return f.size, false, diskspace.Error(b.dir, err)
			}

			return f.size, false, fault.New(fault.Unavailable, "log_store", "cannot write the log of %s", l.Run).WithCause(err)
		}

		f.size += int64(len(added.data))
	}

	if final && offset+int64(len(data)) == f.size {
		if err := b.archive(ctx, f, l); err != nil {
			return f.size, false, err
		}
	}

	return f.size, f.ended, nil
}

// wake tells those who follow the log to look again.
func (f *logFile) wake() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// State is how much of a log is here.
type State struct {
	Size    int64
	Ended   bool
	Changed <-chan struct{} // closed when there is more, or it has ended
}

// State says how much of a log is here.
func (b *Archive) State(ctx context.Context, l Log) (State, error) {
	f, err := b.lock(ctx, l)
	if err != nil {
		return State{}, err
	}

	defer f.mu.Unlock()

	return State{f.size, f.ended, f.changed}, nil
}

// Read returns the bytes of a log from an offset on, at most limit of them.
func (b *Archive) Read(ctx context.Context, l Log, offset, limit int64) ([]byte, error) {
	f, err := b.lock(ctx, l)
	if err != nil {
		return nil, err
	}

	defer f.mu.Unlock()

	limit = min(limit, f.size-offset)
	if limit <= 0 {
		return nil, nil
	}
	if f.file == nil {
		return b.readArchived(ctx, l, offset, limit)
	}

	out := make([]byte, limit)
	n, err := f.file.ReadAt(out, offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fault.New(fault.Unavailable, "log_store", "cannot read the log of %s", l.Run).WithCause(err)
	}

	return out[:n], nil
}

// keepOpen is how long a log that nobody uses stays open.
const keepOpen = 10 * time.Minute

// Sweep drops logs that nobody has used lately from memory and closes their
// files. Those who follow one are woken and look it up again. Journals that are full are
// removed.
func (b *Archive) Sweep() error {
	return errors.Join(b.closeUnused(), b.journal.sweep())
}

func (b *Archive) closeUnused() error {
	b.mu.Lock()
	defer b.mu.Unlock()

	var errs []error
	for name, f := range b.open {
		if !f.mu.TryLock() {
			continue
		}

		if f.ended || b.clock.Now().Sub(f.used) > keepOpen {
			delete(b.open, name)
			f.gone = true
			f.wake()

			if f.file != nil {
				errs = append(errs, f.file.Close())
			}
		}

		f.mu.Unlock()
	}

	return errors.Join(errs...)
}
