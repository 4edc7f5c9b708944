package archive

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"unicode/utf8"

	"trainyard/internal/api"
	"trainyard/internal/logs"
	"trainyard/internal/pattern"
)

// Range chooses lines of a log by their numbers, which begin with 1.
type Range struct {
	From     int64 // the first line; a negative number counts from the end: -1 is the last
	Backward bool  // instead of those from From on, the last ones before it; those before the end if From is 0
	Limit    int   // at most so many lines
	Bytes    int   // no further line after so many bytes of text
	Cut      int   // lines are cut to so many bytes; 0 for none
}

// Numbered are lines with their numbers.
type Numbered struct {
	Lines   []api.LogLine
	Next    int64 // From of the range that goes on; 0 if there are no more lines in this direction
	Total   int64 // how many lines are counted
	Size    int64 // of the log
	Counted int64 // bytes of which the lines are counted: all, unless the budget was spent
}

// Numbered returns the lines of a range that the filter lets through. Lines that have no end yet come last; their
// numbers may change places.
func (b *Archive) Numbered(ctx context.Context, l Log, r Range, f *Filter) (Numbered, error) {
	c, err := b.count(ctx, l, f.Budget)
	if err != nil {
		return Numbered{}, err
	}

	w := &walk{archive: b, log: l, count: &c, filter: *f, room: r}
	w.filter.Collapse = true
	w.out = Numbered{Total: c.total, Size: c.size, Counted: c.size}
	if !c.whole() {
		w.out.Counted = c.places[len(c.places)-1].offset
	}

	switch {
	case r.From < 0:
		w.room.From = max(c.total+1+r.From, 1)
	case r.From == 0 && r.Backward:
		w.room.From = c.total + 1
	}

	if r.Backward {
		err = w.backward(ctx)
	} else {
		err = w.forward(ctx)
	}

	return w.out, err
}

// walk goes through the lines of a log.
type walk struct {
	archive *Archive
	log     Log
	count   *count
	filter  Filter
	room    Range // what is wanted
	out     Numbered
	bytes   int // of text
}

func (w *walk) full() bool {
	return len(w.out.Lines) >= w.room.Limit || w.room.Bytes > 0 && w.bytes >= w.room.Bytes
}

// piece calls fn for the lines of a piece, until it returns false.
func (w *walk) piece(ctx context.Context, piece int, fn func(number int64, l *logs.Line) bool) error {
	at := w.count.places[piece]
	raw, err := w.archive.Read(ctx, w.log, at.offset, min(chunk, w.count.size-at.offset))
	if err != nil {
		return err
	}

	_, err = scan(raw, at, fn)
	if err != nil {
		return fmt.Errorf("log of %s rank %d: %w", w.log.Run, w.log.Rank, err)
	}

	return ctx.Err()
}

// forward takes lines from the first one on.
func (w *walk) forward(ctx context.Context) error {
	from := max(w.room.From, 1)

	for piece := w.count.piece(from); piece < w.count.pieces; piece++ {
		err := w.piece(ctx, piece, func(number int64, l *logs.Line) bool {
			if number < from {
				return true
			}

			if ctx.Err() == nil && w.filter.affords(l) {
				if !w.filter.lets(l) {
					return true
				}

				if !w.full() {
					w.take(number, l)
					return true
				}
			}

			w.out.Next = number

			return false
		})
		if err != nil || w.out.Next > 0 {
			return err
		}
	}

	if !w.count.whole() {
		w.out.Next = max(from, w.count.total+1)
	}

	return nil
}

// backward takes lines from the one before the first on, towards the beginning.
func (w *walk) backward(ctx context.Context) error {
	before := min(w.room.From, w.count.total+1)

	for piece := min(w.count.piece(before-1), w.count.pieces-1); piece >= 0; piece-- {
		var lines []logs.Line // of the piece, which can be read in one direction only

		err := w.piece(ctx, piece, func(number int64, l *logs.Line) bool {
			if number < before {
				lines = append(lines, *l)
			}

			return number < before
		})
		if err != nil {
			return err
		}

		for i := range slices.Backward(lines) {
			number := w.count.places[piece].lines + int64(i) + 1
			if !w.filter.affords(&lines[i]) || w.filter.lets(&lines[i]) && w.full() {
				w.out.Next = number + 1
				break
			}

			if w.filter.lets(&lines[i]) {
				w.take(number, &lines[i])
			}
		}

		if w.out.Next > 0 {
			break
		}
	}

	slices.Reverse(w.out.Lines)

	return nil
}

// take adds a line.
func (w *walk) take(number int64, l *logs.Line) {
	shown := *l
	shown.Text = bytes.TrimRight(logs.LastState(l.Text), "\r")
	length := len(shown.Text)

	var found []int
	if w.filter.Grep != nil && utf8.Valid(shown.Text) {
		found = matches(w.filter.Grep, shown.Text)
	}

	if w.room.Cut > 0 && length > w.room.Cut {
		shown.Text = shown.Text[:w.room.Cut]
		for i := 1; i < utf8.UTFMax && !utf8.Valid(shown.Text[max(0, len(shown.Text)-utf8.UTFMax):]); i++ {
			shown.Text = shown.Text[:w.room.Cut-i] // not in the middle of a character
		}
	}

	line := api.NewLogLine(w.log.Run, w.log.Rank, &shown)
	line.Number, line.Matches = number, found
	if len(shown.Text) < length {
		line.Length = int64(length)
	}

	w.out.Lines = append(w.out.Lines, line)
	w.bytes += len(line.Text) + len(line.Raw)
}

// maxMatches is how many matches within a line are shown.
const maxMatches = 50

// matches returns where an expression matches a text. Matches of nothing are left out: there is nothing to mark.
func matches(p *pattern.Pattern, text []byte) (at []int) {
	for _, m := range p.FindAllIndex(text, maxMatches) {
		if m[1] > m[0] {
			at = append(at, m...)
		}
	}

	return at
}

// CopyText writes the lines of a log up to an offset as text, as they were printed.
func (b *Archive) CopyText(ctx context.Context, w io.Writer, l Log, end int64) error {
	out := bufio.NewWriter(w)
	all := &Filter{}
	at := Mark{}

	for {
		raw, err := b.Read(ctx, l, at.Offset, min(chunk, end-at.Offset))
		if err != nil {
			return err
		}

		next, err := all.eachLine(raw, at.Offset, func(before Mark, line *logs.Line) bool {
			if before.Offset == at.Offset && before.Skip < at.Skip {
				return true
			}

			if line.Stream == logs.Yard {
				_, _ = out.WriteString("[yard] ") // Flush says what is wrong
			}

			_, _ = out.Write(line.Text)
			if !line.Partial {
				_ = out.WriteByte('\n')
			}

			return ctx.Err() == nil
		})
		if err != nil {
			return fmt.Errorf("log of %s rank %d: %w", l.Run, l.Rank, err)
		}
		if err := ctx.Err(); err != nil {
			return err
		}

		if len(raw) < chunk || next == at {
			return out.Flush()
		}

		at = next
	}
}
