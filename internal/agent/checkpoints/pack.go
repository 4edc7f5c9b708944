package checkpoints

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"

	"trainyard/internal/api"
	"trainyard/internal/id"
)

// errChanged says that a file was written or removed while it was read: the checkpoint is not complete after all.
var errChanged = errors.New("the files changed while they were read")

// packer uploads the files of one checkpoint. Several readers cut files into pieces, which are collected in segments;
// each segment is hashed and uploaded while the next is being read.
type packer struct {
	store    *store
	gear     *gear
	run      id.Run
	tree     *tree
	progress *transfer
	cached   func(f *file) ([]api.CheckpointChunk, bool)
	single   bool // whatever is found at the path is complete
	stays    bool // the files stay where they are: their chunks are computed, not uploaded
	growing  bool // a file that is written while it is read is taken as it was found

	group *group
}

// packed is one file of a manifest in the making.
type packed struct {
	file   file
	chunks [][]api.CheckpointChunk // in order, of one segment each
}

// entry returns the file as the manifest lists it.
func (p *packed) entry() api.CheckpointFile {
	f := api.CheckpointFile{
		Path: p.file.path, Mode: uint32(p.file.mode.Perm()), Size: p.file.size, Link: p.file.link,
	}

	for _, some := range p.chunks {
		f.Chunks = append(f.Chunks, some...)
	}

	return f
}

// pack uploads the files that the store lacks, and returns them with their chunks.
func (p *packer) pack(ctx context.Context, files []file) ([]packed, error) {
	p.group = newGroup(ctx)
	all := make([]packed, len(files))
	work := make(chan *packed)

	for range min(len(files), max(1, runtime.GOMAXPROCS(0)/2), segments) {
		p.group.run(func(ctx context.Context) error {
			r := &reader{packer: p}
			defer r.drop()

			for item := range work {
				if err := r.read(ctx, item); err != nil {
					return err
				}
			}

			return r.flush(ctx)
		})
	}

	var feed sync.WaitGroup
	feed.Go(func() {
		defer close(work)

		for i := range files {
			all[i].file = files[i]

			select {
			case work <- &all[i]:
			case <-p.group.ctx.Done():
				return
			}
		}
	})

	err := p.group.wait()
	feed.Wait()

	return all, err
}

// reader reads files into a segment until it is full.
type reader struct {
	*packer
	buf    []byte // nil if no segment has begun
	used   int
	ahead  int // bytes behind the used ones that were read already
	pieces []piece
}

// read uploads one file.
func (r *reader) read(ctx context.Context, item *packed) (err error) {
	if item.file.link != "" {
		return nil
	}

	if chunks, ok := r.cached(&item.file); ok {
		item.chunks = [][]api.CheckpointChunk{chunks}
		if r.stays {
			return nil
		}

		return r.reuse(ctx, item)
	}

	f, err := r.open(&item.file)
	if err != nil {
		return err
	}

	defer func() { err = errors.Join(err, r.close(f, &item.file)) }()

	for at := int64(0); at < item.file.size; {
		n, err := r.fill(ctx, f, item, at)
		if err != nil {
			return err
		}

		at += n
	}

	return nil
}

// open opens a file that is still as it was seen.
func (r *reader) open(seen *file) (*os.File, error) {
	f, err := r.tree.root.OpenFile(filepath.FromSlash(seen.path), os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ELOOP) {
		return nil, errChanged
	}
	if err != nil {
		return nil, fmt.Errorf("read checkpoint: %w", err)
	}

	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read checkpoint: %w", err), f.Close())
	}

	now := describe(seen.path, info)

	switch {
	case now.same(seen):
	case r.single && info.Mode().IsRegular():
		*seen = now
	default:
		return nil, errors.Join(errChanged, f.Close())
	}

	return f, nil
}

// close closes a file, and fails if it was written while it was open.
func (r *reader) close(f *os.File, seen *file) error {
	info, err := f.Stat()
	if err == nil {
		if now := describe(seen.path, info); !r.growing && !now.same(seen) {
			err = errChanged
		}
	}

	return errors.Join(err, f.Close())
}

// fill reads one piece of the file, from an offset on, into the segment, and returns its length.
func (r *reader) fill(ctx context.Context, f *os.File, item *packed, at int64) (int64, error) {
	left := item.file.size - at
	if !r.fits(left) {
		if err := r.flush(ctx); err != nil {
			return 0, err
		}
	}

	if r.buf == nil {
		buf, err := r.store.buffer(ctx)
		if err != nil {
			return 0, err
		}

		r.buf = buf
	}

	room := r.buf[r.used:][:min(left, maxChunk)]
	n, have, err := r.next(f, at, room)
	if err != nil {
		return 0, err
	}

	chunks := make([]api.CheckpointChunk, 1)
	item.chunks = append(item.chunks, chunks)
	r.pieces = append(r.pieces, piece{room[:n], &chunks[0]})

	r.used = (r.used + n + alignment - 1) &^ (alignment - 1)
	r.ahead = 0

	if r.fits(left - int64(n)) { // otherwise the next segment reads it again
		r.ahead = copy(r.buf[r.used:], room[n:have])
	}

	return int64(n), nil
}

// next reads the file from an offset on until it has found the end of a piece. It returns the length of the piece and
// of what it has read.
func (r *reader) next(f *os.File, at int64, room []byte) (n, have int, err error) {
	for have = r.ahead; ; {
		searched := have
		have = min(max(have, minChunk)+readStep, len(room))

		if _, err := f.ReadAt(room[searched:have], at+int64(searched)); errors.Is(err, io.EOF) {
			return 0, 0, errChanged // it has become shorter
		} else if err != nil {
			return 0, 0, fmt.Errorf("read checkpoint: %w", err)
		}

		n = r.gear.end(room[:have], searched)
		if n > 0 {
			return n, have, nil
		}

		if have == len(room) { // the end of the file, otherwise there was room for the largest chunk
			return have, have, nil
		}
	}
}

// fits reports whether the segment has room for the next piece of a file of which so much is left.
func (r *reader) fits(left int64) bool {
	return r.buf == nil || int64(segmentSize-r.used) >= min(left, maxChunk)
}

// flush hands the segment over to be hashed and uploaded.
func (r *reader) flush(ctx context.Context) error {
	if r.buf == nil {
		return nil
	}

	buf, pieces := r.buf, r.pieces
	r.buf, r.pieces, r.used, r.ahead = nil, nil, 0, 0
	run, progress, s, stays := r.run, r.progress, r.store, r.stays

	r.group.run(func(ctx context.Context) error {
		defer s.release(buf)

		if err := s.hash(ctx, pieces); err != nil {
			return err
		}

		if stays {
			progress.skip(0) // it goes on
			return nil
		}

		return s.upload(ctx, run, pieces, progress)
	})

	return ctx.Err()
}

// drop gives up a segment that was not flushed.
func (r *reader) drop() {
	if r.buf != nil {
		r.store.release(r.buf)
		r.buf = nil
	}
}

// reuse makes sure that the store still has the chunks of a file that has not changed since they were uploaded.
func (r *reader) reuse(ctx context.Context, item *packed) error {
	at := int64(0)

	for rest := item.chunks[0]; len(rest) > 0; {
		some := rest[:min(len(rest), askBatch)]
		rest = rest[len(some):]

		missing, err := r.store.missing(ctx, r.run, some, r.progress)
		if err != nil {
			return err
		}

		for i := range some {
			place, needed := missing[some[i].Digest]
			if needed {
				err = r.resend(ctx, item, at, some[i], place)
			} else {
				r.progress.skip(some[i].Size)
			}

			if err != nil {
				return err
			}

			at += some[i].Size
		}
	}

	return nil
}

// resend uploads one chunk of a file again.
func (r *reader) resend(
	ctx context.Context, item *packed, at int64, c api.CheckpointChunk, place api.ChunkPlace,
) (err error) {
	f, err := r.open(&item.file)
	if err != nil {
		return err
	}

	defer func() { err = errors.Join(err, r.close(f, &item.file)) }()

	data := make([]byte, c.Size)
	if _, err := f.ReadAt(data, at); err != nil {
		return errChanged
	}
	if digestOf(data) != c.Digest {
		return errChanged
	}

	return r.store.send(ctx, r.run, piece{data, &c}, place, r.progress)
}
