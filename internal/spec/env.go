package spec

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"trainyard/internal/job"
)

// reserved is how the names begin that the yard sets itself.
const reserved = "TRAINYARD_"

// envKind reads environment variables, from a mapping or from a list of KEY=VALUE.
func envKind() kind {
	return kind{
		words:  "a mapping or a list of KEY=VALUE",
		schema: envSchema,
		read:   readEnv,
		write: func(s *job.Spec) (*yaml.Node, error) {
			if len(s.Env) == 0 {
				return nil, nil
			}
			return sortedNode(s.Env, func(value string) (*yaml.Node, error) { return stringNode(value) })
		},
	}
}

// badVariable says what is wrong with the name of an environment variable.
func badVariable(name string) (string, string) {
	for i, c := range []byte(name) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return "is no name of a variable", "use letters, digits and '_', with no digit first"
		}
	}
	switch {
	case name == "":
		return "is no name of a variable", "write KEY=VALUE"
	case strings.HasPrefix(name, reserved):
		return "is a name that the yard sets itself", "use a name that does not begin with " + reserved
	}
	return "", ""
}

func readEnv(v value) {
	switch v.n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(v.n.Content); i += 2 {
			v.variable(v.n.Content[i], v.n.Content[i].Value, v.n.Content[i+1])
		}
	case yaml.SequenceNode:
		for _, n := range v.n.Content {
			if n.Kind != yaml.ScalarNode || isNull(n) {
				v.r.fail(n, "wrong_type", v.path, "an entry of the list must be KEY=VALUE, not "+describe(n),
					"write - KEY=VALUE, or KEY: VALUE without the dashes")
				continue
			}
			name, text, assigned := strings.Cut(n.Value, "=")
			if !assigned {
				v.variable(n, name, nil)
				continue
			}
			v.variable(n, name, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text, Line: n.Line, Column: n.Column})
		}
	default:
		v.wrongType()
	}
	total := 0
	for name, text := range v.d.entry.Spec.Env {
		total += len(name) + len(text)
	}
	if total > maxEnv {
		v.fail("too_large", fmt.Sprintf("the variables have %d bytes together and may have %d", total, maxEnv),
			"put long values into files of the working directory")
	}
}

// variable takes one variable; without a value it comes from the environment.
func (v value) variable(at *yaml.Node, name string, val *yaml.Node) {
	path := join(v.path, shown(name))
	if problem, remedy := badVariable(name); problem != "" {
		v.r.fail(at, "bad_value", v.path, quote(name)+" "+problem, remedy)
		return
	}
	env := &v.d.entry.Spec.Env
	if *env == nil {
		*env = map[string]string{}
	}
	if _, twice := (*env)[name]; twice && v.n.Kind == yaml.SequenceNode {
		v.r.fail(at, "duplicate_key", path, "the variable is given twice", "take one of them out")
		return
	}
	switch {
	case val == nil || isNull(val):
		(*env)[name] = v.required(at, path, name)
	case val.Kind != yaml.ScalarNode:
		v.r.fail(val, "wrong_type", path, "must be a text, not "+describe(val), "put the value in quotes")
	case strings.ContainsRune(val.Value, 0):
		v.r.fail(val, "bad_value", path, "holds a NUL character", "take it out")
	default:
		(*env)[name] = val.Value
	}
}

// required returns the value of a variable that the file leaves to the one who submits.
func (v value) required(at *yaml.Node, path, name string) string {
	if !slices.Contains(v.d.entry.Required, name) {
		v.d.entry.Required = append(v.d.entry.Required, name)
	}
	if v.r.opts.Env != nil {
		if text, ok := v.r.opts.Env(name); ok {
			if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
				v.r.fail(at, "bad_value", path, "its value in your environment is not UTF-8 text", "set it to text")
			}
			return text
		}
	}
	v.r.fail(at, "missing_env", path, "the job needs the variable "+name+", and it is not set",
		"set it where you submit, as in export "+name+"=…, or write its value here")
	return ""
}
