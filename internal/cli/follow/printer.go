package follow

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"

	"trainyard/internal/api"
	"trainyard/internal/cli/table"
	"trainyard/internal/id"
	"trainyard/internal/logs"
)

// Printer writes lines of output. Several jobs may share it. Close writes what is left.
type Printer struct {
	Out    io.Writer
	Stamps bool   // with the time of each line
	JSON   bool   // as objects, one a line
	Label  string // of lines that have none of their own; to be changed only between lines
	Ranks  bool   // some job has several ranks: say whose line it is
	// Terminal makes control characters of the output visible, because a person looks at it.
	Terminal bool
	// Collapse writes only the last state of a line that is rewritten with carriage returns, as progress bars are.
	Collapse bool

	mu   sync.Mutex
	open source // where a line comes from that has not ended yet
	held []heldLine
	text []byte // of the line that is written, to be used again
}

// source is where a line comes from.
type source struct {
	label  string
	run    id.Run
	rank   int
	stream string
}

// heldLine is a line that has not ended yet: it may still be rewritten.
type heldLine struct {
	source
	line api.LogLine
}

// Line writes one line; label says which job it is from where there are several.
func (p *Printer) Line(label string, l api.LogLine) error {
	p.mu.Lock()
	defer p.mu.Unlock()

	if label == "" {
		label = p.Label
	}

	if l.Skipped > 0 { // what comes then does not continue what came before
		if err := p.flush(); err != nil {
			return err
		}
	}

	from := source{label, l.Run, l.Rank, l.Stream}
	if p.Collapse && !p.settle(from, &l) {
		return nil
	}

	return p.write(from, &l)
}

// Close writes the lines that have not ended.
func (p *Printer) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()

	return p.flush()
}

// flush writes the lines that have not ended. It is called with the lock.
func (p *Printer) flush() error {
	var errs []error
	for i := range p.held {
		l := &p.held[i].line
		l.SetBytes(logs.LastState(l.Bytes()))
		errs = append(errs, p.write(p.held[i].source, l))
	}

	p.held = nil

	return errors.Join(errs...)
}

// settle joins the pieces of a line and reports whether it is to be written now. One that has not ended is held back,
// unless it is too long to be a progress bar.
func (p *Printer) settle(from source, l *api.LogLine) bool {
	at := slices.IndexFunc(p.held, func(h heldLine) bool { return h.source == from })
	if at < 0 && !l.Partial && strings.IndexByte(l.Text, '\r') < 0 {
		return true // most lines
	}

	text := l.Bytes()
	if at >= 0 {
		text = slices.Concat(p.held[at].line.Bytes(), text)
		l.At = p.held[at].line.At
		p.held = slices.Delete(p.held, at, at+1)
	}

	l.SetBytes(logs.LastState(text))

	if !l.Partial || len(text) > logs.MaxLine && bytes.IndexByte(text, '\r') < 0 {
		return true
	}

	// A carriage return at the end is kept: what follows overwrites the line.
	if state := l.Bytes(); bytes.HasSuffix(text, []byte("\r")) && !bytes.HasSuffix(state, []byte("\r")) {
		l.SetBytes(append(slices.Clone(state), '\r'))
	}

	p.held = append(p.held, heldLine{from, *l})

	return false
}

// write writes a line.
func (p *Printer) write(from source, l *api.LogLine) error {
	if p.JSON {
		return p.object(l)
	}

	out := p.text[:0]
	if p.open != from {
		if p.open != (source{}) {
			out = append(out, '\n')
		}

		out = p.prefix(out, from.label, l)
	}

	switch {
	case p.Terminal:
		out = append(out, table.Visible(string(l.Bytes()))...)
	case l.Raw != nil:
		out = append(out, l.Raw...)
	default:
		out = append(out, l.Text...)
	}

	p.open = source{}
	if l.Partial {
		p.open = from
	} else {
		out = append(out, '\n')
	}

	p.text = out
	_, err := p.Out.Write(out)

	return err
}

// object writes a line as JSON. That escapes control characters but those of C1, which are escaped here.
func (p *Printer) object(l *api.LogLine) error {
	var text bytes.Buffer

	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(l); err != nil {
		return err
	}

	if !p.Terminal {
		_, err := p.Out.Write(text.Bytes())
		return err
	}

	var escaped strings.Builder

	for _, c := range text.String() {
		if c >= 0x7f && c < 0xa0 {
			_, _ = fmt.Fprintf(&escaped, `\u%04x`, c)
		} else {
			escaped.WriteRune(c)
		}
	}

	_, err := io.WriteString(p.Out, escaped.String())

	return err
}

// prefix adds what stands before a line.
func (p *Printer) prefix(out []byte, label string, l *api.LogLine) []byte {
	if p.Stamps {
		out = l.At.UTC().AppendFormat(out, "2006-01-02T15:04:05.000Z ")
	}

	if label != "" {
		out = append(out, "["+label+"] "...)
	}

	p.Ranks = p.Ranks || l.Rank > 0
	if p.Ranks {
		out = append(out, "[rank "...)
		out = strconv.AppendInt(out, int64(l.Rank), 10)
		out = append(out, "] "...)
	}

	if l.Stream == "yard" {
		out = append(out, "[yard] "...)
	}

	return out
}
