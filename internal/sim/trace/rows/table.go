package rows

import (
	"errors"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"trainyard/internal/fault"
)

// Table reads rows of text with named columns. It splits lines itself: a
// quotation mark that is never closed spoils one line and not the rest of the
// file, and each row has the number of its line. So a field cannot hold a line
// end; no trace that is read here has one.
type Table struct {
	*File
	comma   byte     // between fields; ' ' for any white space
	columns []string // names, in order
	known   map[string]int
	Fields  []string     // of the row; valid until the next
	Err     *fault.Error // the first mistake of the row
}

// NewTable reads a table with fixed columns and no header.
func NewTable(f *File, comma byte, columns ...string) *Table {
	t := &Table{File: f, comma: comma}
	t.SetColumns(columns)
	return t
}

// WithHeader reads a table whose first line names its columns. The wanted ones
// must be among them.
func WithHeader(f *File, comma byte, wanted ...string) (*Table, error) {
	t := &Table{File: f, comma: comma}
	line, err := f.Next()
	if errors.Is(err, io.EOF) {
		return nil, f.Bad(0, "", "the file is empty")
	}
	if err != nil {
		return nil, err
	}
	if err := t.split(line); err != nil {
		return nil, err
	}

	names := make([]string, len(t.Fields))
	for i, n := range t.Fields {
		names[i] = strings.Clone(strings.TrimSpace(n))
	}

	t.SetColumns(names)

	for _, w := range wanted {
		if !slices.Contains(names, w) {
			e := f.Bad(0, w, "column not found")
			e.Remedy = "the columns are " + strings.Join(names, ", ")
			return nil, e
		}
	}

	return t, nil
}

// SetColumns names the columns anew, for a file whose rows are of several forms.
func (t *Table) SetColumns(columns []string) {
	t.columns, t.known = columns, make(map[string]int, len(columns))
	for i, c := range columns {
		t.known[c] = i
	}
}

// Read takes the next row; empty lines do not count.
func (t *Table) Read() error {
	t.Err = nil
	for {
		line, err := t.Next()
		if err != nil {
			return err
		}
		if strings.TrimSpace(line) == "" {
			continue
		}

		return t.split(line)
	}
}

// split divides a line into fields. Fields may be in quotation marks, with two
// for one inside.
func (t *Table) split(line string) error {
	t.Fields = t.Fields[:0]
	if t.comma == ' ' {
		for f := range strings.FieldsSeq(line) {
			t.Fields = append(t.Fields, f)
		}

		return nil
	}

	for {
		if strings.HasPrefix(line, `"`) {
			field, rest, ok := quoted(line[1:], t.comma)
			if !ok {
				return t.Bad(len(t.Fields)+1, "", "unterminated quotation mark, or text after it")
			}

			t.Fields = append(t.Fields, field)

			if rest == "" {
				return nil
			}

			line = rest[1:]

			continue
		}

		at := strings.IndexByte(line, t.comma)
		if at < 0 {
			t.Fields = append(t.Fields, line)
			return nil
		}

		t.Fields = append(t.Fields, line[:at])
		line = line[at+1:]
	}
}

// quoted reads a field behind its opening quotation mark. The rest is empty or
// begins with the comma.
func quoted(s string, comma byte) (field, rest string, ok bool) {
	var doubled strings.Builder

	for {
		at := strings.IndexByte(s, '"')
		if at < 0 {
			return "", "", false
		}

		if at+1 < len(s) && s[at+1] == '"' {
			doubled.WriteString(s[:at+1])
			s = s[at+2:]
			continue
		}

		rest = s[at+1:]
		if rest != "" && rest[0] != comma {
			return "", "", false
		}
		if doubled.Len() == 0 {
			return s[:at], rest, true
		}

		return doubled.String() + s[:at], rest, true
	}
}

// Columns returns how many columns have names.
func (t *Table) Columns() int { return len(t.columns) }

// Each calls fn for each row that is left. A mistake that it notes is an error.
func (t *Table) Each(fn func()) error {
	for {
		err := t.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}

		fn()

		if t.Err != nil {
			return t.Err
		}
	}
}

// All reads a small file as a whole.
func All[T any](name string, read func(*File) (T, error)) (T, error) {
	f, err := Open(name)
	if err != nil {
		var none T
		return none, err
	}

	v, err := read(f)

	return v, errors.Join(err, f.Close())
}

// Text returns a field of the row. A field that is not there is a mistake.
func (t *Table) Text(column string) string {
	at, ok := t.known[column]
	if !ok || at >= len(t.Fields) {
		t.Fail(column, "field is missing in this row")
		return ""
	}

	return strings.TrimSpace(t.Fields[at])
}

// Fail notes a mistake of the row; the first counts.
func (t *Table) Fail(column, format string, args ...any) {
	if t.Err == nil {
		t.Err = t.Bad(t.known[column]+1, column, format, args...)
	}
}

// Number returns a finite number.
func (t *Table) Number(column string) float64 {
	text := t.Text(column)
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(n) || math.IsInf(n, 0) {
		t.Fail(column, "must be a number, got %q", Short(text))
		return 0
	}

	return n
}

// MaxCount bounds every count of GPUs, CPUs and nodes that comes from a trace.
const MaxCount = 1 << 24

// Count returns a whole number that is not negative. It may be written 8.0.
func (t *Table) Count(column string) int {
	n := t.Number(column)
	if n != math.Trunc(n) || n < 0 || n > MaxCount {
		t.Fail(column, "must be an integer between 0 and %d, got %q", MaxCount, Short(t.Text(column)))
		return 0
	}

	return int(n)
}

// OrZero reads an amount that may be left empty.
func (t *Table) OrZero(column string) float64 {
	if t.Text(column) == "" {
		return 0
	}

	n := t.Number(column)
	if n < 0 || n > 1e9 {
		t.Fail(column, "must be a non-negative number, got %q", Short(t.Text(column)))
		return 0
	}

	return n
}

// MaxSeconds bounds every time that comes from a trace: 250 years.
const MaxSeconds = 250 * 365 * 86400.0

// Seconds returns a length of time that is not negative.
func (t *Table) Seconds(column string) time.Duration { return t.Units(column, time.Second) }

// Units returns a length of time that is written as a number of units.
func (t *Table) Units(column string, unit time.Duration) time.Duration {
	n := t.Number(column)
	if n < 0 || n*unit.Seconds() > MaxSeconds {
		t.Fail(column, "must be a time between 0 and 250 years, got %q", Short(t.Text(column)))
		return 0
	}

	return Scaled(n, unit)
}

// Scaled returns n units. Whole and broken part are taken apart, so that a date
// in seconds stays exact.
func Scaled(n float64, unit time.Duration) time.Duration {
	whole, part := math.Modf(n)
	return time.Duration(whole)*unit + time.Duration(math.Round(part*float64(unit)))
}

// Wall returns a time of the calendar, since 1970.
func (t *Table) Wall(column, layout string) time.Duration {
	text := t.Text(column)
	at, err := time.ParseInLocation(layout, text, time.UTC)
	if err != nil || at.Year() < 1970 || at.Year() >= 2200 {
		t.Fail(column, "invalid time %q: expected the format %s", Short(text), layout)
		return 0
	}

	return at.Sub(time.Unix(0, 0))
}

// Clock returns a time of day.
func (t *Table) Clock(column string) time.Duration {
	text := t.Text(column)
	at, err := time.Parse(time.TimeOnly, text)
	if err != nil {
		t.Fail(column, "must be a time of day such as 13:05:00, got %q", Short(text))
		return 0
	}

	return at.Sub(at.Truncate(24 * time.Hour))
}

// Short cuts what a message quotes.
func Short(text string) string {
	if len(text) > 40 {
		return text[:40] + "…"
	}

	return text
}
