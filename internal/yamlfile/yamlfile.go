// Package yamlfile reads the YAML files that people write: job files, price files,
// the clouds file and tariffs. It finds all mistakes of a file at once, each with its line, its column
// and the way to fix it, and suggests the key that was meant by an unknown one.
//
// Formats with a table of fields of their own (spec, provision) use Mistakes and walk the nodes
// themselves; files that are plain structs use Decode. The package reads no file and knows no
// format: the caller passes the text. Anchors, aliases and tags are refused everywhere, so
// that a small file cannot expand into a large one.
package yamlfile

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"trainyard/internal/fault"
	"trainyard/internal/suggest"
)

// MaxMistakes is how many mistakes of a file are reported at once.
const MaxMistakes = 100

// Mistakes collects the mistakes of one file. The zero value is ready to use.
type Mistakes struct {
	// Finder suggests words for all mistakes of the file, within one bound on the work.
	Finder suggest.Finder

	list    fault.List
	skipped int
}

// Len returns how many mistakes there are.
func (m *Mistakes) Len() int { return len(m.list) + m.skipped }

// Full reports whether there are as many mistakes as are reported. Further ones are only counted, so
// that nobody need look for their remedies.
func (m *Mistakes) Full() bool { return len(m.list) >= MaxMistakes }

// Skip counts a mistake that is not reported.
func (m *Mistakes) Skip() { m.skipped++ }

// Add keeps a mistake, or counts it if there are too many already.
func (m *Mistakes) Add(e *fault.Error) {
	if m.Full() {
		m.Skip()
		return
	}

	m.list = append(m.list, e)
}

// Fail keeps a mistake at a place of the file; a nil node is the file as a whole.
func (m *Mistakes) Fail(n *yaml.Node, code, path, message, remedy string) {
	e := &fault.Error{Kind: fault.Invalid, Code: code, Message: message, Field: path, Remedy: remedy}
	if n != nil {
		e.Line = n.Line
		e.Column = n.Column
	}

	m.Add(e)
}

// Sorted returns the mistakes in the order of the file.
func (m *Mistakes) Sorted() fault.List {
	slices.SortStableFunc(m.list, func(a, b *fault.Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})

	if m.skipped == 0 {
		return m.list
	}

	rest := fault.New(fault.Invalid, "too_many_errors", "%d more errors not shown", m.skipped).
		WithRemedy("fix these first and check the file again")

	return append(slices.Clip(m.list), rest)
}

// IsNull reports whether a value is missing.
func IsNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// Describe says what a node is, for a sentence such as "got a list".
func Describe(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.AliasNode:
		return "an alias"
	case IsNull(n):
		return "nothing"
	}

	return Quote(n.Value)
}

// Join puts a key behind the path of the mapping it is in.
func Join(path, key string) string {
	if path == "" {
		return key
	}

	return path + "." + key
}

// Shown makes a key fit for a message: short, on one line, quoted where it is odd.
func Shown(key string) string {
	odd := func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-'
	}
	if key == "" || len(key) > 40 || strings.ContainsFunc(key, odd) {
		return Quote(key)
	}

	return key
}

// Quote puts a value into a message, cut where it is long.
func Quote(s string) string {
	const limit = 60
	if runes := []rune(s); len(runes) > limit {
		s = string(runes[:limit]) + "…"
	}

	return strconv.Quote(s)
}
