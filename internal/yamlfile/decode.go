package yamlfile

import (
	"encoding"
	"fmt"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

// File is a decoded file, to which the caller may add what else is wrong with its values.
type File struct {
	mistakes Mistakes
	places   map[string]*yaml.Node // by path, as in nodes[1].class
}

// Decode reads one document into a struct, by its yaml tags. Every unknown key, wrong type and bad value is
// kept as a mistake; the struct is filled only if there is none. The caller asks Err.
func Decode(text []byte, into any) *File {
	f := &File{places: map[string]*yaml.Node{}}

	roots, complete := f.mistakes.Documents(text, 2)
	switch {
	case !complete:
		return f
	case len(roots) == 0 || IsNull(roots[0]):
		f.mistakes.Fail(nil, "empty_file", "", "the file is empty", "write at least one line of key: value")
		return f
	case len(roots) > 1:
		f.mistakes.Fail(
			roots[1],
			"too_many_documents",
			"",
			"the file must have one document, got several",
			"remove the line ---",
		)

		return f
	}

	if !f.mistakes.Structure(roots[0]) {
		return f
	}

	f.check(roots[0], reflect.TypeOf(into).Elem(), "")

	if f.mistakes.Len() > 0 {
		return f
	}

	if err := roots[0].Decode(into); err != nil {
		f.mistakes.Fail(roots[0], "bad_value", "", err.Error(), "check the values of the file")
	}

	return f
}

// Given reports whether the file has a value at a path, such as nodes[1].class.
func (f *File) Given(path string) bool { return f.places[path] != nil }

// Fail keeps a mistake in the value at a path, such as nodes[1].class.
func (f *File) Fail(path, message, remedy string) {
	f.mistakes.Fail(f.places[path], "bad_value", path, message, remedy)
}

// Err returns all mistakes in the order of the file, nil if there are none.
func (f *File) Err() error { return f.mistakes.Sorted().OrNil() }

// check compares a node with the type that it is decoded into.
func (f *File) check(n *yaml.Node, t reflect.Type, path string) {
	f.places[path] = n

	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}

	switch {
	case IsNull(n) && path != "": // the zero value
	case reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()):
		f.scalar(n, t, path)
	case t.Kind() == reflect.Struct:
		f.structure(n, t, path)
	case t.Kind() == reflect.Slice:
		if f.is(n, yaml.SequenceNode, "a list", path) {
			for i, item := range n.Content {
				f.check(item, t.Elem(), fmt.Sprintf("%s[%d]", path, i))
			}
		}
	case t.Kind() == reflect.Map:
		if f.is(n, yaml.MappingNode, "a mapping", path) {
			for i := 0; i+1 < len(n.Content); i += 2 {
				f.check(n.Content[i+1], t.Elem(), Join(path, Shown(n.Content[i].Value)))
			}
		}
	default:
		f.scalar(n, t, path)
	}
}

// is reports whether a node is of a kind, and keeps the mistake if not.
func (f *File) is(n *yaml.Node, kind yaml.Kind, words, path string) bool {
	if n.Kind == kind {
		return true
	}

	f.mistakes.Fail(n, "wrong_type", path, "must be "+words+", got "+Describe(n), "see the documentation of this file")

	return false
}

// structure checks the keys of a mapping.
func (f *File) structure(n *yaml.Node, t reflect.Type, path string) {
	if !f.is(n, yaml.MappingNode, "a mapping", path) {
		return
	}

	types := map[string]reflect.Type{}
	var names []string

	for field := range t.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		if !field.IsExported() || name == "-" {
			continue
		}

		if name == "" {
			name = strings.ToLower(field.Name)
		}

		types[name] = field.Type
		names = append(names, name)
	}

	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		of, known := types[key.Value]
		switch {
		case known:
			f.check(n.Content[i+1], of, Join(path, key.Value))
		case f.mistakes.Full():
			f.mistakes.Skip()
		default:
			remedy := f.mistakes.Finder.DidYouMean(key.Value, names)
			f.mistakes.Fail(key, "unknown_key", Join(path, Shown(key.Value)), "unknown key", remedy)
		}
	}
}

// scalar checks that one word can be read as its type.
func (f *File) scalar(n *yaml.Node, t reflect.Type, path string) {
	words := map[reflect.Kind]string{
		reflect.Bool: "true or false", reflect.String: "a string", reflect.Float64: "a number",
		reflect.Int: "an integer", reflect.Int64: "an integer", reflect.Uint64: "an integer of at least 0",
	}[t.Kind()]

	if !f.is(n, yaml.ScalarNode, orWord(words), path) {
		return
	}

	v := reflect.New(t).Interface()
	if text, ok := v.(encoding.TextUnmarshaler); ok {
		if err := text.UnmarshalText([]byte(n.Value)); err != nil {
			f.mistakes.Fail(n, "bad_value", path, err.Error(), "correct the value")
		}

		return
	}

	if err := n.Decode(v); err != nil {
		f.mistakes.Fail(n, "bad_value", path, "must be "+orWord(words)+", got "+Quote(n.Value), "correct the value")
	}
}

// orWord is for types that have no name of their own.
func orWord(words string) string {
	if words == "" {
		return "one word"
	}

	return words
}
