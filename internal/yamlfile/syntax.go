package yamlfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"trainyard/internal/fault"
)

const (
	maxDocuments = 1001 // that are decoded to find the line of a mistake
	maxDepth     = 20   // mappings and lists inside each other
)

// Documents returns the top node of up to so many documents of the text, and whether all of the text
// could be read. What could not be read is kept as a mistake.
func (m *Mistakes) Documents(text []byte, limit int) ([]*yaml.Node, bool) {
	if e := unreadable(text); e != nil {
		m.Add(e)
		return nil, false
	}

	roots, err := decode(text, limit)
	if err != nil {
		m.Add(syntaxError(text, err))
		return roots, false
	}

	return roots, true
}

// Structure reports anchors, aliases, tags, duplicate keys and whatever else is YAML but not supported in our
// files. It returns whether the document can be read all the same.
func (m *Mistakes) Structure(root *yaml.Node) bool { return m.structure(root, "", 1) }

// decode reads documents until the end, a mistake or the limit. The YAML
// package is not ours and its input comes from outside, so that a panic of
// its is taken for a mistake of the file.
func decode(text []byte, limit int) (roots []*yaml.Node, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("yaml: %v", p)
		}
	}()

	dec := yaml.NewDecoder(bytes.NewReader(text))

	for len(roots) < limit {
		var doc yaml.Node
		err := dec.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return roots, nil
		}
		if err != nil {
			return roots, err
		}

		if len(doc.Content) == 1 {
			roots = append(roots, doc.Content[0])
		}
	}

	return roots, nil
}

// unreadable reports the first byte that no YAML file may hold.
func unreadable(text []byte) *fault.Error {
	line, column := 1, 1

	for i := 0; i < len(text); {
		c, size := utf8.DecodeRune(text[i:])
		problem := ""
		switch {
		case c == utf8.RuneError && size == 1:
			problem = "the file is not UTF-8 text"
		case c < ' ' && c != '\t' && c != '\n' && c != '\r', c >= 0x7f && c < 0xa0 && c != 0x85, c == 0xfffe, c == 0xffff:
			problem = fmt.Sprintf("the file contains the control character U+%04X", c)
		}

		if problem != "" {
			return &fault.Error{Kind: fault.Invalid, Code: "yaml_syntax", Message: problem, Line: line, Column: column,
				Remedy: "save it as plain UTF-8 text"}
		}

		i, column = i+size, column+1
		if c == '\n' {
			line, column = line+1, 1
		}
	}

	return nil
}

// syntaxHints says what the YAML package's words mean to the one who wrote the file.
func syntaxHints() [][3]string {
	return [][3]string{
		{"mapping values are not allowed", "the line has a second ': ', or is indented too far",
			"put text that contains ': ' in quotes, or indent the line like its neighbours"},
		{"tab character", "the line is indented with a tab", "indent with spaces"},
		{"cannot start any token", "a value cannot start with this character", "put the value in quotes"},
		{"did not find expected key", "the line does not fit the lines above it",
			"indent the keys of one mapping by the same number of spaces, and close quotes and brackets"},
		{"expected '-' indicator", "the line is not an item of the list above it",
			"start each item of a list with '- ', indented by the same number of spaces"},
		{"or ']'", "a list that starts with [ is not closed", "close it with ]"},
		{"or '}'", "a mapping that starts with { is not closed", "close it with }"},
		{"expected ':'", "the line has no ': '", "write key: value, or indent the line if it belongs to the one above"},
		{"unexpected end of stream", "a quote is opened and not closed", "close it"},
		{"unknown escape character", "a backslash in double quotes starts an unknown escape sequence",
			"use single quotes, where a backslash is only a backslash"},
		{"unknown anchor", "the file uses an alias", "write the value out; anchors and aliases are not supported"},
		{"exceeded max depth", "the file is nested too deeply", "write it flatter"},
	}
}

// syntaxError puts what the YAML package found into our words.
func syntaxError(text []byte, err error) *fault.Error {
	reported, problem := splitSyntax(err)
	e := &fault.Error{Kind: fault.Invalid, Code: "yaml_syntax", Message: "invalid YAML: " + problem,
		Remedy: "check this line and the ones around it", Cause: err}
	for _, h := range syntaxHints() {
		if strings.Contains(problem, h[0]) {
			e.Message, e.Remedy = h[1], h[2]
			break
		}
	}

	lines := strings.SplitAfter(string(text), "\n")
	e.Line = min(locate(lines, problem, reported), len(lines))
	line := lines[e.Line-1]
	indent := line[:len(line)-len(strings.TrimLeft(line, " \t"))]
	e.Column = len(indent) + 1

	if tab := strings.IndexByte(indent, '\t'); tab >= 0 {
		e.Message = "the line is indented with a tab"
		e.Remedy = "indent with spaces"
		e.Column = tab + 1
	}

	return e
}

// splitSyntax takes "yaml: line 3: problem" apart; the line is 1 if there is none.
func splitSyntax(err error) (int, string) {
	problem := strings.TrimPrefix(err.Error(), "yaml: ")
	if rest, ok := strings.CutPrefix(problem, "line "); ok {
		if number, after, ok := strings.Cut(rest, ": "); ok {
			if n, err := strconv.Atoi(number); err == nil && n > 0 {
				return n, after
			}
		}
	}

	return 1, problem
}

// locate finds the line of a syntax error: the last one without which the text
// does not have that error. The YAML package often tells the start of the
// mapping around it instead, which may be far above.
func locate(lines []string, problem string, reported int) int {
	total := 0
	for _, l := range lines {
		total += len(l)
	}

	if total > 32<<10 {
		return reported // it would take too long
	}

	broken := func(n int) bool {
		_, err := decode([]byte(strings.Join(lines[:n], "")), maxDocuments)
		if err == nil {
			return false
		}

		_, p := splitSyntax(err)

		return p == problem
	}

	bad, good, step := len(lines), 0, 1
	for bad > 1 { // steps back that double, because further up other lines may look broken when cut there
		n := max(bad-step, 0)
		if !broken(n) {
			good = n
			break
		}

		bad, step = n, step*2
	}

	for bad-good > 1 {
		if mid := (bad + good) / 2; broken(mid) {
			bad = mid
		} else {
			good = mid
		}
	}

	return max(bad, 1)
}

// structure reports what is YAML but not supported in our files, and whether the
// document can be read all the same.
func (m *Mistakes) structure(n *yaml.Node, path string, depth int) bool {
	plain := "write the value out; anchors, aliases and merge keys are not supported"
	switch {
	case n.Kind == yaml.AliasNode:
		m.Fail(n, "not_supported", path, "the file uses the alias *"+clip(n.Value), plain)
		return false
	case n.Anchor != "":
		m.Fail(n, "not_supported", path, "the file uses the anchor &"+clip(n.Anchor), plain)
		return false
	case n.Style&yaml.TaggedStyle != 0:
		m.Fail(n, "not_supported", path, "the file uses the tag "+clip(n.Tag),
			"write the value without it; put it in quotes if it is text")
		return false
	case depth > maxDepth:
		m.Fail(n, "too_large", path, "the file is nested too deeply", fmt.Sprintf("use at most %d levels", maxDepth))
		return false
	}

	if n.Kind == yaml.ScalarNode {
		return true
	}

	good := true

	seen := map[string]int{}
	for i, c := range n.Content {
		switch {
		case n.Kind == yaml.MappingNode && i%2 == 0:
			good = m.key(c, path, seen) && good
		case n.Kind == yaml.MappingNode:
			good = m.structure(c, Join(path, Shown(n.Content[i-1].Value)), depth+1) && good
		default:
			good = m.structure(c, fmt.Sprintf("%s[%d]", path, i), depth+1) && good
		}
	}

	return good
}

// key checks the key of a mapping.
func (m *Mistakes) key(k *yaml.Node, path string, seen map[string]int) bool {
	switch {
	case k.Kind != yaml.ScalarNode:
		m.Fail(k, "wrong_type", path, "a key must be a word, got "+Describe(k), "write lines of key: value")
		return false
	case k.ShortTag() == "!!merge":
		m.Fail(k, "not_supported", path, "the file uses the merge key <<",
			"write the keys out; anchors, aliases and merge keys are not supported")
		return false
	case k.Anchor != "" || k.Style&yaml.TaggedStyle != 0:
		m.Fail(k, "not_supported", path, "a key has an anchor or a tag", "write the key alone")
		return false
	}

	if first, ok := seen[k.Value]; ok {
		m.Fail(k, "duplicate_key", Join(path, Shown(k.Value)),
			fmt.Sprintf("must be given only once, also given at line %d", first), "remove one of them")
		return true
	}

	seen[k.Value] = k.Line

	return true
}

// clip shortens a word of the file for a message.
func clip(s string) string {
	if runes := []rune(s); len(runes) > 40 {
		return string(runes[:40]) + "…"
	}

	return s
}
