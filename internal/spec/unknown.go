package spec

import (
	"slices"
	"strings"

	"trainyard/internal/yamlfile"
)

// intended returns the field that was meant by a key that is not known in its place,
// "" if there is none, and what to write instead.
func (r *reader) intended(prefix string, here []field, key string) (meant, remedy string) {
	table := r.fields
	all := "the keys here are " + strings.Join(names(here), ", ")
	if len(key) > 40 {
		return "", all
	}
	if prefix == "" && slices.Contains([]string{"jobs", "tasks"}, plainKey(key)) {
		return "run", "write several jobs one after another, with a line --- between them"
	}
	if f := called(here, key); f != nil {
		return yamlfile.Join(prefix, f.name), "did you mean " + yamlfile.Join(prefix, f.name) + "?"
	}
	if f := called(table, key); f != nil && prefix != "" {
		return f.name, "write " + f.name + " at the top, not inside " + prefix
	}
	if group, name := within(table, "", prefix, key); group != "" {
		return yamlfile.Join(group, name), "write " + name + " inside " + group
	}
	if closest := r.Finder.Closest(key, names(here)); closest != "" {
		return yamlfile.Join(prefix, closest), "did you mean " + yamlfile.Join(prefix, closest) + "?"
	}

	return "", all
}

// within finds the mapping that has a field called by this key, other than here, and the field's name.
func within(fields []field, prefix, here, key string) (group, name string) {
	for _, f := range fields {
		path := yamlfile.Join(prefix, f.name)
		if inside := called(f.fields, key); inside != nil && path != here {
			return path, inside.name
		}

		group, name = within(f.fields, path, here, key)
		if group != "" {
			return group, name
		}
	}

	return "", ""
}

// called finds the field that is meant by a key: by its name written another
// way, as in maxDuration, or by what other tools call it.
func called(fields []field, key string) *field {
	plain := plainKey(key)
	for _, other := range []bool{false, true} {
		for i, f := range fields {
			if !other && plainKey(f.name) == plain {
				return &fields[i]
			}
			if other && slices.ContainsFunc(f.also, func(a string) bool { return plainKey(a) == plain }) {
				return &fields[i]
			}
		}
	}

	return nil
}

// marks are what a key may be written with in other places.
var marks = strings.NewReplacer("_", "", "-", "", " ", "")

// plainKey is a key without case and marks, so that max-duration, maxDuration and max_duration are the same.
func plainKey(key string) string {
	return marks.Replace(strings.ToLower(key))
}

func names(fields []field) []string {
	var names []string
	for _, f := range fields {
		names = append(names, f.name)
	}

	return names
}
