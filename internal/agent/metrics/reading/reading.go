// Package reading holds the values that one line, record or message of a program reports:
// metrics with their step and time, progress and notes. The parsers of lines, files and
// requests produce readings; package metrics chooses among them.
package reading

import (
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"trainyard/internal/metric"
)

// Number is a number that may be absent.
type Number struct {
	Value float64
	Known bool
}

// Known is a number that was reported.
func Known(v float64) Number { return Number{Value: v, Known: true} }

// Value is one metric and what it was.
type Value struct {
	Name  string
	Value float64 // may be NaN or infinite: that is news too
}

// Reading is what was said at one time. All of it may be missing.
type Reading struct {
	At     float64 // seconds of Unix time as the program says; 0 if it does not
	Step   Number  // of the values
	Values []Value
	Done   Number // how far the whole run is, in steps
	Total  Number // how far it will go; 0 if what was said before does not hold any more
	// Remaining is how many seconds the program itself estimates the rest of the run to take.
	Remaining Number
	Note      Note
}

// Note is something that happened in the program.
type Note struct {
	Kind string // "" for none
	Text string
}

// Empty reports whether nothing was said.
func (r *Reading) Empty() bool {
	return len(r.Values) == 0 && !r.Done.Known && !r.Total.Known && !r.Remaining.Known && r.Note.Kind == ""
}

// Add puts a metric into the reading, unless its name cannot be one.
func (r *Reading) Add(name string, value float64) {
	name = Name(name)
	if name != "" {
		r.Values = append(r.Values, Value{name, value})
	}
}

// Name returns a metric's name as it is kept: without what does not print, and not longer
// than names may be. It returns "" for what cannot be a name.
func Name(name string) string {
	name = strings.TrimSpace(name)
	if len(name) > metric.MaxName || !utf8.ValidString(name) ||
		strings.ContainsFunc(name, func(c rune) bool { return !unicode.IsPrint(c) }) {
		return ""
	}

	return name
}

// Parse reads a number as programs print them: also nan, inf and Infinity, whatever the
// case, and with a sign of percent behind it.
func Parse(text string) (float64, bool) {
	if text == "" || len(text) > 40 {
		return 0, false
	}

	switch c := text[0]; {
	case c >= '0' && c <= '9', c == '.', c == '-', c == '+':
	default:
		return special(text)
	}

	v, err := strconv.ParseFloat(text, 64)
	if err == nil {
		return v, !strings.ContainsAny(text, "xX_pP")
	}

	if c := text[len(text)-1]; c == '%' {
		v, err = strconv.ParseFloat(text[:len(text)-1], 64)
		return v, err == nil
	}

	return special(text)
}

// special reads what is no number but stands for one.
func special(text string) (float64, bool) {
	switch strings.ToLower(strings.TrimLeft(text, "+-")) {
	case "nan":
		return math.NaN(), true
	case "inf", "infinity":
		if text[0] == '-' {
			return math.Inf(-1), true
		}

		return math.Inf(1), true
	}

	return 0, false
}
