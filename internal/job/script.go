package job

import (
	"slices"
	"strings"
)

// quoting is how a shell reads the text around a reference.
type quoting int

const (
	unquoted    quoting = iota // also inside $( ) and backquotes
	singleQuote                // '…'
	ansiQuote                  // $'…'
	doubleQuote                // "…"
	arithmetic                 // $(( )) and (( ))
	comment
	document // the text of a here-document, in which variables are expanded
	verbatim // the text of a here-document whose word is quoted: nothing is expanded
)

// Script returns the commands of a spec with each reference as the expansion of the variable that has its value.
func (s *Spec) Script() string {
	at := shellContexts(s.Run)

	return fill(s.Run, func(r Placeholder) (string, bool) {
		if _, isParam := s.Params[r.Name]; !isParam && (s.Array == nil || arrayVars[r.Name] == "") {
			return "", false
		}

		variable, known := Variable(r.Name)
		expansion := "${" + variable + "}"

		switch at[r.From] {
		case unquoted:
			expansion = `"` + expansion + `"`
		case singleQuote:
			expansion = `'"` + expansion + `"'`
		case ansiQuote:
			expansion = `'"` + expansion + `"$'`
		case doubleQuote, arithmetic, comment, document:
		case verbatim:
			known = false // Parse does not accept it
		}

		return expansion, known
	})
}

// Unexpanded returns the references in run whose values the shell would not put in, and those that it would compute
// with. The first are in here-documents whose word is quoted.
func (s *Spec) Unexpanded() (verbatimList, computed []Placeholder) {
	at := shellContexts(s.Run)

	for _, r := range Placeholders(s.Run) {
		switch {
		case r.Escaped:
		case at[r.From] == verbatim:
			verbatimList = append(verbatimList, r)
		case at[r.From] == arithmetic:
			computed = append(computed, r)
		}
	}

	return verbatimList, computed
}

// shellContexts returns how a shell reads the text at each reference, by where it begins. A mistake here changes how a
// value is split into words and never what is executed: values are in variables, not in the text.
func shellContexts(text string) map[int]quoting {
	list := Placeholders(text)
	if len(list) == 0 {
		return nil
	}

	l := &lexer{text: text, at: make(map[int]quoting, len(list)), stack: []level{{quoting: unquoted}}}
	for _, r := range list {
		l.at[r.From] = unquoted
		l.places = append(l.places, r.From)
	}

	l.scan()

	return l.at
}

// level is something that is open at a place of a script: quotes, or a command inside others.
type level struct {
	quoting quoting
	until   byte // what ends it: ')' or '`', 0 if something else does
	parens  int  // that are open inside it
}

// lexer finds the quotes of a shell script.
type lexer struct {
	text    string
	at      map[int]quoting
	places  []int // of the references, in their order
	stack   []level
	pending []hereDocument // whose text begins with the next line
}

type hereDocument struct {
	word  string
	tabs  bool // tabs at the beginning of lines do not count
	plain bool // the word is quoted
}

func (l *lexer) top() *level { return &l.stack[len(l.stack)-1] }

func (l *lexer) push(q quoting, until byte) {
	l.stack = append(l.stack, level{quoting: q, until: until})
}

func (l *lexer) pop() {
	if len(l.stack) > 1 {
		l.stack = l.stack[:len(l.stack)-1]
	}
}

func (l *lexer) has(i int, prefix string) bool { return strings.HasPrefix(l.text[i:], prefix) }

// scan goes through the text once.
func (l *lexer) scan() {
	for i := 0; i < len(l.text); {
		if _, here := l.at[i]; here {
			l.at[i] = l.top().quoting
		}

		switch l.top().quoting {
		case singleQuote:
			i = l.quoted(i, '\'', false)
		case ansiQuote:
			i = l.quoted(i, '\'', true)
		case doubleQuote:
			i = l.double(i)
		case arithmetic:
			i = l.compute(i)
		case unquoted, comment, document, verbatim:
			i = l.plain(i)
		}
	}
}

// quoted goes on inside single quotes.
func (l *lexer) quoted(i int, end byte, escapes bool) int {
	switch {
	case escapes && l.text[i] == '\\':
		return i + 2
	case l.text[i] == end:
		l.pop()
	}

	return i + 1
}

// double goes on inside double quotes.
func (l *lexer) double(i int) int {
	switch c := l.text[i]; {
	case c == '\\':
		if _, here := l.at[i]; here {
			return i + 1
		}

		return i + 2
	case c == '"':
		l.pop()
	case l.has(i, "$(("):
		l.push(arithmetic, ')')
		return i + 3
	case l.has(i, "$("):
		l.push(unquoted, ')')
		return i + 2
	case c == '`':
		l.backquote()
	}

	return i + 1
}

// backquote begins or ends a command in backquotes.
func (l *lexer) backquote() {
	for n := len(l.stack) - 1; n > 0; n-- {
		if l.stack[n].until == '`' {
			l.stack = l.stack[:n]
			return
		}
	}

	l.push(unquoted, '`')
}

// compute goes on inside an arithmetic expression.
func (l *lexer) compute(i int) int {
	switch {
	case l.text[i] == '(':
		l.top().parens++
	case l.text[i] == ')' && l.top().parens > 0:
		l.top().parens--
	case l.has(i, "))"):
		l.pop()
		return i + 2
	}

	return i + 1
}

// plain goes on outside quotes.
func (l *lexer) plain(i int) int {
	c := l.text[i]

	switch {
	case c == '\\':
		if _, here := l.at[i]; here {
			return i + 1
		}

		return i + 2
	case c == '\'':
		l.push(singleQuote, 0)
	case l.has(i, "$'"):
		l.push(ansiQuote, 0)
		return i + 2
	case c == '"':
		l.push(doubleQuote, 0)
	case l.has(i, "$(("):
		l.push(arithmetic, ')')
		return i + 3
	case l.has(i, "((") && l.begins(i):
		l.push(arithmetic, ')')
		return i + 2
	case l.has(i, "$("):
		l.push(unquoted, ')')
		return i + 2
	case c == '`':
		l.backquote()
	case c == '(' && l.top().until == ')':
		l.top().parens++
	case c == ')' && l.top().until == ')':
		if l.top().parens == 0 {
			l.pop()
		} else {
			l.top().parens--
		}
	case c == '#' && l.begins(i):
		return l.until(i, comment, l.line(i))
	case l.has(i, "<<<"):
		return i + 3
	case l.has(i, "<<"):
		return l.announce(i + 2)
	case c == '\n' && len(l.pending) > 0:
		return l.documents(i + 1)
	}

	return i + 1
}

// begins reports whether a word begins here.
func (l *lexer) begins(i int) bool { return i == 0 || strings.IndexByte(" \t\n;&|(", l.text[i-1]) >= 0 }

// line returns where the line ends that a place is in.
func (l *lexer) line(i int) int {
	if n := strings.IndexByte(l.text[i:], '\n'); n >= 0 {
		return i + n
	}

	return len(l.text)
}

// until marks the references up to a place.
func (l *lexer) until(from int, q quoting, to int) int {
	first, _ := slices.BinarySearch(l.places, from)
	for _, at := range l.places[first:] {
		if at >= to {
			break
		}

		l.at[at] = q
	}

	return to
}

// announce reads the word of a here-document.
func (l *lexer) announce(i int) int {
	var d hereDocument
	if i < len(l.text) && l.text[i] == '-' {
		d.tabs = true
		i++
	}

	for i < len(l.text) && (l.text[i] == ' ' || l.text[i] == '\t') {
		i++
	}

	from := i
	for i < len(l.text) && strings.IndexByte(" \t\n;&|<>()", l.text[i]) < 0 {
		i++
	}

	word := l.text[from:i]
	d.plain = strings.ContainsAny(word, `'"\`)
	d.word = strings.NewReplacer("'", "", `"`, "", `\`, "").Replace(word)
	l.pending = append(l.pending, d)

	return i
}

// documents marks the references in the here-documents that begin at a place, and returns where the last of them ends.
func (l *lexer) documents(i int) int {
	for _, d := range l.pending {
		q := document
		if d.plain {
			q = verbatim
		}

		for i < len(l.text) {
			end := l.line(i)
			line := l.text[i:end]
			if d.tabs {
				line = strings.TrimLeft(line, "\t")
			}

			next := min(end+1, len(l.text))
			if line == d.word {
				i = next
				break
			}

			l.until(i, q, next)
			i = next
		}
	}

	l.pending = nil

	return i
}
