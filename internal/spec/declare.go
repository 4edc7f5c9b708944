package spec

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"trainyard/internal/fault"
	"trainyard/internal/job"
	"trainyard/internal/yamlfile"
)

// The types that a parameter may be declared with.
const (
	typeNumber  = "number"
	typeInteger = "integer"
	typeString  = "string"
	typeBoolean = "boolean"
)

func paramTypes() []string { return []string{typeNumber, typeInteger, typeString, typeBoolean} }

// declaration is what a job file says about a parameter beside its value.
type declaration struct {
	kind     string     // "" for any
	def      *yaml.Node // nil if a value has to be given
	oneOf    []*yaml.Node
	min, max *float64
}

// declared reports whether a node declares a parameter: {type: number, default: 0.1}. Any other mapping is a value.
func declared(n *yaml.Node) bool {
	if n.Kind != yaml.MappingNode {
		return false
	}

	isType := false
	for i := 0; i+1 < len(n.Content); i += 2 {
		switch n.Content[i].Value {
		case "type":
			isType = n.Content[i+1].Kind == yaml.ScalarNode && slices.Contains(paramTypes(), n.Content[i+1].Value)
		case "default", "one_of", "min", "max":
		default:
			return false
		}
	}

	return isType
}

// param returns the value of a parameter: as given by the submitter, or else as in the file.
func (v value) param(name string) any {
	text, given := v.r.opts.Params[name]
	if given {
		v.r.setParams[name] = true
	}

	if declared(v.n) {
		return v.declaredParam(name, text, given)
	}

	if !given {
		return v.plain()
	}

	return v.givenParam(name, text, declaration{kind: typeOf(v.n)})
}

// typeOf is the type that a default in the file stands for, "" if it may become anything.
func typeOf(n *yaml.Node) string {
	switch {
	case n.Kind != yaml.ScalarNode || yamlfile.IsNull(n):
		return ""
	case n.ShortTag() == "!!bool":
		return typeBoolean
	case n.ShortTag() == "!!int", n.ShortTag() == "!!float":
		return typeNumber
	case len(job.Placeholders(n.Value)) > 0:
		return "" // it stands for a value of the array
	}

	return typeString
}

// declaredParam returns the value of a parameter that is declared with a type.
func (v value) declaredParam(name, text string, given bool) any {
	d, ok := v.declaration()
	if !ok {
		return nil
	}

	switch {
	case given:
		return v.givenParam(name, text, d)
	case d.def != nil:
		at := v
		at.n, at.path = d.def, yamlfile.Join(v.path, "default")

		return at.allowed(d)
	case !v.r.opts.AnyParams:
		v.fail("missing_param", "must be given because it has no default", "submit with --set "+name+"=VALUE")
	}

	return nil
}

// declaration reads what is declared of a parameter.
func (v value) declaration() (declaration, bool) {
	var d declaration
	before := v.r.Len()

	for i := 0; i+1 < len(v.n.Content); i += 2 {
		at := v
		at.n, at.path = v.n.Content[i+1], yamlfile.Join(v.path, v.n.Content[i].Value)

		switch v.n.Content[i].Value {
		case "type":
			d.kind = at.n.Value
		case "default":
			d.def = at.n
		case "one_of":
			if at.n.Kind != yaml.SequenceNode || len(at.n.Content) == 0 {
				at.fail("wrong_type", "must be a list of values, got "+yamlfile.Describe(at.n),
					"write it as in one_of: [adam, sgd]")
				continue
			}

			d.oneOf = at.n.Content
		case "min":
			d.min = at.bound()
		case "max":
			d.max = at.bound()
		}
	}

	return d, v.r.Len() == before
}

// bound reads a limit of a number.
func (v value) bound() *float64 {
	if f, ok := v.plain().(float64); ok {
		return &f
	}

	v.bad("must be a number, got "+yamlfile.Describe(v.n), "write it as in min: 0")

	return nil
}

// givenParam returns the value that the submitter gives a parameter.
func (v value) givenParam(name, text string, d declaration) any {
	at := v
	at.path = "--set " + yamlfile.Shown(name)

	if d.kind == typeString || text == "" {
		at.n = &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text, Line: v.n.Line, Column: v.n.Column}
		return at.allowed(d)
	}

	n, err := assignedNode(at.path, text)
	if err != nil {
		at.bad("must be a value as in a job file"+got(text), "put text that begins with a bracket in quotes")
		return nil
	}

	if n.Kind == yaml.ScalarNode {
		n = scalarNode(text)
	}

	n.Line, n.Column = v.n.Line, v.n.Column
	at.n = n

	return at.allowed(d)
}

// scalarNode is a text as it would be read in a file: a number, a boolean, or a text.
func scalarNode(text string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Value: text}

	switch tag := n.ShortTag(); tag {
	case "!!int", "!!float", "!!bool":
		n.Tag = tag
	default:
		n.Tag = "!!str"
	}

	return n
}

// allowed returns the value of a node if the declaration allows it.
func (v value) allowed(d declaration) any {
	before := v.r.Len()
	x := v.plain()

	if v.r.Len() > before {
		return nil
	}

	if text, isText := x.(string); isText && strings.ContainsRune(text, 0) {
		v.bad("must not contain a NUL character", "remove it")
		return nil
	}

	if !hasType(x, d.kind) {
		v.bad("must be "+article(d.kind)+", got "+yamlfile.Describe(v.n), "write a value of the type that the job file says")
		return nil
	}

	if len(d.oneOf) > 0 && !slices.ContainsFunc(d.oneOf, func(n *yaml.Node) bool { return n.Value == v.n.Value }) {
		var words []string
		for _, n := range d.oneOf {
			words = append(words, n.Value)
		}

		v.bad("must be one of "+strings.Join(words, ", ")+got(v.n.Value), "choose one of them")

		return nil
	}

	if f, ok := x.(float64); ok {
		v.within(f, d)
	}

	return x
}

// within checks the bounds of a number.
func (v value) within(f float64, d declaration) {
	write := func(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }

	switch {
	case d.min != nil && f < *d.min:
		v.bad("must be at least "+write(*d.min)+got(v.n.Value), "raise it")
	case d.max != nil && f > *d.max:
		v.bad("must be at most "+write(*d.max)+got(v.n.Value), "lower it")
	}
}

// hasType reports whether a value is of a type.
func hasType(x any, kind string) bool {
	switch v := x.(type) {
	case float64:
		return kind == "" || kind == typeNumber || kind == typeInteger && v == math.Trunc(v)
	case bool:
		return kind == "" || kind == typeBoolean
	case string:
		return kind == "" || kind == typeString
	}

	return kind == ""
}

func article(kind string) string {
	switch kind {
	case typeInteger:
		return "an integer"
	case typeString:
		return "a text"
	}

	return "a " + kind
}

// unusedParams reports values that were given to parameters that no job of the file has.
func (r *reader) unusedParams(drafts []*draft) {
	var known []string
	for _, d := range drafts {
		for name := range d.entry.Spec.Params {
			known = append(known, name)
		}
	}

	slices.Sort(known)

	var unknown []string
	for name := range r.opts.Params {
		if !r.setParams[name] {
			unknown = append(unknown, name)
		}
	}

	slices.Sort(unknown)

	for _, name := range unknown {
		remedy := "add it to params of the job file, as in params: {" + name + ": 0.1}"
		if closest := r.Finder.Closest(name, known); closest != "" {
			remedy = "did you mean " + closest + "?"
		} else if len(known) > 0 {
			remedy = "its parameters are " + strings.Join(slices.Compact(known), ", ")
		}

		r.Add(fault.New(fault.Invalid, "unknown_param", "the job file has no parameter %s", yamlfile.Shown(name)).
			WithField("params."+yamlfile.Shown(name)).WithRemedy("%s", remedy))
	}
}
