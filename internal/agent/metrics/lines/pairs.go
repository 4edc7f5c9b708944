package lines

import (
	"strings"

	"trainyard/internal/agent/metrics/reading"
)

// tokenKind is the kind of a token.
type tokenKind int

const (
	word tokenKind = iota
	number
	mark
)

// token is a part of a line.
type token struct {
	kind  tokenKind
	text  string
	value float64
	unit  bool // a number directly followed by letters, or one of a list: "20ms", "1,2,3"
}

// maxTokens bounds the work per line.
const maxTokens = 200

// scan splits a line into words, numbers and marks, and appends them to out. White space only
// separates.
func scan(out []token, line string) []token {
	for i := 0; i < len(line) && len(out) < maxTokens; {
		c := line[i]
		switch {
		case c == ' ' || c == '\t':
			i++
		case isLetter(c):
			end := wordEnd(line, i)
			t := token{kind: word, text: line[i:end]}
			if v, ok := reading.Parse(t.text); ok { // nan, inf
				t.kind, t.value = number, v
			}

			out = append(out, t)
			i = end
		case isDigit(c) || (c == '-' || c == '+' || c == '.') && i+1 < len(line) && (isDigit(line[i+1]) || line[i+1] == '.'):
			t, end := scanNumber(line, i)
			out = append(out, t)
			i = end
		case (c == '-' || c == '+') && strings.EqualFold(line[i+1:min(i+4, len(line))], "inf"):
			end := wordEnd(line, i+1)
			v, ok := reading.Parse(line[i:end])
			out = append(out, token{kind: number, text: line[i:end], value: v, unit: !ok})
			i = end
		default:
			out = append(out, token{kind: mark, text: line[i : i+1]})
			i++
		}
	}

	return out
}

func isLetter(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c >= 0x80
}
func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// wordEnd returns the end of a word. Names such as train/loss, acc@1 and val-loss are one word.
func wordEnd(line string, i int) int {
	for ; i < len(line); i++ {
		c := line[i]
		joins := (c == '/' || c == '@' || c == '-' || c == '.') && i+1 < len(line) &&
			(isLetter(line[i+1]) || isDigit(line[i+1]) && c != '-' && c != '.')
		if !isLetter(c) && !isDigit(c) && !joins {
			break
		}
	}

	return i
}

// scanNumber parses the number that begins at i.
func scanNumber(line string, i int) (token, int) {
	if t, end, ok := grouped(line, i); ok {
		return t, end
	}

	end := i + 1
	for end < len(line) {
		c := line[end]
		exponent := (c == 'e' || c == 'E') && end+1 < len(line) && (isDigit(line[end+1]) ||
			(line[end+1] == '-' || line[end+1] == '+') && end+2 < len(line) && isDigit(line[end+2]))
		if !isDigit(c) && c != '.' && !exponent {
			break
		}

		end++
		if exponent {
			end++
		}
	}

	text := strings.TrimRight(line[i:end], ".")
	t := token{kind: number, text: text}
	v, ok := reading.Parse(text)
	list := end+1 < len(line) && line[end] == ',' && isDigit(line[end+1])
	t.value, t.unit = v, !ok || list

	return afterNumber(t, line, end)
}

// afterNumber skips what belongs to a number that ends at end: a percent sign or a unit.
func afterNumber(t token, line string, end int) (token, int) {
	switch {
	case end < len(line) && line[end] == '%':
		return t, end + 1
	case end < len(line) && isLetter(line[end]) && !strings.HasPrefix(line[end:], "±"):
		t.unit = true
		end = wordEnd(line, end)
	}

	return t, end
}

// pairs parses a line of names and numbers.
func (p *Parser) pairs(line string) (reading.Reading, bool) {
	if !strings.ContainsAny(line, "=:/ ") {
		return reading.Reading{}, false
	}

	p.tokens = scan(p.tokens[:0], line)
	found := collect(p.tokens)
	r := found.metrics()

	if found.epoch.Known {
		p.epochs.update(found.epoch.Value, found.epochs.Value)
	}

	progress := found.named && found.step.Known && found.total.Known
	if len(r.Values) == 0 && !progress {
		return r, false
	}

	switch {
	case found.step.Known:
		p.within(&r, found.step.Value, found.total.Value)
	case p.newest != nil: // the end of an epoch whose steps were reported
		r.Step = reading.Known(p.newest.newest())
	case found.epoch.Known:
		r.Step, r.Done, r.Total = found.epoch, found.epoch, reading.Known(p.epochs.total)
	default:
		if b := p.bars.finest(); b != nil {
			r.Step = reading.Known(b.step())
		} else if p.epochs.known { // an earlier line stated the epoch
			r.Step = reading.Known(p.epochs.current)
			r.Done = reading.Known(p.epochs.current)
			r.Total = reading.Known(p.epochs.total)
		}
	}

	return r, true
}
