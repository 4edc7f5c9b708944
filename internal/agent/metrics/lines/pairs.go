package lines

import (
	"slices"
	"strings"

	"trainyard/internal/agent/metrics/reading"
)

// tokenKind tells the parts of a line apart.
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
	unit  bool // a number with letters right behind it: "20ms"
}

// maxTokens bounds the work on a line.
const maxTokens = 200

// scan cuts a line into words, numbers and marks, and puts them into out. White space only separates.
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

// wordEnd returns where a word ends: names such as train/loss, acc@1 and val-loss are one word.
func wordEnd(line string, i int) int {
	for ; i < len(line); i++ {
		c := line[i]
		joins := (c == '/' || c == '@' || c == '-' || c == '.') && i+1 < len(line) && (isLetter(line[i+1]) || isDigit(line[i+1]) && c != '-' && c != '.')
		if !isLetter(c) && !isDigit(c) && !joins {
			break
		}
	}
	return i
}

// scanNumber reads the number that begins at i.
func scanNumber(line string, i int) (token, int) {
	end := i + 1
	for end < len(line) {
		c := line[end]
		exponent := (c == 'e' || c == 'E') && end+1 < len(line) && (isDigit(line[end+1]) ||
			(line[end+1] == '-' || line[end+1] == '+') && end+2 < len(line) && isDigit(line[end+2]))
		if !isDigit(c) && c != '.' && !exponent {
			break
		}
		if end++; exponent {
			end++
		}
	}
	text := strings.TrimRight(line[i:end], ".")
	t := token{kind: number, text: text}
	v, ok := reading.Parse(text)
	t.value, t.unit = v, !ok
	if end < len(line) && line[end] == '%' {
		return t, end + 1
	}
	if end < len(line) && isLetter(line[end]) {
		t.unit = true
		end = wordEnd(line, end)
	}
	return t, end
}

// pairs reads a line of names and numbers.
func (p *Parser) pairs(line string) (reading.Reading, bool) {
	if !strings.ContainsAny(line, "=:/ ") {
		return reading.Reading{}, false
	}
	p.tokens = scan(p.tokens[:0], line)
	found := collect(p.tokens)
	var r reading.Reading
	counted := found.step.Known || found.epoch.Known
	for _, v := range found.values {
		if counted || surelyMetric(v.Name) {
			r.Add(v.Name, v.Value)
		}
	}
	if found.epoch.Known {
		p.epochs.tell(found.epoch.Value, found.epochs.Value)
	}
	progress := found.named && found.step.Known && found.total.Known
	if len(r.Values) == 0 && !progress {
		return r, false
	}
	switch {
	case found.step.Known:
		p.within(&r, found.step.Value, found.total.Value)
	case p.newest != nil: // the end of an epoch, of which the steps were told
		r.Step = reading.Told(p.newest.last())
	case found.epoch.Known:
		r.Step, r.Done, r.Total = found.epoch, found.epoch, reading.Told(p.epochs.total)
	default:
		if b := p.bars.finest(); b != nil {
			r.Step = reading.Told(b.step())
		} else if p.epochs.known { // a line before said which
			r.Step, r.Done, r.Total = reading.Told(p.epochs.current), reading.Told(p.epochs.current), reading.Told(p.epochs.total)
		}
	}
	return r, true
}

// collected is what the tokens of a line say.
type collected struct {
	step, total, epoch, epochs reading.Number
	named                      bool // the step had a name
	values                     []reading.Value
}

// collect finds counts and metrics among the tokens of a line.
func collect(tokens []token) collected {
	var c collected
	for i := 0; i < len(tokens); i++ {
		t := tokens[i]
		switch {
		case t.kind == word && slices.Contains(epochWords, strings.ToLower(t.text)) && !c.epoch.Known:
			if n, total, after := countAfter(tokens, i+1); n.Known {
				c.epoch, c.epochs, i = n, total, after-1
			}
		case t.kind == word && slices.Contains(stepWords, strings.ToLower(t.text)) && !c.named:
			if n, total, after := countAfter(tokens, i+1); n.Known {
				c.step, c.total, c.named, i = n, total, true, after-1
			}
		case t.kind == word:
			if v, after, ok := valueAfter(tokens, i+1); ok {
				if name := metricName(tokens, i); name != "" && len(c.values) < 64 {
					c.values = append(c.values, reading.Value{Name: name, Value: v})
				}
				i = after - 1
			}
		case t.kind == number && !c.step.Known: // alone: [ 10/100 ]
			if n, total, after := countAfter(tokens, i); n.Known && total.Known {
				c.step, c.total, i = n, total, after-1
			}
		}
	}
	return c
}

// countAfter reads "10", ": 10", "[10/100]", "= 10/100" or "10 of 100" at a place among the tokens.
func countAfter(tokens []token, i int) (n, total reading.Number, after int) {
	for i < len(tokens) && tokens[i].kind == mark && strings.Contains("[(:=#", tokens[i].text) {
		i++
	}
	if i >= len(tokens) || tokens[i].kind != number || tokens[i].unit || tokens[i].value < 0 || tokens[i].value != tokens[i].value || tokens[i].value > 1e15 {
		return n, total, i
	}
	n = reading.Told(tokens[i].value)
	i++
	if i+1 < len(tokens) && (tokens[i].text == "/" || strings.EqualFold(tokens[i].text, "of")) {
		if t := tokens[i+1]; t.kind == number && !t.unit && t.value > 0 && t.value < 1e15 && t.value >= n.Value {
			return n, reading.Told(t.value), i + 2
		}
	}
	return n, total, i
}

// valueAfter reads the number that a name stands before.
func valueAfter(tokens []token, i int) (v float64, after int, ok bool) {
	if i < len(tokens) && tokens[i].kind == mark && (tokens[i].text == ":" || tokens[i].text == "=") {
		i++
	}
	if i >= len(tokens) || tokens[i].kind != number || tokens[i].unit {
		return 0, i, false
	}
	if i+1 < len(tokens) && tokens[i+1].text == "/" { // a share of something, not a value
		return 0, i + 1, false
	}
	return tokens[i].value, i + 1, true
}

// metricName returns the name of the metric whose last word is at i, with what it is of before it.
func metricName(tokens []token, i int) string {
	name := strings.ToLower(tokens[i].text)
	if !looksLikeMetric(name) {
		return ""
	}
	for j := i - 1; j >= 0 && i-j <= 2 && tokens[j].kind == word && slices.Contains(qualifiers, strings.ToLower(tokens[j].text)); j-- {
		name = strings.ToLower(tokens[j].text) + "_" + name
	}
	return name
}
