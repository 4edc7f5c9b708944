package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/humanize"
	"trainyard/internal/logs"
	"trainyard/internal/pattern"
)

// Cursor is how far someone has read a job's output: the run, and for each
// rank the offset of a frame and how many lines from there on were seen.
type Cursor struct {
	Epoch int
	Ranks []Mark
}

// Mark is how far someone has read one rank.
type Mark struct {
	Offset int64
	Skip   int
}

// Clone returns a copy that shares nothing with the cursor.
func (c Cursor) Clone() Cursor { return Cursor{c.Epoch, slices.Clone(c.Ranks)} }

// String writes the cursor for the wire: "2/100+3/0+0".
func (c Cursor) String() string {
	var out strings.Builder
	out.WriteString(strconv.Itoa(c.Epoch))

	for _, r := range c.Ranks {
		fmt.Fprintf(&out, "/%d+%d", r.Offset, r.Skip)
	}

	return out.String()
}

// maxRanks is more than any run has.
const maxRanks = 4096

// ParseCursor reads what String wrote.
func ParseCursor(s string) (Cursor, error) {
	bad := badCursor(s)
	parts := strings.Split(s, "/")
	epoch, err := strconv.Atoi(parts[0])
	if err != nil || epoch < 1 || len(parts) > maxRanks {
		return Cursor{}, bad
	}

	c := Cursor{Epoch: epoch}

	for _, p := range parts[1:] {
		left, right, ok := strings.Cut(p, "+")
		offset, err1 := strconv.ParseInt(left, 10, 64)

		skip, err2 := strconv.Atoi(right)
		if !ok || err1 != nil || err2 != nil || offset < 0 || skip < 0 {
			return Cursor{}, bad
		}

		c.Ranks = append(c.Ranks, Mark{offset, skip})
	}

	return c, nil
}

func badCursor(s string) error {
	return fault.New(fault.Invalid, "bad_cursor", "invalid cursor %q", s).WithField("cursor").
		WithRemedy("use the cursor of an earlier response, or leave it out")
}

// Filter chooses lines.
type Filter struct {
	Stream string           // "" for all
	Grep   *pattern.Pattern // nil for all
	Errors bool             // only lines that look like errors
	Since  time.Time        // only lines that began at or after it; zero for all
	Until  time.Time        // only lines that began before it; zero for all
	Budget *Budget          // for looking at lines; nil for no bound
	Before int64            // ReadLines reads as if the log ended at this offset; 0 for all of it
	// Collapse keeps the last state alone of lines that are rewritten with carriage returns.
	Collapse bool
}

func (f *Filter) lets(l *logs.Line) bool {
	text := l.Text
	if f.Collapse {
		text = logs.LastState(text)
	}

	return (f.Stream == "" || l.Stream.String() == f.Stream) &&
		(f.Since.IsZero() || !l.At.Before(f.Since)) && (f.Until.IsZero() || l.At.Before(f.Until)) &&
		(!f.Errors || LooksLikeError(text)) && (f.Grep == nil || f.Grep.Match(text))
}

// lineCost is what a line costs beside its bytes.
const lineCost = 32

// affords pays for looking at a line, and reports whether that was possible.
func (f *Filter) affords(l *logs.Line) bool {
	if f.Budget == nil {
		return true
	}

	cost := int64(len(l.Text) + lineCost)
	if f.Grep != nil {
		cost += f.Grep.Cost(len(l.Text))
	}

	return f.Budget.pay(cost)
}

// chunk is how much of a log is looked at in one go.
const chunk = 1 << 20

// ReadLines returns up to most lines of one rank from a cursor on, the cursor
// after each, and the cursor after all. more is false when all that is here has been read. A line
// that has no end yet is returned as partial when nothing follows it; if both
// streams have one, they come together, though that be one line too many. When the filter's budget is
// spent it returns what it has found so far, with more.
func (b *Archive) ReadLines(
	ctx context.Context,
	log Log,
	at Mark,
	f *Filter,
	most int,
) (lines []api.LogLine, after []Mark, next Mark, more bool, err error) {
	size := int64(chunk)
	if f.Before > 0 {
		size = min(size, f.Before-at.Offset)
	}

	raw, err := b.Read(ctx, log, at.Offset, size)
	if err != nil || len(raw) == 0 {
		return nil, nil, at, false, err
	}

	full := false
	var last Mark            // before the last line
	paid := Mark{Offset: -1} // before the line that was looked at last

	end, err := f.eachLine(raw, at.Offset, func(before Mark, l *logs.Line) bool {
		if before.Offset == at.Offset && before.Skip < at.Skip {
			return true
		}

		// Lines that have no end yet share a cursor: they are looked at together or not at all.
		if ctx.Err() != nil || before != paid && !f.affords(l) {
			full = true
			return false
		}

		paid = before
		if !f.lets(l) {
			return true
		}

		full = len(lines) >= most && before != last
		if full {
			return false
		}

		if len(lines) > 0 {
			after = append(after, before) // after the line before
		}

		last = before
		lines = append(lines, api.NewLogLine(log.Run, log.Rank, l))

		return true
	})
	if err != nil {
		return nil, nil, at, false, damaged(err, log, at)
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, at, false, err
	}

	if end.Offset == at.Offset && !full {
		end, more = at, false // the first frame is not whole yet
	} else {
		more = full || len(raw) == chunk
	}

	if len(lines) > 0 {
		after = append(after, end)
	}

	return lines, after, end, more, nil
}

// eachLine calls fn for the lines of a piece of a log that begins with a frame
// at base, until fn returns false, and returns the cursor to go on from. A line
// that goes on after a full piece is left for the next one. Lines that have no
// end yet share one cursor: which of them comes first may change as they grow.
func (f *Filter) eachLine(raw []byte, base int64, fn func(before Mark, l *logs.Line) bool) (Mark, error) {
	dec := logs.NewDecoder(bytes.NewReader(raw))
	asm := logs.Assembler{Collapse: f.Collapse}
	at := Mark{Offset: base} // before the next line
	give := func(lines []logs.Line) bool {
		for i := range lines {
			if !fn(at, &lines[i]) {
				return false
			}

			at.Skip++
		}

		return true
	}

	for {
		frame, err := dec.Next()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			if len(raw) == chunk && at.Offset > base {
				return at, nil
			}

			open := asm.Flush()
			for i := range open {
				if !fn(at, &open[i]) {
					return at, nil
				}
			}

			return Mark{Offset: base + dec.Offset()}, nil
		}

		if err != nil {
			return at, err
		}
		if !give(asm.Add(frame)) {
			return at, nil
		}

		if asm.Empty() {
			at = Mark{Offset: base + dec.Offset()}
		}
	}
}

// damaged says that a log cannot be read on from a cursor. If not even the
// first frame there makes sense, the cursor is not one that we gave.
func damaged(err error, log Log, at Mark) error {
	var d *logs.DamageError
	if errors.As(err, &d) && d.Offset == 0 && at.Offset > 0 {
		return badCursor(fmt.Sprintf("%d+%d", at.Offset, at.Skip))
	}

	return fmt.Errorf("log of %s rank %d: %w", log.Run, log.Rank, err)
}

// Tail returns a cursor after which the last n lines of a rank that the filter
// lets through follow. It looks back in growing steps. It fails if the filter's budget does not last.
func (b *Archive) Tail(ctx context.Context, log Log, f *Filter, n int) (Mark, error) {
	known, err := b.count(ctx, log, nil)
	if err != nil {
		return Mark{}, err
	}

	for back := 1; ; back *= 4 {
		first := max(0, len(known.places)-back)
		var before []Mark

		at := Mark{Offset: known.places[first].offset}
		for more := true; more; {
			raw, err := b.Read(ctx, log, at.Offset, chunk)
			if err != nil {
				return Mark{}, err
			}

			skip := at
			var stop error

			end, err := f.eachLine(raw, at.Offset, func(c Mark, l *logs.Line) bool {
				if c.Offset == skip.Offset && c.Skip < skip.Skip {
					return true
				}

				stop = ctx.Err()
				if stop == nil && !f.affords(l) {
					stop = errTailTooFar(n)
				}

				if stop == nil && f.lets(l) {
					before = append(before, c)
				}

				return stop == nil
			})
			if err != nil {
				return Mark{}, fmt.Errorf("log of %s rank %d: %w", log.Run, log.Rank, err)
			}
			if stop != nil {
				return Mark{}, stop
			}

			more = len(raw) == chunk && end != at
			at = end
		}

		// The first one may be the end of a line that began further back.
		if len(before) > n || first == 0 && len(before) == n {
			return before[len(before)-n], nil
		}
		if first == 0 {
			return Mark{}, nil
		}
	}
}

func errTailTooFar(n int) error {
	return fault.New(fault.OverLimit, "search_too_long", "the last %s could not be found within the limits of one request",
		humanize.Count(n, "matching line")).WithField("tail").
		WithRemedy("search without a number of last lines, or with a simpler expression")
}
