package spec

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"trainyard/internal/job"
	"trainyard/internal/yamlfile"
)

// Render writes a spec as a job file: the fields in the order of the table,
// without those that have their default. Parse reads the same spec from it.
// Jobs that need each other must be parsed together: join their texts with
// lines of "---".
func Render(s job.Spec) ([]byte, error) {
	root, err := mappingNode(jobFields(), &s)
	if err != nil {
		return nil, err
	}
	if root == nil {
		return nil, fmt.Errorf("render job file: the spec says nothing")
	}

	return encode(root)
}

// encode writes a job file.
func encode(root *yaml.Node) ([]byte, error) {
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)

	if err := enc.Encode(root); err != nil {
		return nil, fmt.Errorf("render job file: %w", err)
	}
	if err := enc.Close(); err != nil {
		return nil, fmt.Errorf("render job file: %w", err)
	}

	return out.Bytes(), nil
}

// mappingNode writes the fields that the spec has; nil if it has none.
func mappingNode(fields []field, s *job.Spec) (*yaml.Node, error) {
	m := &yaml.Node{Kind: yaml.MappingNode}
	for _, f := range fields {
		n, err := fieldNode(f, s)
		if err != nil {
			return nil, fmt.Errorf("render %s: %w", f.name, err)
		}
		if n == nil || f.def != "" && n.Value == f.def {
			continue
		}

		m.Content = append(m.Content, word(f.name), n)
	}

	if len(m.Content) == 0 {
		return nil, nil
	}

	return m, nil
}

func fieldNode(f field, s *job.Spec) (*yaml.Node, error) {
	switch {
	case f.list != nil:
		return listNode(f, s)
	case f.fields != nil:
		return mappingNode(f.fields, s)
	}

	return f.kind.write(s)
}

// listNode writes a list of mappings, each on a line; nil if it is empty.
func listNode(f field, s *job.Spec) (*yaml.Node, error) {
	seq := &yaml.Node{Kind: yaml.SequenceNode}

	for _, one := range f.list.each(s) {
		n, err := mappingNode(f.fields, one)
		if err != nil {
			return nil, err
		}
		if n == nil {
			continue
		}

		n.Style = yaml.FlowStyle
		seq.Content = append(seq.Content, n)
	}

	if len(seq.Content) == 0 {
		return nil, nil
	}

	return seq, nil
}

// word writes something that needs no quotes: a number, a unit, a key of ours.
func word(s string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Value: s} }

// textNode writes a text, nil for none.
func textNode(s string) (*yaml.Node, error) {
	if s == "" {
		return nil, nil
	}

	return stringNode(s)
}

// stringNode writes any text so that the same text is read from it.
func stringNode(s string) (*yaml.Node, error) {
	if !utf8.ValidString(s) {
		return nil, fmt.Errorf("%s is not UTF-8 text", yamlfile.Quote(s))
	}

	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s}
	odd := strings.ContainsFunc(s, func(c rune) bool { return c != '\n' && c != '\t' && (c < ' ' || c > '~') })

	lines := strings.Contains(s, "\n")
	switch {
	case s == "<<", odd, lines && !block(s), strings.Contains(s, "\t") && !lines:
		n.Style = yaml.DoubleQuotedStyle
	case lines:
		n.Style = yaml.LiteralStyle
	}

	return n, nil
}

// block reports whether a text of several lines can stand as it is behind "|".
func block(s string) bool {
	body := strings.TrimSuffix(s, "\n")
	return body != "" && !strings.HasSuffix(body, "\n") && !strings.HasPrefix(s, "\n") &&
		!strings.HasPrefix(s, " ") && !strings.HasPrefix(s, "\t") && !strings.HasSuffix(body, " ")
}

// textsNode writes a list of texts: nil for none, the text itself for one.
func textsNode(list []string) (*yaml.Node, error) {
	switch len(list) {
	case 0:
		return nil, nil
	case 1:
		return stringNode(list[0])
	}

	seq := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
	for _, s := range list {
		n, err := stringNode(s)
		if err != nil {
			return nil, err
		}

		seq.Content = append(seq.Content, n)
	}

	return seq, nil
}

// sortedNode writes a map in the order of its keys.
func sortedNode[T any](m map[string]T, write func(T) (*yaml.Node, error)) (*yaml.Node, error) {
	out := &yaml.Node{Kind: yaml.MappingNode}

	for _, key := range slices.Sorted(maps.Keys(m)) {
		k, err := stringNode(key)
		if err != nil {
			return nil, err
		}

		n, err := write(m[key])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", yamlfile.Shown(key), err)
		}

		out.Content = append(out.Content, k, n)
	}

	return out, nil
}
