package job

import (
	"maps"
	"math"
	"strconv"
	"strings"
)

// The references of a job file: {{lr}} stands for a parameter, {{array.value}} for something of the element.
//
// In env and params a reference is replaced by the text of its value. In run it becomes the expansion of a shell
// variable that has the value (Script), so that no shell reads a value as a part of the program, whatever is in it.

// ParamVar begins the names of the variables in which a program finds its parameters.
const ParamVar = "TRAINYARD_PARAM_"

// The variables in which a program finds its place in an array.
const (
	ArrayIDVar    = "TRAINYARD_ARRAY_ID"
	ArrayIndexVar = "TRAINYARD_ARRAY_INDEX"
	ArraySizeVar  = "TRAINYARD_ARRAY_SIZE"
	ArrayValueVar = "TRAINYARD_ARRAY_VALUE"
)

// arrayVars are the variables of the references that begin with "array.".
var arrayVars = map[string]string{
	"array.id": ArrayIDVar, "array.index": ArrayIndexVar, "array.size": ArraySizeVar, "array.value": ArrayValueVar,
}

// MaxParam is how many bytes the text of a parameter may have to be passed to the program.
const MaxParam = 4096

// Placeholder is a {{name}} in a text.
type Placeholder struct {
	Name     string
	From, To int  // where it is in the text
	Escaped  bool // a backslash before it says that it is meant as it stands; From is that of the backslash
}

// Placeholders lists the references of a text in their order. What has other characters between the braces is none.
func Placeholders(text string) []Placeholder {
	var list []Placeholder

	for at := 0; ; {
		open := strings.Index(text[at:], "{{")
		if open < 0 {
			return list
		}

		from := at + open
		end := strings.Index(text[from:], "}}")
		if end < 0 {
			return list
		}

		name := strings.Trim(text[from+2:from+end], " ")
		if !placeholderName(name) {
			at = from + 1
			continue
		}

		at = from + end + 2
		r := Placeholder{Name: name, From: from, To: at}
		if from > 0 && text[from-1] == '\\' {
			r.From, r.Escaped = from-1, true
		}

		list = append(list, r)
	}
}

// placeholderName reports whether a text may be the name of a reference: that of a parameter, or array.something.
func placeholderName(name string) bool {
	return ParamName(strings.TrimPrefix(name, "array."))
}

// ParamName reports whether a parameter of this name can be referred to: letters, digits and '_', no digit first.
func ParamName(name string) bool {
	for i, c := range []byte(name) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}

	return name != ""
}

// Variable returns the environment variable with the value of a reference.
func Variable(name string) (variable string, known bool) {
	if strings.HasPrefix(name, "array.") {
		variable, known = arrayVars[name]
		return variable, known
	}

	return ParamVar + name, true
}

// ParamText writes the value of a parameter as it is passed to the program; false for one that is not a number, a text
// or a boolean, or that is too long for that.
func ParamText(value any) (string, bool) {
	switch v := value.(type) {
	case string:
		return v, len(v) <= MaxParam && !strings.ContainsRune(v, 0)
	case bool:
		return strconv.FormatBool(v), true
	case int:
		return strconv.Itoa(v), true
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1e15 {
			return strconv.FormatFloat(v, 'f', 0, 64), true
		}

		return strconv.FormatFloat(v, 'g', -1, 64), true
	}

	return "", false
}

// fill replaces the references of a text by what value returns for them, and takes the backslash off those that are
// meant as they stand. A reference without a value stays.
func fill(text string, value func(r Placeholder) (string, bool)) string {
	list := Placeholders(text)
	if len(list) == 0 {
		return text
	}

	var out strings.Builder
	last := 0

	for _, r := range list {
		out.WriteString(text[last:r.From])
		last = r.To

		if r.Escaped {
			out.WriteString(text[r.From+1 : r.To])
			continue
		}

		filled, known := value(r)
		if !known {
			filled = text[r.From:r.To]
		}

		out.WriteString(filled)
	}

	out.WriteString(text[last:])

	return out.String()
}

// place returns the values of the references to the array of a job, nil if it is in none.
func (j *Job) place() map[string]string {
	value, size, ok := j.Element()
	if !ok {
		return nil
	}

	return map[string]string{
		"array.id": string(j.Array), "array.index": strconv.Itoa(j.Index), "array.size": strconv.Itoa(size),
		"array.value": value,
	}
}

// filledParams returns the parameters of a job. Those of an element may refer to its array: one that is such a
// reference alone is a number if the value is one.
func (j *Job) filledParams(place map[string]string) map[string]any {
	if place == nil || len(j.Spec.Params) == 0 {
		return j.Spec.Params
	}

	filled := maps.Clone(j.Spec.Params)
	for name, value := range filled {
		text, ok := value.(string)
		list := Placeholders(text)
		if !ok || len(list) == 0 {
			continue
		}

		whole := fill(text, func(r Placeholder) (string, bool) {
			v, known := place[r.Name]
			return v, known
		})

		filled[name] = whole
		n, err := strconv.ParseFloat(whole, 64)
		if err == nil && list[0].From == 0 && list[0].To == len(text) && !math.IsNaN(n) && !math.IsInf(n, 0) {
			filled[name] = n
		}
	}

	return filled
}

// lookup returns the values of references.
func lookup(params map[string]any, place map[string]string) func(Placeholder) (string, bool) {
	return func(r Placeholder) (string, bool) {
		if v, ok := place[r.Name]; ok {
			return v, true
		}

		v, ok := params[r.Name]
		if !ok {
			return "", false
		}

		return ParamText(v)
	}
}

// Resolved returns the spec of a job with the values of its references in params, env and run, as people and forecasts
// see it. What a shell is given is Script.
func (j *Job) Resolved() *Spec {
	s := j.Spec
	if s.Array == nil && len(s.Params) == 0 && !strings.Contains(s.Run, "{{") {
		return s
	}

	place := j.place()
	resolved := *s
	resolved.Params = j.filledParams(place)
	resolved.Env = fillEnv(s.Env, lookup(resolved.Params, place))
	resolved.Run = fill(s.Run, lookup(resolved.Params, place))

	return &resolved
}

// LaunchEnv returns the environment of a job's program: what its file gives, its parameters and its place in its array.
func (j *Job) LaunchEnv() map[string]string {
	s := j.Spec
	place := j.place()
	params := j.filledParams(place)

	env := fillEnv(s.Env, lookup(params, place))
	if len(place)+len(params) == 0 {
		return env
	}

	env = maps.Clone(env)
	if env == nil {
		env = make(map[string]string, len(place)+len(params))
	}

	for name, value := range place {
		env[arrayVars[name]] = value
	}

	for name, value := range params {
		if text, ok := ParamText(value); ok && ParamName(name) {
			env[ParamVar+name] = text
		}
	}

	return env
}

func fillEnv(env map[string]string, value func(Placeholder) (string, bool)) map[string]string {
	var filled map[string]string

	for name, text := range env {
		next := fill(text, value)
		if next == text {
			continue
		}

		if filled == nil {
			filled = maps.Clone(env)
		}

		filled[name] = next
	}

	if filled == nil {
		return env
	}

	return filled
}
