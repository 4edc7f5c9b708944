package server

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"trainyard/internal/blob"
	"trainyard/internal/clock"
	"trainyard/internal/fault"
	"trainyard/internal/id"
)

// Logbook keeps the output of runs, one stream of bytes for each rank in the
// format of package runlog. While a rank runs its output is a plain file, to
// which an upload is appended before it is acknowledged: the file's length is
// at any time exactly what the agent need not send again. When the agent has
// sent all, the file is compressed piece by piece into the blob store.
type Logbook struct {
	dir   string
	blobs blob.Store
	clock clock.Clock
	mu    sync.Mutex // taken before a logFile's own
	open  map[string]*logFile
}

// logFile is the output of one rank while it is written or followed.
type logFile struct {
	mu      sync.Mutex
	file    *os.File // nil when archived or not there yet
	size    int64
	ended   bool // all of it is here
	changed chan struct{}
	used    time.Time
	gone    bool // dropped from memory; look it up again
}

// segmentSize is how much output is compressed into one blob.
const segmentSize = 4 << 20

// OpenLogbook opens the logbook in a folder.
func OpenLogbook(dir string, blobs blob.Store, clk clock.Clock) (*Logbook, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make log folder: %w", err)
	}
	return &Logbook{dir: dir, blobs: blobs, clock: clk, open: map[string]*logFile{}}, nil
}

func logName(run id.Run, rank int) string { return string(run) + "-" + strconv.Itoa(rank) }

// blobPrefix begins the names of a log's segments.
func blobPrefix(run id.Run, rank int) string {
	j, _, _ := run.Split()
	return fmt.Sprintf("logs/%s/%s/%d/", j, run, rank)
}

// lock returns the log of a rank, locked, with its file open if it is still written.
func (b *Logbook) lock(ctx context.Context, run id.Run, rank int) (*logFile, error) {
	for {
		f, err := b.get(ctx, run, rank)
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

func (b *Logbook) get(ctx context.Context, run id.Run, rank int) (*logFile, error) {
	name := logName(run, rank)
	b.mu.Lock()
	defer b.mu.Unlock()
	if f, ok := b.open[name]; ok {
		return f, nil
	}
	f := &logFile{changed: make(chan struct{})}
	file, err := os.OpenFile(filepath.Join(b.dir, name), os.O_RDWR|os.O_APPEND, 0o600)
	switch {
	case err == nil:
		info, err := file.Stat()
		if err != nil {
			return nil, errors.Join(fmt.Errorf("look at log %s: %w", name, err), file.Close())
		}
		f.file, f.size = file, info.Size()
	case errors.Is(err, fs.ErrNotExist):
		segments, err := b.segments(ctx, run, rank)
		if err != nil {
			return nil, err
		}
		if n := len(segments); n > 0 { // archived: nothing will change, so nobody need share it
			f.size, f.ended = segments[n-1].end, true
			return f, nil
		}
	default:
		return nil, fault.New(fault.Unavailable, "log_store", "cannot open the log of %s", run).WithCause(err)
	}
	b.open[name] = f
	return f, nil
}

// Append adds output at an offset and returns how much of the log is here now.
// What is here already is passed over; what would leave a gap is not taken.
func (b *Logbook) Append(ctx context.Context, run id.Run, rank int, offset int64, data []byte, final bool) (int64, error) {
	f, err := b.lock(ctx, run, rank)
	if err != nil {
		return 0, err
	}
	defer f.mu.Unlock()
	if f.ended || offset > f.size {
		return f.size, nil
	}
	if known := f.size - offset; known < int64(len(data)) {
		if err := b.write(f, run, rank, data[known:]); err != nil {
			return f.size, err
		}
	}
	if final && offset+int64(len(data)) == f.size {
		if err := b.archive(ctx, f, run, rank); err != nil {
			return f.size, err
		}
	}
	close(f.changed)
	f.changed = make(chan struct{})
	return f.size, nil
}

func (b *Logbook) write(f *logFile, run id.Run, rank int, data []byte) error {
	if f.file == nil {
		file, err := os.OpenFile(filepath.Join(b.dir, logName(run, rank)), os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
		if err != nil {
			return fault.New(fault.Unavailable, "log_store", "cannot make the log of %s", run).WithCause(err)
		}
		f.file = file
	}
	if _, err := f.file.Write(data); err != nil {
		// A disk that is full may have taken a part: the log must not hold what was not acknowledged.
		err = errors.Join(err, f.file.Truncate(f.size))
		return fault.New(fault.Unavailable, "log_store", "cannot write the log of %s", run).WithCause(err)
	}
	f.size += int64(len(data))
	return nil
}

// archive compresses a whole log into the blob store and removes the file.
func (b *Logbook) archive(ctx context.Context, f *logFile, run id.Run, rank int) error {
	if f.file == nil { // it printed nothing
		f.ended = true
		return b.blobs.Put(ctx, fmt.Sprintf("%s%015d-%015d.gz", blobPrefix(run, rank), 0, 0), bytes.NewReader(nil))
	}
	raw := make([]byte, segmentSize)
	for at := int64(0); at < f.size; {
		n, err := f.file.ReadAt(raw[:min(segmentSize, f.size-at)], at)
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("read log of %s: %w", run, err)
		}
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		if _, err := z.Write(raw[:n]); err != nil {
			return fmt.Errorf("compress log of %s: %w", run, err)
		}
		if err := z.Close(); err != nil {
			return fmt.Errorf("compress log of %s: %w", run, err)
		}
		name := fmt.Sprintf("%s%015d-%015d.gz", blobPrefix(run, rank), at, at+int64(n))
		if err := b.blobs.Put(ctx, name, &packed); err != nil {
			return err
		}
		at += int64(n)
	}
	if err := os.Remove(f.file.Name()); err != nil {
		return fmt.Errorf("remove log file of %s: %w", run, err)
	}
	err := f.file.Close()
	f.file, f.ended = nil, true
	return err
}

// segment is one compressed piece of an archived log.
type segment struct {
	name       string
	start, end int64
}

func (b *Logbook) segments(ctx context.Context, run id.Run, rank int) ([]segment, error) {
	names, err := b.blobs.List(ctx, blobPrefix(run, rank))
	if err != nil {
		return nil, err
	}
	list := make([]segment, 0, len(names))
	for _, name := range names {
		text := strings.TrimSuffix(name[strings.LastIndexByte(name, '/')+1:], ".gz")
		first, last, _ := strings.Cut(text, "-")
		start, err1 := strconv.ParseInt(first, 10, 64)
		end, err2 := strconv.ParseInt(last, 10, 64)
		if err1 != nil || err2 != nil {
			return nil, fmt.Errorf("blob %s is no log segment", name)
		}
		list = append(list, segment{name, start, end})
	}
	return list, nil
}

// logState is how much of a log is here.
type logState struct {
	size    int64
	ended   bool
	changed <-chan struct{} // closed when there is more, or it has ended
}

// State says how much of a log is here.
func (b *Logbook) State(ctx context.Context, run id.Run, rank int) (logState, error) {
	f, err := b.lock(ctx, run, rank)
	if err != nil {
		return logState{}, err
	}
	defer f.mu.Unlock()
	return logState{f.size, f.ended, f.changed}, nil
}

// Read returns the bytes of a log from an offset on, at most limit of them.
func (b *Logbook) Read(ctx context.Context, run id.Run, rank int, offset, limit int64) ([]byte, error) {
	f, err := b.lock(ctx, run, rank)
	if err != nil {
		return nil, err
	}
	defer f.mu.Unlock()
	limit = min(limit, f.size-offset)
	if limit <= 0 {
		return nil, nil
	}
	if f.file == nil {
		return b.readArchived(ctx, run, rank, offset, limit)
	}
	out := make([]byte, limit)
	n, err := f.file.ReadAt(out, offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fault.New(fault.Unavailable, "log_store", "cannot read the log of %s", run).WithCause(err)
	}
	return out[:n], nil
}

func (b *Logbook) readArchived(ctx context.Context, run id.Run, rank int, offset, limit int64) ([]byte, error) {
	segments, err := b.segments(ctx, run, rank)
	if err != nil {
		return nil, err
	}
	var out []byte
	for _, s := range segments {
		if s.end <= offset || s.end == 0 || int64(len(out)) >= limit {
			continue
		}
		raw, err := b.unpack(ctx, s.name)
		if err != nil {
			return nil, err
		}
		out = append(out, raw[max(0, offset-s.start):]...)
	}
	return out[:min(int64(len(out)), limit)], nil
}

func (b *Logbook) unpack(ctx context.Context, name string) ([]byte, error) {
	r, err := b.blobs.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	z, err := gzip.NewReader(r)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	raw, err := io.ReadAll(io.LimitReader(z, segmentSize))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return raw, nil
}

// keepOpen is how long a log that nobody uses stays open.
const keepOpen = 10 * time.Minute

// Sweep drops logs that nobody has used lately from memory and closes their
// files. Those who follow one are woken and look it up again.
func (b *Logbook) Sweep() error {
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
			close(f.changed)
			f.changed = make(chan struct{})
			if f.file != nil {
				errs = append(errs, f.file.Close())
			}
		}
		f.mu.Unlock()
	}
	return errors.Join(errs...)
}
