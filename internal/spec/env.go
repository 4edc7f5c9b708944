package spec

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"trainyard/internal/job"
	"trainyard/internal/yamlfile"
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

// badVariable says what the name of an environment variable must be, if this one is not.
func badVariable(name string) (string, string) {
	for i, c := range []byte(name) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return "must be letters, digits and '_', and must not start with a digit", "write it as in LEARNING_RATE"
		}
	}

	switch {
	case name == "":
		return "must be a variable name", "write KEY=VALUE"
	case strings.HasPrefix(name, reserved):
		return "must not start with " + reserved + ", which is reserved", "use another name"
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
			if n.Kind != yaml.ScalarNode || yamlfile.IsNull(n) {
				v.r.Fail(n, "wrong_type", v.path, "must be a list of KEY=VALUE, got "+yamlfile.Describe(n),
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
		v.fail("too_large", fmt.Sprintf("must have at most %d bytes in total, got %d", maxEnv, total),
			"put long values into files of the working directory")
	}
}

// variable takes one variable; without a value it comes from the environment.
func (v value) variable(at *yaml.Node, name string, val *yaml.Node) {
	path := yamlfile.Join(v.path, yamlfile.Shown(name))
	if problem, remedy := badVariable(name); problem != "" {
		v.r.Fail(at, "bad_value", v.path, problem+got(name), remedy)
		return
	}

	env := &v.d.entry.Spec.Env
	if *env == nil {
		*env = map[string]string{}
	}

	if _, twice := (*env)[name]; twice && v.n.Kind == yaml.SequenceNode {
		v.r.Fail(at, "duplicate_key", path, "must be given once, got it twice", "remove one of them")
		return
	}

	switch {
	case val == nil || yamlfile.IsNull(val):
		(*env)[name] = v.required(at, path, name)
	case val.Kind != yaml.ScalarNode:
		v.r.Fail(val, "wrong_type", path, "must be a string, got "+yamlfile.Describe(val), "put the value in quotes")
	case strings.ContainsRune(val.Value, 0):
		v.r.Fail(val, "bad_value", path, "must not contain a NUL character", "remove it")
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
				v.r.Fail(
					at,
					"bad_value",
					path,
					"must be UTF-8 text, got other bytes from your environment",
					"set the variable to text",
				)
			}

			return text
		}
	}

	v.r.Fail(at, "missing_env", path, "must be set in your environment, got no variable "+name,
		"set it where you submit, as in export "+name+"=…, or write its value here")

	return ""
}
