package spec

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"trainyard/internal/fault"
	"trainyard/internal/job"
	"trainyard/internal/yamlfile"
)

// Set writes a spec as a job file with some fields changed: entries of the form KEY=VALUE, where KEY is the path
// of a field (resources.gpus, params.lr) and VALUE is written as in a job file. An empty VALUE removes the field.
// Whether the result is a good job file is for Parse to say.
func Set(s job.Spec, entries []string) ([]byte, error) {
	root, err := mappingNode(jobFields(), &s)
	if err != nil {
		return nil, err
	}
	if root == nil {
		root = &yaml.Node{Kind: yaml.MappingNode}
	}

	for _, entry := range entries {
		path, text, assigned := strings.Cut(entry, "=")
		if !assigned || path == "" {
			return nil, fault.New(fault.Invalid, "bad_assignment", "a change must be KEY=VALUE, got %q", entry).
				WithRemedy("write it as in resources.gpus=4 or params.lr=0.1")
		}

		value, err := assignedNode(path, text)
		if err != nil {
			return nil, err
		}
		if err := assign(root, steps(path), value); err != nil {
			return nil, fault.New(fault.Invalid, "bad_assignment", "cannot set %s: %v", path, err).WithField(path)
		}
	}

	return encode(root)
}

// steps splits the path of a field. The names of params and variables may have dots of their own.
func steps(path string) []string {
	if first, rest, ok := strings.Cut(path, "."); ok && (first == "params" || first == "env") {
		return []string{first, rest}
	}

	return strings.Split(path, ".")
}

// assignedNode reads a value: a list or a mapping in brackets, else one word or text. It is nil for none.
func assignedNode(path, text string) (*yaml.Node, error) {
	switch {
	case text == "":
		return nil, nil
	case text[0] != '[' && text[0] != '{':
		return word(text), nil
	}

	var document yaml.Node
	if err := yaml.Unmarshal([]byte(text), &document); err != nil || len(document.Content) != 1 {
		return nil, fault.New(fault.Invalid, "bad_assignment", "the value of %s is not a list or mapping: %s", path, text).
			WithField(path).WithRemedy("write it as in a job file, for example data=[cifar10, mnist]")
	}

	return document.Content[0], nil
}

// assign puts a value at a path below a mapping, or removes what is there if it is nil.
func assign(m *yaml.Node, path []string, value *yaml.Node) error {
	if m.Kind != yaml.MappingNode {
		return fmt.Errorf("%s has no fields of its own", m.Value)
	}

	at := -1
	for i := 0; i+1 < len(m.Content); i += 2 {
		if m.Content[i].Value == path[0] {
			at = i
		}
	}

	switch {
	case len(path) > 1 && at >= 0:
		return assign(m.Content[at+1], path[1:], value)
	case value == nil && at >= 0:
		m.Content = slices.Delete(m.Content, at, at+2)
		return nil
	case value == nil:
		return nil // it is not there
	case at >= 0:
		m.Content[at+1] = value
		return nil
	}

	for _, name := range slices.Backward(path[1:]) {
		value = &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{word(name), value}}
	}

	m.Content = append(m.Content, word(path[0]), value)

	return nil
}

// Difference is a field in which two specs differ, with both values as they are written; "" if one does not have it.
type Difference struct {
	Name          string // its path
	Before, After string
}

// Differences lists the fields in which two specs differ, in the order of the job file.
func Differences(before, after job.Spec) ([]Difference, error) {
	return differences(jobFields(), "", &before, &after)
}

func differences(fields []field, prefix string, before, after *job.Spec) ([]Difference, error) {
	var list []Difference

	for _, f := range fields {
		path := yamlfile.Join(prefix, f.name)
		if f.fields != nil && f.list == nil {
			below, err := differences(f.fields, path, before, after)
			if err != nil {
				return nil, err
			}

			list = append(list, below...)

			continue
		}

		was, err := fieldText(f, before)
		if err != nil {
			return nil, err
		}

		is, err := fieldText(f, after)
		if err != nil {
			return nil, err
		}

		if was != is {
			list = append(list, Difference{path, was, is})
		}
	}

	return list, nil
}

// fieldText writes the value of a field on one line, "" if the spec does not have it.
func fieldText(f field, s *job.Spec) (string, error) {
	n, err := fieldNode(f, s)
	if err != nil || n == nil {
		return "", err
	}

	if n.Kind != yaml.ScalarNode {
		n.Style = yaml.FlowStyle
	}

	text, err := yaml.Marshal(n)

	return strings.TrimSpace(string(text)), err
}
