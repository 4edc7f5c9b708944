package spec

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"trainyard/internal/job"
	"trainyard/internal/yamlfile"
)

// maxEdges bounds how many needs the jobs of a file have of each other once its arrays are elements.
const maxEdges = 100_000

// arrayField is the field that makes many jobs of one.
func arrayField() field {
	return field{
		name:    "array",
		kind:    arrayKind(),
		example: "0..99%10",
		also:    []string{"sweep", "matrix", "task_array", "count"},
		doc: "Makes one job for each value: a range of integers (0..99, or 0..99:5 for every fifth), or a list of values. " +
			"At most as many as follow % run at the same time; for a list, write {values: [a, b, c], limit: 2}. " +
			"{{array.value}} and {{array.index}} in run and env stand for the value and its position from 0, and the program " +
			"finds them in TRAINYARD_ARRAY_VALUE and TRAINYARD_ARRAY_INDEX.",
	}
}

// arrayKind reads what makes many jobs of one: a range of integers, a list of values, or a mapping of values and limit.
func arrayKind() kind {
	return kind{
		words:  "a range of integers, a list of values, or a mapping of values and limit",
		schema: arraySchema,
		read:   readArray,
		write: func(s *job.Spec) (*yaml.Node, error) {
			switch a := s.Array; {
			case a == nil:
				return nil, nil
			case len(a.Values) == 0:
				return word(a.String()), nil
			default:
				return valuesNode(a)
			}
		},
	}
}

// valuesNode writes a list of values, with its limit if it has one.
func valuesNode(a *job.Array) (*yaml.Node, error) {
	list := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
	for _, value := range a.Values {
		n, err := stringNode(value)
		if err != nil {
			return nil, err
		}

		list.Content = append(list.Content, n)
	}

	if a.Limit == 0 {
		return list, nil
	}

	n := &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle}
	n.Content = []*yaml.Node{word("values"), list, word("limit"), word(strconv.Itoa(a.Limit))}

	return n, nil
}

func arraySchema() schema {
	text := schema{"type": "string", "pattern": `^ *-?[0-9]+ *\.\. *-?[0-9]+ *(: *[0-9]+ *)?(% *[0-9]+ *)?$`}
	values := schema{
		"type": "array", "minItems": 1, "maxItems": job.MaxElements,
		"items": schema{"type": []string{"string", "number", "boolean"}},
	}

	return schema{"anyOf": []schema{text, values, {
		"type": "object", "additionalProperties": false, "required": []string{"values"},
		"properties": schema{
			"values": schema{"anyOf": []schema{text, values}},
			"limit":  schema{"type": "integer", "minimum": 1},
		},
	}}}
}

func readArray(v value) {
	before := v.r.Len()

	var a job.Array
	if v.n.Kind == yaml.MappingNode {
		a = v.limitedArray()
	} else {
		a = v.arrayValues()
	}

	if v.r.Len() > before {
		return
	}

	if n := a.Len(); n > job.MaxElements {
		v.fail("too_large", fmt.Sprintf("must have at most %d elements, got %d", job.MaxElements, n),
			"split it into several files")
		return
	}

	v.d.entry.Spec.Array = &a
}

// limitedArray reads a mapping of values and limit.
func (v value) limitedArray() job.Array {
	var a job.Array
	given := false

	for i := 0; i+1 < len(v.n.Content); i += 2 {
		key, inside := v.n.Content[i], v
		inside.n, inside.path = v.n.Content[i+1], yamlfile.Join(v.path, yamlfile.Shown(key.Value))

		switch key.Value {
		case "values":
			given = true
			limit := a.Limit
			a = inside.arrayValues()

			if a.Limit > 0 {
				inside.bad("must not have a limit here", "write limit: "+strconv.Itoa(a.Limit)+" beside values instead of the %")
			}

			a.Limit = limit
		case "limit":
			a.Limit = inside.arrayLimit()
		default:
			v.r.Fail(key, "unknown_key", inside.path, "unknown key", "the keys here are values, limit")
		}
	}

	if !given {
		v.fail("missing_value", "must have values", v.example())
	}

	return a
}

// arrayLimit reads how many elements may run at the same time.
func (v value) arrayLimit() int {
	text, ok := v.line()
	if !ok {
		return 0
	}

	limit, err := strconv.Atoi(text)
	if err != nil || limit < 1 || limit > job.MaxElements {
		v.bad("must be an integer from 1 to "+strconv.Itoa(job.MaxElements)+got(text),
			"write it as in array: {values: [a, b, c], limit: 2}")
	}

	return limit
}

// arrayValues reads a range or a list.
func (v value) arrayValues() job.Array {
	switch v.n.Kind {
	case yaml.ScalarNode:
		text, ok := v.line()
		if !ok {
			return job.Array{}
		}

		a, err := job.ParseArray(text)

		var unit *job.UnitError
		if errors.As(err, &unit) {
			v.bad(unit.Message, unit.Remedy)
		}

		return a
	case yaml.SequenceNode:
		return job.Array{Values: v.listedValues()}
	}

	v.wrongType()

	return job.Array{}
}

// listedValues reads the values of a list, each as it stands in the file.
func (v value) listedValues() []string {
	switch n := len(v.n.Content); {
	case n == 0:
		v.bad("must have at least one value", v.example())
		return nil
	case n > job.MaxElements:
		v.fail("too_large", fmt.Sprintf("must have at most %d elements, got %d", job.MaxElements, n),
			"split it into several files")
		return nil
	}

	values := make([]string, 0, len(v.n.Content))
	for i, n := range v.n.Content {
		item := v
		item.n, item.path = n, fmt.Sprintf("%s[%d]", v.path, i)

		switch {
		case n.Kind != yaml.ScalarNode || yamlfile.IsNull(n):
			item.fail("wrong_type", "must be a number or a text, got "+yamlfile.Describe(n), v.example())
		case strings.ContainsRune(n.Value, 0):
			item.bad("must not contain a NUL character", "remove it")
		case len(n.Value) > job.MaxParam:
			item.fail("too_large", fmt.Sprintf("must have at most %d bytes, got %d", job.MaxParam, len(n.Value)),
				"put long values into files of the working directory, and their names here")
		default:
			values = append(values, n.Value)
		}

		if v.r.Full() {
			break
		}
	}

	return values
}

// elements returns how many jobs a draft makes.
func (d *draft) elements() int {
	if a := d.entry.Spec.Array; a != nil {
		return a.Len()
	}

	return 1
}

// arrays checks that a file does not make more jobs than may be submitted at once, or more needs among them.
func (r *reader) arrays(drafts []*draft, byName map[string]*draft) {
	jobs, edges := 0, 0
	for _, d := range drafts {
		jobs += d.elements()
		for _, need := range d.entry.Spec.Needs {
			if needed, ok := byName[need]; ok {
				edges += d.elements() * needed.elements()
			}
		}

		if jobs > job.MaxElements && len(drafts) > 1 {
			r.Fail(d.at[""], "too_large", "array", fmt.Sprintf("the file must make at most %d jobs, got more",
				job.MaxElements), "split it into several files")
			return
		}

		if n := d.at["needs"]; n != nil && edges > maxEdges {
			r.Fail(n, "too_large", "needs", fmt.Sprintf(
				"the elements of the file must have at most %d needs in total, got more", maxEdges),
				"put a job between the two arrays that needs the one and is needed by the other")

			return
		}
	}
}
