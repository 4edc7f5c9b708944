package lines

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"trainyard/internal/agent/metrics/reading"
)

// Object is the reading of an object of names and numbers, with its epoch.
type Object struct {
	reading.Reading
	Epoch reading.Number
}

// maxDepth bounds how deep nested objects are read.
const maxDepth = 3

// FromJSON parses a line that is a JSON object. It returns false for an object without a metric,
// which is an ordinary log line.
func FromJSON(line []byte) (Object, bool) {
	var in map[string]json.RawMessage
	if reading.Unmarshal(line, &in) != nil {
		return Object{}, false
	}

	return FromMap(in)
}

// FromMap interprets a JSON object whose fields have been separated.
func FromMap(in map[string]json.RawMessage) (Object, bool) {
	var all fields
	all.flatten("", in, 0)
	return all.object()
}

// FromValues interprets names and numbers, such as those of a table row.
func FromValues(values []reading.Value) (Object, bool) { return fields(values).object() }

// fields are the numbers of an object with their names, sorted by name.
type fields []reading.Value

// flatten collects the numbers of an object. The name of an inner object becomes a prefix of the
// names in it, unless it is one of the wrappers.
func (f *fields) flatten(prefix string, in map[string]json.RawMessage, depth int) {
	names := make([]string, 0, len(in))
	for name := range in {
		names = append(names, name)
	}

	slices.Sort(names)
	for _, name := range names {
		raw := bytes.TrimSpace(in[name])
		if len(raw) == 0 || len(*f) > 500 {
			continue
		}

		switch raw[0] {
		case '{':
			var inner map[string]json.RawMessage
			if depth < maxDepth && json.Unmarshal(raw, &inner) == nil {
				under := prefix + name + "/"
				if isWrapper(name) {
					under = prefix
				}

				f.flatten(under, inner, depth+1)
			}
		case '"':
			var text string
			if json.Unmarshal(raw, &text) == nil {
				if v, ok := reading.Parse(text); ok {
					*f = append(*f, reading.Value{Name: prefix + name, Value: v})
				}
			}
		default:
			if v, ok := reading.Parse(string(raw)); ok {
				*f = append(*f, reading.Value{Name: prefix + name, Value: v})
			}
		}
	}
}

// object separates steps, totals and times from metrics by their names. The names for each are
// tried in order of reliability, so that global_step comes before step.
func (f fields) object() (Object, bool) {
	var o Object
	take := func(names []string) reading.Number {
		for _, name := range names {
			for _, v := range f {
				if strings.EqualFold(v.Name, name) {
					return reading.Known(v.Value)
				}
			}
		}

		return reading.Number{}
	}

	o.Step, o.Epoch, o.Total = take(stepNames), take(epochNames), take(totalNames)
	if at := take(timeNames); at.Known {
		o.At = unixSeconds(at.Value)
	}

	if o.Step.Known && (o.Step.Value < 0 || o.Step.Value != o.Step.Value) {
		o.Step = reading.Number{}
	}

	if o.Total.Known && !(o.Total.Value > 0) {
		o.Total = reading.Number{}
	}

	if o.Total.Known && o.Step.Known {
		o.Done = o.Step
	}

	metric := o.Step.Known || o.Epoch.Known
	for _, v := range f {
		if IsCount(v.Name) {
			continue
		}

		metric = metric || looksLikeMetric(v.Name)
		o.Add(v.Name, v.Value)
	}

	return o, metric && !o.Empty()
}

// unixSeconds converts a time given in seconds, milliseconds or nanoseconds; 0 if it is not a
// plausible time.
func unixSeconds(v float64) float64 {
	const from, to = 1e9, 1e10 // the years 2001 to 2286
	for _, unit := range []float64{1, 1e3, 1e6, 1e9} {
		if s := v / unit; s >= from && s < to {
			return s
		}
	}

	return 0
}

// fromDict parses a dictionary in the form in which Python prints it.
func fromDict(line string) (Object, bool) {
	if len(line) < 2 || line[len(line)-1] != '}' {
		return Object{}, false
	}

	var all fields

	rest := line[1 : len(line)-1]
	for rest != "" && len(all) < 500 {
		rest = strings.TrimLeft(rest, " ,")
		if rest == "" {
			break
		}

		quote := rest[0]
		if quote != '\'' && quote != '"' {
			return Object{}, false
		}

		end := strings.IndexByte(rest[1:], quote)
		if end < 0 {
			return Object{}, false
		}

		name := rest[1 : 1+end]

		rest = strings.TrimLeft(rest[2+end:], " ")
		if !strings.HasPrefix(rest, ":") {
			return Object{}, false
		}

		var value string
		value, rest = dictValue(strings.TrimLeft(rest[1:], " "))
		if v, ok := reading.Parse(value); ok {
			all = append(all, reading.Value{Name: name, Value: v})
		}
	}

	return all.object()
}

// dictValue splits the first value off a dictionary: a quoted text, a call such as tensor(0.5), or
// the text before the next comma.
func dictValue(rest string) (value, after string) {
	if rest == "" {
		return "", ""
	}

	if q := rest[0]; q == '\'' || q == '"' {
		if end := strings.IndexByte(rest[1:], q); end >= 0 {
			return rest[1 : 1+end], rest[2+end:]
		}

		return "", ""
	}

	end := strings.IndexByte(rest, ',')
	if open := strings.IndexByte(rest, '('); open >= 0 && (end < 0 || open < end) {
		shut := strings.IndexByte(rest, ')')
		if shut < open {
			return "", ""
		}

		inner, _, _ := strings.Cut(rest[open+1:shut], ",")

		return strings.TrimSpace(inner), rest[shut+1:]
	}

	if end < 0 {
		end = len(rest)
	}

	return strings.TrimSpace(rest[:end]), rest[end:]
}
