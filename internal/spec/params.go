package spec

import (
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"trainyard/internal/job"
	"trainyard/internal/yamlfile"
)

// paramsKind reads the hyper-parameters: a mapping of whatever JSON can hold,
// with the same Go types as from JSON, so that storing them changes nothing.
func paramsKind() kind {
	return kind{
		words:  "a mapping",
		schema: func() schema { return schema{"type": "object"} },
		read: func(v value) {
			if v.n.Kind != yaml.MappingNode {
				v.wrongType()
				return
			}

			params := map[string]any{}
			v.d.missing = map[string]bool{}

			for i := 0; i+1 < len(v.n.Content); i += 2 {
				name, inside := v.n.Content[i].Value, v
				inside.n, inside.path = v.n.Content[i+1], yamlfile.Join(v.path, yamlfile.Shown(name))
				before := v.r.Len()
				params[name] = inside.param(name)
				v.d.missing[name] = v.r.Len() > before
			}

			if len(params) > 0 {
				v.d.entry.Spec.Params = params
			}
		},
		write: func(s *job.Spec) (*yaml.Node, error) {
			if len(s.Params) == 0 {
				return nil, nil
			}

			return sortedNode(s.Params, plainNode)
		},
	}
}

// plain returns what a node holds as nil, bool, float64, string, []any or map[string]any.
func (v value) plain() any {
	inside := v

	switch v.n.Kind {
	case yaml.MappingNode:
		m := map[string]any{}
		for i := 0; i+1 < len(v.n.Content); i += 2 {
			key := v.n.Content[i].Value
			inside.n, inside.path = v.n.Content[i+1], yamlfile.Join(v.path, yamlfile.Shown(key))
			m[key] = inside.plain()
		}

		return m
	case yaml.SequenceNode:
		list := []any{}
		for i, n := range v.n.Content {
			inside.n, inside.path = n, fmt.Sprintf("%s[%d]", v.path, i)
			list = append(list, inside.plain())
		}

		return list
	}

	switch v.n.ShortTag() {
	case "!!null":
		return nil
	case "!!bool":
		return strings.EqualFold(v.n.Value, "true")
	case "!!int", "!!float":
		return v.plainNumber()
	}

	return v.n.Value
}

// plainNumber reads a number, and refuses one that would be kept as another.
func (v value) plainNumber() any {
	text := strings.ReplaceAll(v.n.Value, "_", "")
	f, ok := parseNumber(text)
	if !ok {
		n, err := strconv.ParseInt(text, 0, 64) // 0x10, 0o7, 0b1
		if err != nil {
			v.bad("must be a number of at most 64 bits"+got(v.n.Value), "put it in quotes to keep it as a string")
			return nil
		}

		f, text = float64(n), strconv.FormatInt(n, 10)
	}

	if strings.Trim(text, "+-0123456789") == "" && strconv.FormatFloat(f, 'f', 0, 64) != wholeText(text) {
		v.bad("must be a number that a 64-bit float stores exactly"+got(v.n.Value), "put it in quotes to keep it as a string")
		return nil
	}

	if f == 0 {
		return 0.0 // never -0
	}

	return f
}

// wholeText writes a whole number the way FormatFloat does.
func wholeText(s string) string {
	digits := strings.TrimLeft(strings.TrimLeft(s, "+-"), "0")
	if digits == "" {
		digits = "0"
	}

	if strings.HasPrefix(s, "-") {
		return "-" + digits
	}

	return digits
}

// plainNode writes what plain reads.
func plainNode(x any) (*yaml.Node, error) {
	switch x := x.(type) {
	case nil:
		return word("null"), nil
	case bool:
		return word(strconv.FormatBool(x)), nil
	case int:
		return word(strconv.Itoa(x)), nil
	case float64:
		return numberNode(x)
	case string:
		return stringNode(x)
	case map[string]any:
		n, err := sortedNode(x, plainNode)
		if n != nil {
			n.Style = yaml.FlowStyle
		}

		return n, err
	case []any:
		list := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
		for _, item := range x {
			n, err := plainNode(item)
			if err != nil {
				return nil, err
			}

			list.Content = append(list.Content, n)
		}

		return list, nil
	}

	return nil, fmt.Errorf("a %T cannot be written in a job file", x)
}
