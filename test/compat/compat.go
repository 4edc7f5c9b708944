// Package compat says whether a change of the API breaks programs that were written for the last release.
//
// It compares two OpenAPI documents: what was released, in api/releases, and what the code describes
// now, in api/openapi.yaml. Its test fails on whatever a client of the release would notice. New paths,
// fields, optional parameters and enum values are allowed: clients must ignore what they do not know.
package compat

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// object is a part of an OpenAPI document.
type object = map[string]any

// Breaks returns what a client of the old document would notice in the new one, in order of paths.
func Breaks(oldText, newText []byte) ([]string, error) {
	var before, now object
	if err := yaml.Unmarshal(oldText, &before); err != nil {
		return nil, fmt.Errorf("read the released API: %w", err)
	}

	if err := yaml.Unmarshal(newText, &now); err != nil {
		return nil, fmt.Errorf("read the API: %w", err)
	}

	c := &comparison{before: before, now: now}
	c.paths(child(before, "paths"), child(now, "paths"))

	slices.Sort(c.found)

	return slices.Compact(c.found), nil
}

// side says who sends a value, which decides what may change: a request may be asked for less,
// a response may promise more.
type side int

const (
	request side = iota
	response
)

// comparison collects what breaks.
type comparison struct {
	before, now object
	found       []string
	open        []string // pairs of references that are being compared: schemas refer to themselves
}

func (c *comparison) add(where, format string, args ...any) {
	c.found = append(c.found, where+": "+fmt.Sprintf(format, args...))
}

func (c *comparison) paths(before, now object) {
	for path, item := range before {
		if _, ok := now[path]; !ok {
			c.add(path, "the path is gone")
			continue
		}

		operations := child(now, path)
		for method, operation := range asObject(item) {
			where := strings.ToUpper(method) + " " + path
			if _, ok := operations[method]; !ok {
				c.add(where, "the method is gone")
				continue
			}

			c.operation(where, asObject(operation), child(operations, method))
		}
	}
}

func (c *comparison) operation(where string, before, now object) {
	c.parameters(where, parameters(before), parameters(now))
	c.requestBody(where, child(before, "requestBody"), child(now, "requestBody"))

	responses := child(now, "responses")
	for status, reply := range child(before, "responses") {
		if _, ok := responses[status]; !ok {
			if strings.HasPrefix(status, "2") {
				c.add(where, "response %s is gone", status)
			}

			continue
		}

		c.contents(where+": response "+status, asObject(reply), child(responses, status), response)
	}
}

func (c *comparison) parameters(where string, before, now map[string]object) {
	for name, old := range before {
		if _, ok := now[name]; !ok {
			c.add(where, "%s is gone", name)
			continue
		}

		c.schema(where+": "+name, child(old, "schema"), child(now[name], "schema"), request)
	}

	for name, parameter := range now {
		if parameter["required"] == true && before[name]["required"] != true {
			c.add(where, "%s is required now", name)
		}
	}
}

// parameters returns the parameters of an operation by place and name.
func parameters(operation object) map[string]object {
	all := map[string]object{}
	for _, p := range asList(operation["parameters"]) {
		parameter := asObject(p)
		all[fmt.Sprintf("%v parameter %v", parameter["in"], parameter["name"])] = parameter
	}

	return all
}

func (c *comparison) requestBody(where string, before, now object) {
	if before == nil {
		if now["required"] == true {
			c.add(where, "a request body is required now")
		}

		return
	}

	if now == nil {
		c.add(where, "the request body is gone")
		return
	}

	if now["required"] == true && before["required"] != true {
		c.add(where, "the request body is required now")
	}

	c.contents(where+": request", before, now, request)
}

// contents compares the schemas of all media types.
func (c *comparison) contents(where string, before, now object, s side) {
	types := child(now, "content")
	for media, content := range child(before, "content") {
		if _, ok := types[media]; !ok {
			c.add(where, "the media type %s is gone", media)
			continue
		}

		c.schema(where, child(asObject(content), "schema"), child(child(types, media), "schema"), s)
	}
}

// schema compares what a value may be.
func (c *comparison) schema(where string, before, now object, s side) {
	pair := fmt.Sprintf("%v %v %d", before["$ref"], now["$ref"], s)

	if before["$ref"] != nil || now["$ref"] != nil {
		if slices.Contains(c.open, pair) {
			return
		}

		c.open = append(c.open, pair)
		defer func() { c.open = c.open[:len(c.open)-1] }()
	}

	before = resolve(c.before, before)
	now = resolve(c.now, now)

	if len(before) == 0 {
		return // it said nothing, so nothing was promised
	}

	c.types(where, before, now, s)
	c.enum(where, before, now)
	c.limits(where, before, now, s)
	c.fields(where, before, now, s)
	c.variants(where, before, now, s)

	if before["items"] != nil {
		c.schema(where+"[]", child(before, "items"), child(now, "items"), s)
	}
}

// types: a request may allow further types, a response may leave some out.
func (c *comparison) types(where string, before, now object, s side) {
	wide, narrow := typesOf(before), typesOf(now)
	if s == request {
		wide, narrow = narrow, wide
	}

	for _, t := range narrow {
		if len(wide) > 0 && !slices.Contains(wide, t) || len(wide) == 0 && s == response {
			c.add(where, "the type was %s and is %s", strings.Join(typesOf(before), " or "), strings.Join(typesOf(now), " or "))
			break
		}
	}

	if s == response && len(typesOf(before)) > 0 && len(typesOf(now)) == 0 {
		c.add(where, "the type was %s and is no longer stated", strings.Join(typesOf(before), " or "))
	}

	if before["format"] != now["format"] {
		c.add(where, "the format was %v and is %v", orNone(before["format"]), orNone(now["format"]))
	}
}

// typesOf returns the types of a schema: one, or several since OpenAPI 3.1.
func typesOf(schema object) []string {
	if t, ok := schema["type"].(string); ok {
		return []string{t}
	}

	var types []string
	for _, t := range asList(schema["type"]) {
		types = append(types, fmt.Sprint(t))
	}

	return types
}

// enum: no value may disappear. Requests that send it would be refused, and programs that wait for it in a
// response would wait for ever.
func (c *comparison) enum(where string, before, now object) {
	old, values := asList(before["enum"]), asList(now["enum"])
	for _, v := range old {
		if len(values) > 0 && !slices.Contains(values, v) {
			c.add(where, "the value %v is gone", v)
		}
	}

	if len(old) == 0 && len(values) > 0 {
		c.add(where, "only certain values are allowed now: %v", values)
	}
}

// limits of requests may be widened only.
func (c *comparison) limits(where string, before, now object, s side) {
	if s != request {
		return
	}

	for _, name := range []string{"maximum", "maxLength", "maxItems", "minimum", "minLength", "minItems"} {
		limit, limited := asNumber(now[name])
		old, wasLimited := asNumber(before[name])

		upper := strings.HasPrefix(name, "max")

		switch {
		case !limited:
		case !wasLimited && !upper && limit <= 0:
		case !wasLimited, upper && limit < old, !upper && limit > old:
			c.add(where, "%s was %v and is %v", name, orNone(before[name]), now[name])
		}
	}
}

// fields compares the fields of an object, and the values of a map.
func (c *comparison) fields(where string, before, now object, s side) {
	fields := child(now, "properties")
	for name, field := range child(before, "properties") {
		at := where + ": field " + name
		if _, ok := fields[name]; !ok {
			c.add(at, "it is gone")
			continue
		}

		c.schema(at, asObject(field), child(fields, name), s)
	}

	required, wasRequired := asList(now["required"]), asList(before["required"])

	switch s {
	case request:
		for _, name := range required {
			if !slices.Contains(wasRequired, name) {
				c.add(where+": field "+fmt.Sprint(name), "it is required now")
			}
		}
	case response:
		for _, name := range wasRequired {
			if _, here := fields[fmt.Sprint(name)]; here && !slices.Contains(required, name) {
				c.add(where+": field "+fmt.Sprint(name), "it may be absent now")
			}
		}
	}

	values, isMap := before["additionalProperties"].(object)

	nowValues, nowMap := now["additionalProperties"].(object)
	switch {
	case isMap && nowMap:
		c.schema(where+"{}", values, nowValues, s)
	case isMap:
		c.add(where, "it no longer has named entries")
	case s == request && before["additionalProperties"] != false && now["additionalProperties"] == false:
		c.add(where, "further fields are refused now")
	}
}

// variants: each of the old ones must have a new one that breaks nothing.
func (c *comparison) variants(where string, before, now object, s side) {
	for _, kind := range []string{"oneOf", "anyOf", "allOf"} {
		for i, old := range asList(before[kind]) {
			fits := slices.ContainsFunc(asList(now[kind]), func(variant any) bool {
				trial := &comparison{before: c.before, now: c.now, open: slices.Clone(c.open)}
				trial.schema(where, asObject(old), asObject(variant), s)

				return len(trial.found) == 0
			})

			if !fits {
				c.add(where, "variant %d of %s is gone or has changed", i+1, kind)
			}
		}
	}
}

// resolve follows references into the document's components.
func resolve(document, schema object) object {
	for range 10 {
		ref, ok := schema["$ref"].(string)
		if !ok {
			return schema
		}

		schema = document
		for name := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
			schema = child(schema, name)
		}
	}

	return schema
}

func child(o object, name string) object { return asObject(o[name]) }

// asObject returns nil for what is no object. Status codes are the only keys that are no text.
func asObject(v any) object {
	switch o := v.(type) {
	case object:
		return o
	case map[any]any:
		named := object{}
		for key, value := range maps.All(o) {
			named[fmt.Sprint(key)] = value
		}

		return named
	default:
		return nil
	}
}

func asList(v any) []any {
	list, _ := v.([]any)

	return list
}

func asNumber(v any) (float64, bool) {
	switch n := v.(type) {
	case int:
		return float64(n), true
	case uint64:
		return float64(n), true
	case float64:
		return n, true
	default:
		return 0, false
	}
}

func orNone(v any) any {
	if v == nil {
		return "none"
	}

	return v
}
