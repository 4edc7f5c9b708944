package scenario

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"trainyard/internal/fault"
	"trainyard/internal/suggest"
)

// word is a word of a line, with its place.
type word struct {
	text         string
	line, column int
}

// args are the words of one line that have not been read yet. A line that begins
// with a blank goes on with the one above, so the words know their own lines.
type args struct {
	file  string
	words []word
	last  word // read last, for a complaint that something is missing behind it
}

// split splits a text into lines of words.
func split(file, text string) ([]*args, fault.List) {
	var all []*args
	var wrong fault.List

	number := 0
	for line := range strings.Lines(text) {
		number++
		words, err := cut(file, line, number)
		if err != nil {
			wrong = append(wrong, err)
			continue
		}

		if len(words) == 0 {
			continue
		}

		if (line[0] == ' ' || line[0] == '\t') && len(all) > 0 {
			last := all[len(all)-1]
			last.words = append(last.words, words...)
			continue
		}

		all = append(all, &args{file: file, words: words})
	}

	return all, wrong
}

// cut splits one line at blanks. A word in double quotes may hold blanks, and
// what follows a # is a comment.
func cut(file, line string, number int) ([]word, *fault.Error) {
	var words []word
	column, counted := 1, 0

	for at := 0; at < len(line); {
		column += utf8.RuneCountInString(line[counted:at])
		counted = at
		w := word{line: number, column: column}

		switch line[at] {
		case ' ', '\t', '\n':
			at++
			continue
		case '#':
			return words, nil
		case '"':
			end := strings.IndexByte(line[at+1:], '"')
			if end < 0 {
				return nil, (&args{file: file}).bad(w, "unterminated quotation mark")
			}

			w.text = line[at+1 : at+1+end]
			at += end + 2
		default:
			end := wordEnd(line[at:])
			w.text = line[at : at+end]
			at += end
		}

		words = append(words, w)
	}

	return words, nil
}

// wordEnd returns where the word ends with which a text begins: at a blank that is
// not within quotation marks, as in objective="speedup > 2".
func wordEnd(text string) int {
	quoted := false
	for i := range len(text) {
		switch c := text[i]; {
		case c == '"':
			quoted = !quoted
		case c == '\n', !quoted && (c == ' ' || c == '\t'):
			return i
		}
	}

	return len(text)
}

func (a *args) hasNext() bool { return len(a.words) > 0 }

// next takes the next word; there must be one.
func (a *args) next() word {
	a.last = a.words[0]
	a.words = a.words[1:]
	return a.last
}

// must takes the next word, or says what is missing.
func (a *args) must(what, example string) (word, *fault.Error) {
	if !a.hasNext() {
		return word{}, a.bad(a.last, "%s is missing after %q", what, a.last.text).WithRemedy("for example: %s", example)
	}

	return a.next(), nil
}

// bad is a mistake at a word.
func (a *args) bad(w word, format string, args ...any) *fault.Error {
	e := fault.New(fault.Invalid, "bad_scenario", "%s, in %s", fmt.Sprintf(format, args...), a.file)
	e.Line, e.Column = w.line, w.column
	return e
}

// unknown is a word that means nothing where it stands.
func (a *args) unknown(w word, what string, known []string) *fault.Error {
	e := a.bad(w, "unknown %[2]s %[1]q", w.text, what)
	if closest := suggest.Closest(w.text, known); closest != "" {
		return e.WithRemedy("did you mean %s?", closest)
	}

	return e.WithRemedy("use one of %s", strings.Join(known, ", "))
}

// reader reads what belongs to a key that has just been read.
type reader func(a *args, key word) *fault.Error

// keys reads pairs of a key and what belongs to it until the line ends. No key
// may come twice, unless its name ends in "*" in the table.
func (a *args) keys(table map[string]reader) *fault.Error {
	seen := map[string]bool{}

	for a.hasNext() {
		key := a.next()
		read, ok := table[key.text]
		if !ok {
			read, ok = table[key.text+"*"]
			if !ok {
				names := keysOf(table)
				for i := range names {
					names[i] = strings.TrimSuffix(names[i], "*")
				}

				return a.unknown(key, "key", names)
			}
		} else if seen[key.text] {
			return a.bad(key, "%q is given twice", key.text)
		}

		seen[key.text] = true

		if err := read(a, key); err != nil {
			return err
		}
	}

	return nil
}

// only reads the one value of a line.
func (a *args) only(read func(*args, word) *fault.Error) *fault.Error {
	w, err := a.must("a value", a.last.text+" VALUE")
	if err != nil {
		return err
	}
	if err := read(a, w); err != nil {
		return err
	}
	if a.hasNext() {
		return a.bad(a.words[0], "unexpected %q at the end of the line", a.words[0].text)
	}

	return nil
}

// value reads the one value of a key.
func value(read func(*args, word) *fault.Error) reader {
	return func(a *args, key word) *fault.Error {
		w, err := a.must("a value", key.text+" VALUE")
		if err != nil {
			return err
		}

		return read(a, w)
	}
}

// into parses a word into a variable.
func into[T any](to *T, parse func(string) (T, error)) func(*args, word) *fault.Error {
	return func(a *args, w word) *fault.Error {
		v, err := parse(w.text)
		if err != nil {
			return a.bad(w, "%s", err.Error())
		}

		*to = v

		return nil
	}
}

// flag sets something that has no value.
func flag(to *bool) reader {
	return func(*args, word) *fault.Error {
		*to = true
		return nil
	}
}

func keysOf[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
