package spec

import (
	"encoding/json"
	"strings"

	"trainyard/internal/yamlfile"
)

// schema is a piece of JSON Schema.
type schema map[string]any

// Schema returns the JSON Schema (draft 2020-12) of one job, for editors. A
// file with several jobs has one document for each, and editors check each.
func Schema() []byte {
	top := mappingSchema(jobFields())
	top["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	top["title"] = "Trainyard job file"
	text, err := json.MarshalIndent(top, "", "  ")
	if err != nil {
		panic("spec: the schema is made of maps, lists and words and can always be written: " + err.Error())
	}

	return append(text, '\n')
}

func mappingSchema(fields []field) schema {
	properties := schema{}
	var must []string

	for _, f := range fields {
		var s schema
		switch {
		case f.list != nil:
			s = schema{"type": "array", "items": mappingSchema(f.fields), "maxItems": f.list.most}
		case f.fields != nil:
			s = mappingSchema(f.fields)
		default:
			s = f.kind.schema()
		}

		s["description"] = f.meaning()
		if f.def != "" {
			s["description"] = f.meaning() + " Default: " + f.def + "."
		}

		properties[f.name] = s

		if f.must {
			must = append(must, f.name)
		}
	}

	m := schema{"type": "object", "properties": properties, "additionalProperties": false}
	if must != nil {
		m["required"] = must
	}

	return m
}

func nameSchema() schema {
	return schema{"type": []string{"string", "number", "boolean"}, "pattern": "^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$"}
}

func needSchema() schema {
	s := nameSchema()
	s["pattern"] = "^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?(@last)?$"

	return s
}

func variableSchema() schema {
	return schema{"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$"}
}

// secretSchema is the name of a secret, with :file if the program gets it as a file.
func secretSchema() schema {
	return schema{"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*(:file)?$"}
}

// envSchema is a mapping of values, or a list of KEY=VALUE and KEY.
func envSchema() schema {
	return schema{
		"type":          []string{"object", "array"},
		"propertyNames": variableSchema(),
		"additionalProperties": schema{
			"type": []string{"string", "number", "boolean", "null"},
		},
		"items": schema{"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*(=|$)"},
	}
}

// oneOrMany is one item or a list of them.
func oneOrMany(item schema) schema {
	return schema{"anyOf": []schema{item, {"type": "array", "items": item, "maxItems": maxItems}}}
}

// meaning is what the field says, with what there is to know about it today.
func (f field) meaning() string {
	text := f.doc
	if f.later != "" {
		text += " Currently " + f.later
	}

	return text
}

// Reference returns the page of all fields, in Markdown.
func Reference() []byte {
	var out strings.Builder
	out.WriteString(`# The job file

A job file is YAML. Every field is optional except ` + "`run`" + `. Several jobs in one
file are separated by a line ` + "`---`" + `; each then has a name, and ` + "`needs`" + ` lists
the jobs that must succeed before it starts. Unknown and duplicate keys are errors.
Anchors, aliases and tags are not supported.

Amounts of memory have a unit, such as 24GB or 512MB; GB means GiB. Durations
have one too, such as 90s, 10m, 1h30m or 2d. A count may be a range, such as
1..8, or 2.. for two or more.

| field | value | example | default | meaning |
| --- | --- | --- | --- | --- |
`)

	referenceRows(&out, "", jobFields())

	return []byte(out.String())
}

func referenceRows(out *strings.Builder, prefix string, fields []field) {
	for _, f := range fields {
		path := yamlfile.Join(prefix, f.name)
		def := f.def
		if def == "" {
			def = "none"
		}

		if f.must {
			def = "required"
		}

		cells := []string{"`" + path + "`", f.words(), "`" + f.example + "`", def, f.meaning()}
		for i, c := range cells {
			cells[i] = strings.ReplaceAll(c, "|", `\|`)
		}

		out.WriteString("| " + strings.Join(cells, " | ") + " |\n")

		if f.list != nil {
			path += "[]"
		}

		referenceRows(out, path, f.fields)
	}
}
