package spec

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"trainyard/internal/yamlfile"
)

// value is the value of one field in the file.
type value struct {
	r    *reader
	d    *draft
	n    *yaml.Node
	f    *field
	path string
}

// read reads the value into the draft and keeps the field's note.
func (v value) read() {
	if yamlfile.IsNull(v.n) {
		v.fail("missing_value", "must have a value, got nothing", v.example()+", or remove the line")
		return
	}

	switch {
	case v.f.list != nil:
		v.mappings()
	case v.f.fields == nil:
		v.f.kind.read(v)
	case v.n.Kind == yaml.MappingNode:
		v.r.mapping(v.d, v.n, v.path, v.f.fields)
	default:
		v.wrongType()
		return
	}

	if v.f.later != "" {
		v.d.note(v.path, v.path+": "+v.f.later)
	}
}

// mappings reads a list of mappings, each into an entry of its own.
func (v value) mappings() {
	if v.n.Kind != yaml.SequenceNode {
		v.wrongType()
		return
	}

	if most := v.f.list.most; len(v.n.Content) > most {
		v.fail("too_large", fmt.Sprintf("must have at most %d entries, got %d", most, len(v.n.Content)), "shorten it")
		return
	}

	for i, n := range v.n.Content {
		path := fmt.Sprintf("%s[%d]", v.path, i)
		v.f.list.add(&v.d.entry.Spec)
		if n.Kind != yaml.MappingNode {
			v.r.Fail(n, "wrong_type", path, "must be a mapping, got "+yamlfile.Describe(n), v.example())
			continue
		}

		before := v.r.Len()
		v.r.mapping(v.d, n, path, v.f.fields)

		if v.r.Len() == before {
			v.d.at[path] = n // what has a mistake already is not looked at again
		}
	}
}

// fail keeps a mistake at the value.
func (v value) fail(code, message, remedy string) { v.r.Fail(v.n, code, v.path, message, remedy) }

// bad keeps a mistake in what a value says.
func (v value) bad(message, remedy string) { v.fail("bad_value", message, remedy) }

// wrongType keeps the mistake that a value is a list, say, where a text is wanted.
func (v value) wrongType() {
	v.fail("wrong_type", "must be "+v.f.words()+", got "+yamlfile.Describe(v.n), v.example())
}

// example is the remedy that shows the field as it should be.
func (v value) example() string {
	return "write it as in " + v.f.name + ": " + v.f.example
}

// text returns what stands in the file, as it stands there: 0x10, 1.0 and true
// are texts too where a text is wanted.
func (v value) text() (string, bool) {
	switch {
	case v.n.Kind != yaml.ScalarNode:
		v.wrongType()
	case yamlfile.IsNull(v.n):
		v.fail("missing_value", "must have a value, got nothing", v.example())
	case strings.ContainsRune(v.n.Value, 0):
		v.bad("must not contain a NUL character", "remove it")
	case v.n.Value == "":
		v.bad("must not be empty", v.example()+", or remove the line")
	default:
		return v.n.Value, true
	}

	return "", false
}

// line returns a text that must be short and on one line.
func (v value) line() (string, bool) {
	s, ok := v.text()
	if !ok {
		return "", false
	}

	if len(s) > maxLine {
		v.fail(
			"too_large",
			fmt.Sprintf("must have at most %d bytes, got %d: %s", maxLine, len(s), yamlfile.Quote(s)),
			v.example(),
		)

		return "", false
	}

	if strings.ContainsAny(s, "\n\r") {
		v.bad("must be on one line"+got(s), v.example())
		return "", false
	}

	return s, true
}

// items returns the entries of a list, each as a value of its own. A single
// text is a list of one.
func (v value) items() []value {
	if v.n.Kind == yaml.ScalarNode {
		return []value{v}
	}

	if v.n.Kind != yaml.SequenceNode {
		v.wrongType()
		return nil
	}

	if len(v.n.Content) > maxItems {
		v.fail("too_large", fmt.Sprintf("must have at most %d entries, got %d", maxItems, len(v.n.Content)), "shorten it")
		return nil
	}

	var items []value
	for i, n := range v.n.Content {
		item := v
		item.n, item.path = n, fmt.Sprintf("%s[%d]", v.path, i)
		items = append(items, item)
	}

	return items
}
