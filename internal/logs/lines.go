package logs

import (
	"bytes"
	"time"
)

// MaxLine is the greatest length of a line that is passed on in one piece.
const MaxLine = 64 << 10

// Line is one line of one stream, without its line end.
type Line struct {
	At     time.Time // when its first byte was written
	Stream Stream
	Text   []byte
	// Partial says that no line end followed Text: the line goes on in the next
	// Line of the same stream, or the output ends here.
	Partial bool
}

// Assembler makes lines out of frames that are pushed into it. Its zero value is ready.
type Assembler struct {
	// Collapse keeps the last state alone of a line that is rewritten with carriage returns, as progress bars are. Its
	// text then begins with a carriage return: whatever pieces of the line came before count no more.
	Collapse bool

	open [3]openLine
}

// LastState returns what a line shows in the end that is rewritten with carriage returns, as progress bars are. A line
// that only ends with one is not rewritten.
func LastState(text []byte) []byte {
	rest := bytes.TrimRight(text, "\r")
	if i := bytes.LastIndexByte(rest, '\r'); i >= 0 {
		return rest[i+1:]
	}

	return text
}

// openLine is the begun line of one stream.
type openLine struct {
	at   time.Time
	text []byte
}

// slot is the place of a stream in Assembler.open.
func slot(s Stream) int {
	switch s {
	case Stdout:
		return 0
	case Stderr:
		return 1
	case Yard:
	}

	return 2
}

// Add returns the lines that end with this frame, and pieces of a line that is
// longer than MaxLine. A remark of the yard is a line whether it has a line end or not.
func (a *Assembler) Add(f Frame) []Line {
	open := &a.open[slot(f.Stream)]
	data := f.Data
	var out []Line

	for len(data) > 0 {
		if len(open.text) == 0 {
			open.at = f.At
		}

		n := bytes.IndexByte(data, '\n')
		ended := n >= 0
		if !ended {
			n = len(data)
		}

		if room := MaxLine - len(open.text); n > room {
			n, ended = room, false
		}

		open.text = append(open.text, data[:n]...)
		if a.Collapse {
			open.collapse(n)
		}

		data = data[n:]
		switch {
		case ended:
			data = data[1:]
			out = append(out, open.take(f.Stream, false))
		case len(open.text) == MaxLine && (len(data) == 0 || data[0] != '\n'):
			out = append(out, open.take(f.Stream, true))
		}
	}

	if f.Stream == Yard && len(open.text) > 0 {
		out = append(out, open.take(f.Stream, false))
	}

	return out
}

// Flush returns the begun lines, marked Partial, at the end of the output.
func (a *Assembler) Flush() []Line {
	var out []Line
	for _, s := range []Stream{Stdout, Stderr} {
		if open := &a.open[slot(s)]; len(open.text) > 0 {
			out = append(out, open.take(s, true))
		}
	}

	return out
}

// collapse drops what the last n bytes of the begun line have overwritten, and keeps the carriage return before
// the rest.
func (o *openLine) collapse(n int) {
	// What was there before has been collapsed, so only a carriage return at its end matters of it.
	if bytes.IndexByte(o.text[max(0, len(o.text)-n-1):], '\r') < 0 {
		return
	}

	rest := bytes.TrimRight(o.text, "\r")
	if i := bytes.LastIndexByte(rest, '\r'); i > 0 {
		o.text = append(o.text[:0], o.text[i:]...)
	}
}

// take ends the begun line.
func (o *openLine) take(s Stream, partial bool) Line {
	l := Line{At: o.at, Stream: s, Text: o.text, Partial: partial}
	*o = openLine{}
	return l
}

// Lines reads a log line by line. Lines of different streams come in the order
// in which they ended.
type Lines struct {
	d     *Decoder
	a     Assembler
	ready []Line
	err   error
}

// NewLines returns the lines of the log that d reads.
func NewLines(d *Decoder) *Lines { return &Lines{d: d} }

// Next returns the next line. At the end of the log it returns the begun lines
// and then the Decoder's error: io.EOF, or io.ErrUnexpectedEOF or a *DamageError.
func (l *Lines) Next() (Line, error) {
	for len(l.ready) == 0 {
		if l.err != nil {
			return Line{}, l.err
		}

		f, err := l.d.Next()
		if err != nil {
			l.err, l.ready = err, l.a.Flush()
			continue
		}

		l.ready = l.a.Add(f)
	}

	line := l.ready[0]
	l.ready = l.ready[1:]

	return line, nil
}

// Empty reports whether no line has begun.
func (a *Assembler) Empty() bool {
	for i := range a.open {
		if len(a.open[i].text) > 0 {
			return false
		}
	}

	return true
}

// Open reports whether a line of a stream has begun.
func (a *Assembler) Open(s Stream) bool { return len(a.open[slot(s)].text) > 0 }
