package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"trainyard/internal/logs"
)

// place is where a line of a log begins: after so many lines of the log, and after so many of those that end in the
// frames from an offset on. Frames are as large as what a program writes at once, so that few begin with a line.
type place struct {
	offset, lines, skip int64
}

// index knows where lines of a log begin, about a chunk apart, so that a line is found by its number without reading
// all before it. What is known never changes, as logs only grow.
type index struct {
	name string

	mu     sync.Mutex
	places []place // ascending; the first is the beginning
	size   int64   // of the log when the lines after the last place were counted
	rest   int64   // how many that were, with those that have no end yet
}

// count is what is known of the lines of a log.
type count struct {
	places []place
	pieces int   // so many of the places have the lines up to the next counted
	size   int64 // of the log
	total  int64 // lines that are counted
}

// whole reports whether all lines are counted.
func (c *count) whole() bool { return c.pieces == len(c.places) }

// piece returns the piece that a line is in, or would be in.
func (c *count) piece(number int64) int {
	after, _ := slices.BinarySearchFunc(c.places, number, func(p place, n int64) int {
		if p.lines < n {
			return -1
		}

		return 1
	})

	return max(after-1, 0)
}

// count counts the lines of a log as far as the budget lasts. Those who need the same log wait for each other.
func (b *Archive) count(ctx context.Context, l Log, budget *Budget) (count, error) {
	ix := b.indexes.of(l)
	ix.mu.Lock()
	defer ix.mu.Unlock()

	st, err := b.State(ctx, l)
	if err != nil {
		return count{}, err
	}

	for {
		last := ix.places[len(ix.places)-1]
		if st.Size-last.offset < chunk {
			break
		}

		if ctx.Err() != nil {
			return count{}, ctx.Err()
		}
		if budget != nil && !budget.pay(chunk) {
			return count{places: ix.places, pieces: len(ix.places) - 1, size: st.Size, total: last.lines}, nil
		}

		next, err := b.countFrom(ctx, l, last, chunk)
		if err != nil {
			return count{}, err
		}

		ix.places = append(ix.places, next)
	}

	last := ix.places[len(ix.places)-1]
	if ix.size != st.Size {
		next, err := b.countFrom(ctx, l, last, st.Size-last.offset)
		if err != nil {
			return count{}, err
		}

		ix.size, ix.rest = st.Size, next.lines-last.lines
	}

	return count{places: ix.places, pieces: len(ix.places), size: st.Size, total: last.lines + ix.rest}, nil
}

// countFrom counts the lines of so many bytes of a log, and returns where to go on.
func (b *Archive) countFrom(ctx context.Context, l Log, at place, size int64) (place, error) {
	raw, err := b.Read(ctx, l, at.offset, size)
	if err != nil {
		return at, err
	}

	next, err := scan(raw, at, func(int64, *logs.Line) bool { return true })
	if err != nil {
		return at, fmt.Errorf("log of %s rank %d: %w", l.Run, l.Rank, err)
	}

	return next, nil
}

// begun is the frame in which a line began that has no end yet, and how many lines ended before that frame.
type begun struct {
	offset, ended int64
}

// scan calls fn for the lines of a piece of a log from a place on, until it returns false, and returns the place after
// them. Lines are as people see them, so that a progress bar is one. One that goes on for a whole chunk is divided.
func scan(raw []byte, at place, fn func(number int64, l *logs.Line) bool) (place, error) {
	dec := logs.NewDecoder(bytes.NewReader(raw))
	asm := logs.Assembler{Collapse: true}
	open := map[logs.Stream]begun{}
	ended, divided := int64(0), int64(0) // lines, and those up to the last that was divided for its length

	give := func(lines []logs.Line) bool {
		for i := range lines {
			ended++
			if ended > at.skip && !fn(at.lines+ended-at.skip, &lines[i]) {
				return false
			}
		}

		return true
	}

	for {
		start := begun{dec.Offset(), ended}
		frame, err := dec.Next()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err != nil {
			return at, err
		}

		lines := asm.Add(frame)
		if !give(lines) {
			return at, nil
		}

		if slices.ContainsFunc(lines, func(l logs.Line) bool { return l.Partial }) {
			divided = ended
		}

		if _, was := open[frame.Stream]; !asm.Open(frame.Stream) {
			delete(open, frame.Stream)
		} else if !was || len(lines) > 0 {
			open[frame.Stream] = start
		}
	}

	if len(raw) == chunk {
		first := begun{dec.Offset(), ended}
		for _, b := range open {
			if b.offset < first.offset {
				first = b
			}
		}

		// Whoever reads from there meets the same ends of lines, if none was divided for its length.
		if first.offset > 0 && divided <= first.ended {
			return place{at.offset + first.offset, at.lines + ended - at.skip, ended - first.ended}, nil
		}
	}

	give(asm.Flush())

	return place{offset: at.offset + dec.Offset(), lines: at.lines + ended - at.skip}, nil
}

// muchUncounted is how many bytes of a log may be counted in passing.
const muchUncounted = 16 * chunk

// Uncounted reports whether it takes long to find a line of a log by its number.
func (b *Archive) Uncounted(ctx context.Context, l Log) (bool, error) {
	st, err := b.State(ctx, l)
	if err != nil {
		return false, err
	}

	ix := b.indexes.of(l)
	ix.mu.Lock()
	defer ix.mu.Unlock()

	return st.Size-ix.places[len(ix.places)-1].offset > muchUncounted, nil
}

// indexedLogs bounds how many indexes are kept in memory. One has 24 bytes for each chunk of its log.
const indexedLogs = 64

// indexCache remembers the indexes that were used last. It is safe for concurrent use.
type indexCache struct {
	mu   sync.Mutex
	last []*index // the newest first
}

// of returns the index of a log.
func (c *indexCache) of(l Log) *index {
	c.mu.Lock()
	defer c.mu.Unlock()

	found := &index{name: l.String(), places: []place{{}}, size: -1}
	i := slices.IndexFunc(c.last, func(ix *index) bool { return ix.name == found.name })
	if i >= 0 {
		found = c.last[i]
		c.last = slices.Delete(c.last, i, i+1)
	}

	c.last = slices.Insert(c.last, 0, found)
	c.last = c.last[:min(len(c.last), indexedLogs)]

	return found
}

// drop forgets the index of a log that is removed.
func (c *indexCache) drop(l Log) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.last = slices.DeleteFunc(c.last, func(ix *index) bool { return ix.name == l.String() })
}
