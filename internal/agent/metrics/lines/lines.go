// Package lines parses metrics from the text output of a program: JSON lines, the
// dictionaries of Hugging Face's Trainer, tqdm and Keras progress bars, and lines such as
// "step 10/100 loss=0.5". It detects the format itself; rules of the user take precedence.
// Package metrics feeds it the output of a run and its text files.
//
// A program may restart its step count in every epoch. The parser makes one count of it, so
// that the steps of its readings are those of the whole run.
package lines

import (
	"bytes"
	"math"
	"strings"

	"trainyard/internal/agent/metrics/reading"
)

// Kind says in which format a line was recognised.
type Kind string

// The kinds of lines.
const (
	Rule Kind = "rule" // the user's own
	JSON Kind = "json" // a line that is a JSON object
	Dict Kind = "dict" // a Python dictionary
	// Logged is a dictionary without a step, as Hugging Face's Trainer prints it, with the step of its
	// progress bar.
	Logged Kind = "logged"
	Bar    Kind = "tqdm"  // a progress bar
	Keras  Kind = "keras" // Keras's bar
	Pairs  Kind = "lines" // names and numbers
)

// maxSegment is the length in bytes up to which lines are parsed. Longer ones hold data, not text.
const maxSegment = 4 << 10

// maxCounters bounds how many kinds of lines are counted separately.
const maxCounters = 128

// Emit receives the reading of a line.
type Emit func(kind Kind, r reading.Reading)

// Parser parses the lines of one program. It remembers the progress of the program, because a line
// may state the step for those that follow.
type Parser struct {
	At float64 // when the next line was printed, in seconds of Unix time; 0 if unknown
	// Budget is how many steps may still be spent on the user's rules; lines for which it does not suffice are
	// skipped. A new parser has no bound.
	Budget int64

	rules  []*rule
	bars   bars
	counts map[string]*counter // of lines and Keras bars, by the first metric on them
	newest *counter            // the one that was used last
	epochs epochs
	tokens []token // of the last line; kept to reuse the memory
	// A dictionary without a step waits for the bar that is drawn after it.
	waiting  *reading.Reading
	byEpochs bool // dictionaries came before any bar, so their epochs serve as steps
}

// New returns a parser with the user's rules.
func New(rules []string) (*Parser, error) {
	p := &Parser{Budget: math.MaxInt64}
	for _, text := range rules {
		r, err := compile(text)
		if err != nil {
			return nil, err
		}

		p.rules = append(p.rules, r)
	}

	return p, nil
}

// Line parses one line, without its line end. It does not keep text.
func (p *Parser) Line(text []byte, emit Emit) {
	if len(text) > maxSegment ||
		!bytes.ContainsAny(text, "0123456789") && !bytes.Contains(bytes.ToLower(text), []byte("nan")) {
		return
	}

	line := clean(text)
	if line == "" {
		return
	}

	if len(p.rules) > 0 {
		if !p.affords(line) {
			return
		}

		if r, ok := p.byRule(line); ok {
			emit(Rule, r)
			return
		}
	}

	switch {
	case line[0] == '{':
		if r, ok := FromJSON([]byte(line)); ok {
			emit(JSON, p.unroll(r))
		} else if r, ok := fromDict(line); ok {
			p.dict(r, emit)
		}
	case strings.Contains(line, "%|") || strings.Contains(line, "it ["):
		if b, ok := parseBar(line); ok {
			p.bar(b, emit)
		}
	default:
		if r, ok := logged(line); ok {
			emit(JSON, p.unroll(r))
		} else if r, ok := p.keras(line); ok {
			emit(Keras, r)
		} else if r, ok := p.row(line); ok {
			emit(Pairs, r)
		} else if r, ok := p.pairs(line); ok {
			emit(Pairs, r)
		}
	}
}

// logged parses a JSON object at the end of a line, after the prefix of a logger.
func logged(line string) (Object, bool) {
	if line[len(line)-1] != '}' {
		return Object{}, false
	}

	at := strings.Index(line, `{"`)
	if at < 0 {
		return Object{}, false
	}

	return FromJSON([]byte(line[at:]))
}

// Flush emits a reading that waits for a line that may never come. Call it when the output has been
// silent for a while or has ended.
func (p *Parser) Flush(emit Emit) {
	if p.waiting != nil {
		r := *p.waiting
		p.waiting = nil
		if b := p.bars.finest(); b != nil {
			r.Step = reading.Known(b.step())
		}

		emit(Logged, r)
	}
}

// dict processes a dictionary. Hugging Face prints the epoch in it, not the step, and draws its bar
// right after it.
func (p *Parser) dict(r Object, emit Emit) {
	if r.Step.Known {
		emit(Dict, p.unroll(r))
		return
	}

	p.Flush(emit)

	if p.bars.main() == nil || p.byEpochs {
		p.byEpochs = true
		r.Step = r.Epoch
		emit(Dict, r.Reading)

		return
	}

	r.At = p.At
	p.waiting = &r.Reading
}

// bar processes a drawing of a progress bar.
func (p *Parser) bar(b drawn, emit Emit) {
	r, counts := p.bars.draw(b)
	if counts && p.waiting != nil {
		w := *p.waiting
		p.waiting = nil
		w.Step = r.Step
		emit(Logged, w)
	}

	if !r.Empty() {
		emit(Bar, r)
	}
}

// unroll converts the step of an object to one of the whole run.
func (p *Parser) unroll(o Object) reading.Reading {
	r := o.Reading
	switch {
	case r.Step.Known:
		count := p.counter(&r)
		if o.Epoch.Known {
			count.epoch(o.Epoch.Value)
		}

		r.Step.Value = count.total(r.Step.Value, 0)
		if r.Total.Known && !r.Done.Known {
			r.Done = r.Step
		}
	case o.Epoch.Known:
		r.Step = o.Epoch
	}

	return r
}

// counter returns the counter for lines of the same kind. Different kinds of lines may count different things,
// so a smaller count on one than on another does not mean a restart.
func (p *Parser) counter(r *reading.Reading) *counter {
	name := ""
	if len(r.Values) > 0 {
		name = r.Values[0].Name
	}

	if p.counts == nil {
		p.counts = map[string]*counter{}
	}

	c := p.counts[name]
	if c == nil {
		c = new(counter)
		if len(p.counts) < maxCounters {
			p.counts[name] = c
		}
	}

	p.newest = c

	return c
}

// clean removes colours, backspaces and surrounding white space from a line.
func clean(text []byte) string {
	if bytes.IndexByte(text, '\x1b') < 0 && bytes.IndexByte(text, '\b') < 0 {
		return strings.TrimSpace(strings.ToValidUTF8(string(text), ""))
	}

	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\b':
		case c == '\x1b' && i+1 < len(text) && text[i+1] == '[':
			for i += 2; i < len(text) && (text[i] < '@' || text[i] > '~'); i++ {
			}
		case c == '\x1b':
		default:
			out = append(out, c)
		}
	}

	return strings.TrimSpace(strings.ToValidUTF8(string(out), ""))
}
