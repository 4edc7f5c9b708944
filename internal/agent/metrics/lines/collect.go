package lines

import (
	"slices"
	"strings"

	"trainyard/internal/agent/metrics/reading"
)

// collected is what the tokens of a line contain.
type collected struct {
	step, total, epoch, epochs reading.Number
	named                      bool // the step had a name
	loose                      bool // named by a word that settings use too: "steps: 1000"
	check                      string
	values                     []reading.Value
}

// metrics returns the metrics of the line: all named numbers if the line has a count, otherwise only those
// that surely are metrics.
func (c *collected) metrics() reading.Reading {
	var r reading.Reading
	sure := slices.ContainsFunc(c.values, func(v reading.Value) bool { return surelyMetric(v.Name) })
	counted := c.step.Known && (!c.loose || sure) || c.epoch.Known || c.check != "" && sure
	for _, v := range c.values {
		if !counted && !surelyMetric(v.Name) {
			continue
		}

		if c.check != "" && !holds(v.Name, checks) {
			v.Name = c.check + "_" + v.Name
		}

		r.Add(v.Name, v.Value)
	}

	return r
}

// collect finds counts and metrics among the tokens of a line.
func collect(tokens []token) collected {
	c := collected{check: checkOf(tokens)}
	for i := 0; i < len(tokens); i++ {
		t := tokens[i]
		lower := ""
		if t.kind == word {
			lower = strings.ToLower(t.text)
		}

		switch {
		case t.kind == word && slices.Contains(epochWords, lower) && !c.epoch.Known:
			if n, total, after := countAfter(tokens, part(tokens, i+1)); n.Known && (total.Known || lower != "epochs") {
				c.epoch, c.epochs, i = n, total, after-1
			}
		case t.kind == word && slices.Contains(stepWords, lower) && !c.named:
			if n, total, after := countAfter(tokens, part(tokens, i+1)); n.Known {
				c.step = n
				c.total = total
				c.named = true
				i = after - 1
				c.loose = strings.HasSuffix(lower, "s") && !total.Known
			}
		case (lower == "train" || lower == "training") && !c.epoch.Known && insideEpoch(tokens, i):
			c.epoch, _, i = countAfter(tokens, i+1)
			i--
		case t.kind == word:
			if v, after, ok := valueAfter(tokens, i+1); ok {
				if name := metricName(tokens, i); name != "" && len(c.values) < 64 {
					c.values = append(c.values, reading.Value{Name: name, Value: v})
				}

				i = after - 1
			}
		case t.kind == number && !c.step.Known && c.check == "" && alone(tokens, i): // [ 10/100 ]
			if n, total, after := countAfter(tokens, i); n.Known && total.Known && !dated(tokens, after) {
				c.step, c.total, i = n, total, after-1
			}
		}
	}

	return c
}

// is reports whether the token at i is one of the marks.
func is(tokens []token, i int, marks string) bool {
	return i >= 0 && i < len(tokens) && tokens[i].kind == mark && strings.Contains(marks, tokens[i].text)
}

// part skips a word in parentheses: "Epoch(train) [1]".
func part(tokens []token, i int) int {
	if is(tokens, i, "(") && i+1 < len(tokens) && tokens[i+1].kind == word && is(tokens, i+2, ")") {
		return i + 3
	}

	return i
}

// insideEpoch reports whether "Train" at i is followed by an epoch and a count within it: "Train: 3 [
// 100/1251".
func insideEpoch(tokens []token, i int) bool {
	n, total, after := countAfter(tokens, i+1)
	return n.Known && !total.Known && is(tokens, after, "[") && is(tokens, after+2, "/")
}

// checkOf returns the word by which a line shows that it is about a validation or test, "" if it is not. The line
// begins with that word, or has it before a mark, as in "Test: [48/48]" and "Epoch(val) [2]".
func checkOf(tokens []token) string {
	for i, t := range tokens {
		if t.kind != word {
			continue
		}

		lower := strings.ToLower(t.text)
		if looksLikeMetric(lower) {
			return ""
		}

		first := i == 0 || tokens[i-1].kind == mark && tokens[i-1].text == "|"
		if slices.Contains(checkWords, lower) && (first || is(tokens, i+1, ":[)")) {
			return lower
		}
	}

	return ""
}

// alone reports whether a count at i stands by itself: it is neither the value of a name before it nor part of
// a date.
func alone(tokens []token, i int) bool {
	switch {
	case i == 0 || tokens[i-1].kind == number:
		return true
	case tokens[i-1].kind == word:
		return false
	case is(tokens, i-1, ":="):
		return i < 2 || tokens[i-2].kind != word || slices.Contains(progressWords, strings.ToLower(tokens[i-2].text))
	}

	return is(tokens, i-1, "[(|]),-")
}

// dated reports whether the text before i was a date: a time or a year follows it.
func dated(tokens []token, i int) bool {
	return is(tokens, i, "/") || i < len(tokens) && tokens[i].kind == number && is(tokens, i+1, ":")
}

// countAfter parses "10", ": 10", "[10/100]", "= 10/100" or "10 of 100" at i.
func countAfter(tokens []token, i int) (n, total reading.Number, after int) {
	for is(tokens, i, "[(:=#") {
		i++
	}

	if i >= len(tokens) || !isCount(tokens[i]) {
		return n, total, i
	}

	n = reading.Known(tokens[i].value)

	i++
	if i+1 < len(tokens) && (tokens[i].text == "/" || strings.EqualFold(tokens[i].text, "of")) {
		if t := tokens[i+1]; isCount(t) && t.value > 0 && t.value >= n.Value {
			return n, reading.Known(t.value), i + 2
		}
	}

	return n, total, i
}

// isCount reports whether a token is a number that can be a count.
func isCount(t token) bool {
	return t.kind == number && !t.unit && t.value >= 0 && t.value < 1e15
}

// valueAfter parses the number after a name, also in the forms in which Python shows a single number: tensor(0.5,
// …) and [0.5].
func valueAfter(tokens []token, i int) (v float64, after int, ok bool) {
	sign := is(tokens, i, ":=")
	if sign {
		i++
	}

	wrapped := ""
	if sign && i < len(tokens) && tokens[i].kind == word && is(tokens, i+1, "(") && isWrapping(tokens[i].text) {
		i, wrapped = i+2, ",)"
	} else if sign && is(tokens, i, "[") {
		i, wrapped = i+1, "]"
	}

	if i >= len(tokens) || tokens[i].kind != number || tokens[i].unit {
		return 0, i, false
	}
	if is(tokens, i+1, "/") || wrapped != "" && !is(tokens, i+1, wrapped) { // a fraction, or a list
		return 0, i + 1, false
	}

	return tokens[i].value, i + 1, true
}

// isWrapping reports whether a word is one that Python writes around a number.
func isWrapping(text string) bool {
	text = strings.ToLower(text)
	return text == "tensor" || text == "array" || strings.Contains(text, "float")
}

// metricName returns the name of the metric whose last word is at i, with its qualifiers. It returns ""
// for goals and settings, which are not metrics.
func metricName(tokens []token, i int) string {
	name := strings.ToLower(tokens[i].text)
	if !looksLikeMetric(name) || isSetting(name) || is(tokens, i-1, "/") {
		return ""
	}

	for j := i - 1; j >= 0 && i-j <= 2 && tokens[j].kind == word; j-- {
		before := strings.ToLower(tokens[j].text)
		if slices.Contains(wantedWords, before) {
			return ""
		}
		if !slices.Contains(qualifiers, before) {
			break
		}

		name = before + "_" + name
	}

	return name
}
