package archive

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"

	"trainyard/internal/blob"
	"trainyard/internal/fault"
)

// segmentSize is how much output is compressed into one blob.
const segmentSize = 4 << 20

// Blobs is the folder of all segments among the blobs, and blobRoot begins their names.
const (
	Blobs    = "logs"
	blobRoot = Blobs + "/"
)

// jobsPerFolder and ranksPerFolder say which logs share a folder of blobs: so many that folders do not count, and few
// enough to look through for one of them.
const (
	jobsPerFolder  = 100
	ranksPerFolder = 8
)

// blobPrefix begins the names of a log's segments.
func blobPrefix(l Log) string {
	j, _, _ := l.Run.Split()
	number, _ := j.Number()

	return fmt.Sprintf("%s%d.%d/%s.", blobRoot, number/jobsPerFolder, l.Rank/ranksPerFolder, l)
}

// formerRoot begins the names of all segments of earlier versions, in which each log had three folders of its own. None
// is written any more, and Move gives them the names of this version.
const formerRoot = blobRoot + "j"

// formerPrefix begins the names of a log's segments in earlier versions.
func formerPrefix(l Log) string {
	j, _, _ := l.Run.Split()
	run := string(l.Run)
	if l.UID != "" {
		run += "-" + string(l.UID)
	}

	return fmt.Sprintf("%s%s/%s/%d/", blobRoot, j, run, l.Rank)
}

// putWhole puts a log that came in one piece, as that of a short job does, into the blob store at once: it needs
// neither the journal nor a file. One that is empty needs a blob too, which says so.
func (b *Archive) putWhole(ctx context.Context, f *logFile, l Log, data []byte) error {
	var packed bytes.Buffer

	if len(data) > 0 {
		if err := compress(&packed, l, bytes.NewReader(data)); err != nil {
			return err
		}
	}

	size := int64(len(data))
	if err := b.blobs.Put(ctx, segmentName(l, 0, size), &packed); err != nil {
		return err
	}

	f.size, f.ended = size, true

	return nil
}

// compress packs a piece of a log.
func compress(to io.Writer, l Log, from io.Reader) error {
	z := gzip.NewWriter(to)
	if _, err := io.Copy(z, from); err != nil {
		return fault.New(fault.Unavailable, "log_store", "cannot read the log of %s", l.Run).WithCause(err)
	}
	if err := z.Close(); err != nil {
		return fmt.Errorf("compress log of %s: %w", l.Run, err)
	}

	return nil
}

// archive compresses a whole log into the blob store and removes the file.
func (b *Archive) archive(ctx context.Context, f *logFile, l Log) error {
	if f.size == 0 { // a crash came before its first byte
		if err := b.blobs.Put(ctx, segmentName(l, 0, 0), bytes.NewReader(nil)); err != nil {
			return err
		}
	}

	for at := int64(0); at < f.size; at += segmentSize {
		if err := b.pack(ctx, f, l, at, min(at+segmentSize, f.size)); err != nil {
			return err
		}
	}

	// Synced before the agent hears that all is here and forgets the run: a file that came back after a
	// power cut would be taken for a log of which the end is missing.
	if err := errors.Join(b.disk.Remove(f.file.Name()), b.disk.SyncDir(b.dir)); err != nil {
		return fmt.Errorf("remove log file of %s: %w", l.Run, err)
	}

	err := f.file.Close()
	f.file, f.ended = nil, true

	return err
}

// pack puts one piece of a log into the blob store. One that an earlier try
// brought there is left alone, so that a long log gets on with each try.
func (b *Archive) pack(ctx context.Context, f *logFile, l Log, start, end int64) error {
	name := segmentName(l, start, end)
	if done, err := b.blobs.Has(ctx, name); done || err != nil {
		return err
	}

	var packed bytes.Buffer
	if err := compress(&packed, l, io.NewSectionReader(f.file, start, end-start)); err != nil {
		return err
	}

	return b.blobs.Put(ctx, name, &packed)
}

// Remove removes an archived log and returns how many bytes that freed. Nothing is left of it: that it is complete must
// be known otherwise.
func (b *Archive) Remove(ctx context.Context, l Log) (int64, error) {
	f, err := b.lock(ctx, l)
	if err != nil {
		return 0, err
	}

	defer f.mu.Unlock()

	if !f.ended { // some of it is still to come
		return 0, nil
	}

	b.indexes.drop(l)

	segments, err := b.segments(ctx, l)
	if err != nil {
		return 0, err
	}

	var freed int64
	for _, s := range slices.Backward(segments) { // what a crash leaves is its beginning, which can be read
		if err := b.delete(ctx, s.name); err != nil {
			return freed, err
		}

		freed += s.size
		f.size = s.start
	}

	return freed, nil
}

// Move gives the segments of a log the names of this version, if they have those of an earlier one. All of it can be
// read at any time meanwhile.
func (b *Archive) Move(ctx context.Context, l Log) error {
	list, err := b.segmentsOf(ctx, formerPrefix(l))
	if err != nil {
		return err
	}

	for _, s := range list {
		if err := b.copySegment(ctx, s.name, segmentName(l, s.start, s.end)); err != nil {
			return fmt.Errorf("move log of %s: %w", l.Run, err)
		}
		if err := b.delete(ctx, s.name); err != nil {
			return err
		}
	}

	return nil
}

// copySegment copies a blob.
func (b *Archive) copySegment(ctx context.Context, from, to string) error {
	r, err := b.blobs.Get(ctx, from)
	if err != nil {
		return err
	}

	return errors.Join(b.blobs.Put(ctx, to, r), r.Close())
}

// delete deletes a segment, and its folders if they are empty now.
func (b *Archive) delete(ctx context.Context, name string) error {
	if err := b.blobs.Delete(ctx, name); err != nil {
		return err
	}

	if p, ok := b.blobs.(blob.Pruner); ok {
		return p.Prune(name)
	}

	return nil
}

func segmentName(l Log, start, end int64) string {
	return fmt.Sprintf("%s%015d-%015d.gz", blobPrefix(l), start, end)
}

// segment is one compressed piece of an archived log.
type segment struct {
	name       string
	start, end int64
	size       int64 // compressed
}

// segments lists the pieces of an archived log in their order; none if it is not archived. While it is moved a piece
// may have two names, of which one is listed.
func (b *Archive) segments(ctx context.Context, l Log) ([]segment, error) {
	list, err := b.segmentsOf(ctx, blobPrefix(l))
	if err != nil {
		return nil, err
	}

	former, err := b.hasFormer(ctx)
	if err != nil || !former {
		return list, err
	}

	moved, err := b.segmentsOf(ctx, formerPrefix(l))
	if err != nil {
		return nil, err
	}

	list = append(list, moved...)
	slices.SortStableFunc(list, func(a, b segment) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end))
	})

	return slices.CompactFunc(list, func(a, b segment) bool { return a.start == b.start && a.end == b.end }), nil
}

// hasFormer reports whether there were segments of earlier versions when that was asked for the first time: later there
// are no more of them.
func (b *Archive) hasFormer(ctx context.Context) (bool, error) {
	b.formerMu.Lock()
	defer b.formerMu.Unlock()

	if b.former != nil {
		return *b.former, nil
	}

	found := false
	for _, err := range b.blobs.List(ctx, formerRoot) {
		if err != nil {
			return false, err
		}

		found = true

		break
	}

	b.former = &found

	return found, nil
}

func (b *Archive) segmentsOf(ctx context.Context, prefix string) ([]segment, error) {
	var list []segment
	for info, err := range b.blobs.List(ctx, prefix) {
		if err != nil {
			return nil, err
		}

		text := strings.TrimSuffix(info.Name, ".gz")
		first, last, _ := strings.Cut(text[strings.LastIndexAny(text, "/.")+1:], "-")
		start, err1 := strconv.ParseInt(first, 10, 64)

		end, err2 := strconv.ParseInt(last, 10, 64)
		if err1 != nil || err2 != nil {
			return nil, fmt.Errorf("blob %s is not a log segment", info.Name)
		}

		list = append(list, segment{info.Name, start, end, info.Size})
	}

	return list, nil
}

func (b *Archive) readArchived(ctx context.Context, l Log, offset, limit int64) ([]byte, error) {
	segments, err := b.segments(ctx, l)
	if err != nil {
		return nil, err
	}

	var out []byte
	for _, s := range segments {
		if s.end <= offset || s.end == 0 || int64(len(out)) >= limit {
			continue
		}

		raw, err := b.unpacked.get(s.name, func() ([]byte, error) { return b.unpack(ctx, l, s) })
		if err != nil {
			return nil, err
		}

		part := raw[min(max(0, offset-s.start), int64(len(raw))):]
		out = append(out, part[:min(int64(len(part)), limit-int64(len(out)))]...)
	}

	return out, nil
}

// Copy writes the bytes of a log from an offset to another, both of which are there.
func (b *Archive) Copy(ctx context.Context, w io.Writer, l Log, offset, end int64) error {
	for offset < end {
		st, err := b.State(ctx, l)
		if err != nil {
			return err
		}
		if st.Ended {
			return b.copyArchived(ctx, w, l, offset, end)
		}

		raw, err := b.Read(ctx, l, offset, min(chunk, end-offset))
		if err == nil && len(raw) == 0 {
			err = fmt.Errorf("log of %s ends at %d, not at %d", l.Run, offset, end)
		}

		if err == nil {
			_, err = w.Write(raw)
		}

		if err != nil {
			return err
		}

		offset += int64(len(raw))
	}

	return nil
}

// copyArchived is Copy for a log that is archived: each of its pieces is unpacked once.
func (b *Archive) copyArchived(ctx context.Context, w io.Writer, l Log, offset, end int64) error {
	segments, err := b.segments(ctx, l)
	if err != nil {
		return err
	}

	for _, s := range segments {
		if s.end <= offset || s.start >= end {
			continue
		}

		raw, err := b.unpack(ctx, l, s)
		if err != nil {
			return err
		}
		if int64(len(raw)) != s.end-s.start || offset < s.start {
			return fmt.Errorf("log of %s is not whole at %d", l.Run, offset)
		}

		part := raw[offset-s.start : min(end, s.end)-s.start]
		if _, err := w.Write(part); err != nil {
			return err
		}

		offset += int64(len(part))
	}

	if offset < end {
		return fmt.Errorf("log of %s ends at %d, not at %d", l.Run, offset, end)
	}

	return nil
}

// unpackedSegments bounds how many pieces of archived logs are kept in memory: a search looks at a quarter of one at a
// time, and several may be under way.
const unpackedSegments = 4

// unpackedCache remembers the pieces of archived logs that were read last. What they hold never changes. It is safe for
// concurrent use.
type unpackedCache struct {
	mu   sync.Mutex
	last []unpackedSegment // the newest first
}

type unpackedSegment struct {
	name string
	raw  []byte
}

// get returns a piece, which it gets by unpack if it does not have it. The caller must not change it.
func (c *unpackedCache) get(name string, unpack func() ([]byte, error)) ([]byte, error) {
	c.mu.Lock()
	i := slices.IndexFunc(c.last, func(s unpackedSegment) bool { return s.name == name })
	if i >= 0 {
		found := c.last[i]
		c.last = slices.Insert(slices.Delete(c.last, i, i+1), 0, found)
		c.mu.Unlock()

		return found.raw, nil
	}

	c.mu.Unlock()

	raw, err := unpack()
	if err != nil {
		return nil, err
	}

	c.mu.Lock()
	defer c.mu.Unlock()

	c.last = slices.Insert(c.last, 0, unpackedSegment{name, raw})
	c.last = c.last[:min(len(c.last), unpackedSegments)]

	return raw, nil
}

func (b *Archive) unpack(ctx context.Context, l Log, s segment) ([]byte, error) {
	r, err := b.blobs.Get(ctx, s.name)
	if fault.KindOf(err) == fault.NotFound { // moved since it was listed
		r, err = b.blobs.Get(ctx, segmentName(l, s.start, s.end))
	}
	if err != nil {
		return nil, err
	}

	defer func() { _ = r.Close() }()

	z, err := gzip.NewReader(r)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", s.name, err)
	}

	raw, err := io.ReadAll(io.LimitReader(z, segmentSize))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", s.name, err)
	}

	return raw, nil
}
