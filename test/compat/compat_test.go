package compat

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// small is a document with one of everything; the cases below edit it.
const small = `
paths:
  /jobs:
    get:
      parameters:
        - {name: state, in: query, schema: {type: string, enum: [running, ended]}}
        - {name: limit, in: query, schema: {type: integer, format: int64, maximum: 100}}
      responses:
        "200": {content: {application/json: {schema: {$ref: "#/components/schemas/JobList"}}}}
        "404": {content: {application/problem+json: {schema: {type: object}}}}
    post:
      requestBody:
        required: true
        content: {application/json: {schema: {$ref: "#/components/schemas/NewJob"}}}
      responses:
        "201": {content: {application/json: {schema: {$ref: "#/components/schemas/Job"}}}}
  /events:
    get:
      responses:
        "200":
          content:
            text/event-stream:
              schema:
                type: array
                items:
                  oneOf: [{type: object, properties: {kind: {type: string}}}, {properties: {at: {type: integer}}}]
components:
  schemas:
    JobList:
      type: object
      required: [jobs]
      properties:
        jobs: {type: array, items: {$ref: "#/components/schemas/Job"}}
    Job:
      type: object
      required: [id, state]
      properties:
        id: {type: string}
        state: {type: string, enum: [RUNNING, ENDED]}
        parent: {$ref: "#/components/schemas/Job"}
        labels: {type: object, additionalProperties: {type: string}}
        note: {type: [string, "null"]}
    NewJob:
      type: object
      additionalProperties: false
      required: [name]
      properties:
        name: {type: string, maxLength: 64}
        gpus: {type: integer, minimum: 0}
        when: {type: string}
`

func TestEditsOfADocument(t *testing.T) {
	t.Parallel()

	const (
		get  = "GET /jobs: "
		post = "POST /jobs: "
	)

	tests := []struct {
		name     string
		from, to string // an edit of the document
		want     string // part of a finding; "" if the edit breaks nothing
	}{
		{"nothing", "", "", ""},

		{"a path is gone", "  /events:\n", "  /events2:\n", "/events: the path is gone"},
		{"a method is gone", "    post:\n", "    put:\n", post + "the method is gone"},
		{"a new path", "components:", "  /nodes: {get: {responses: {}}}\ncomponents:", ""},
		{"a new method", "    post:\n", "    delete: {responses: {}}\n    post:\n", ""},

		{"a parameter is gone", "name: state", "name: status", get + "query parameter state is gone"},
		{"a parameter moves", "name: state, in: query", "name: state, in: header", get + "query parameter state is gone"},
		{
			"a parameter becomes required",
			"name: state, in: query",
			"name: state, required: true, in: query",
			get + "query parameter state is required now",
		},
		{
			"a new required parameter",
			"      parameters:\n",
			"      parameters:\n        - {name: who, in: query, required: true}\n",
			get + "query parameter who is required now",
		},
		{"a new optional parameter", "      parameters:\n", "      parameters:\n        - {name: who, in: query}\n", ""},
		{"a parameter's value is gone", "enum: [running, ended]", "enum: [running]", "the value ended is gone"},
		{"a parameter's new value", "enum: [running, ended]", "enum: [running, ended, queued]", ""},
		{"a parameter's type changes", "type: integer, format: int64", "type: string", "the type was integer and is string"},
		{"a parameter's format changes", "format: int64", "format: int32", "the format was int64 and is int32"},
		{"a lower limit", "maximum: 100", "maximum: 10", "maximum was 100 and is 10"},
		{"a higher limit", "maximum: 100", "maximum: 1000", ""},
		{"no limit", ", maximum: 100", "", ""},

		{"a response is gone", `"201"`, `"202"`, post + "response 201 is gone"},
		{"an error's status is gone", `"404"`, `"410"`, ""},
		{
			"a media type is gone",
			"application/json: {schema: {$ref: \"#/components/schemas/JobList\"",
			"text/csv: {schema: {$ref: \"#/components/schemas/JobList\"",
			"the media type application/json is gone",
		},
		{"a response's field is gone", "        id: {type: string}\n", "", "field id: it is gone"},
		{"a response's field is renamed", "        jobs: {", "        items: {", "field jobs: it is gone"},
		{
			"a response's new field",
			"        id: {type: string}\n",
			"        id: {type: string}\n        owner: {type: string}\n",
			"",
		},
		{"a response's field may be absent", "required: [id, state]", "required: [id]", "field state: it may be absent now"},
		{"a response's field is always there", "required: [id, state]", "required: [id, state, note]", ""},
		{
			"a response's type changes",
			"        id: {type: string}",
			"        id: {type: integer}",
			"field id: the type was string and is integer",
		},
		{
			"a response's type is wider",
			"        id: {type: string}",
			"        id: {type: [string, \"null\"]}",
			"field id: the type was string and is string or null",
		},
		{"a response's type is narrower", "type: [string, \"null\"]", "type: string", ""},
		{
			"a response's type is not said",
			"        id: {type: string}",
			"        id: {}",
			"field id: the type was string and is no longer stated",
		},
		{"a response's value is gone", "enum: [RUNNING, ENDED]", "enum: [RUNNING]", "field state: the value ENDED is gone"},
		{"a response's new value", "enum: [RUNNING, ENDED]", "enum: [RUNNING, ENDED, LOST]", ""},
		{
			"a map's type changes",
			"additionalProperties: {type: string}",
			"additionalProperties: {type: integer}",
			"field labels{}: the type was string and is integer",
		},
		{
			"a map becomes an object",
			"additionalProperties: {type: string}",
			"properties: {}",
			"field labels: it no longer has named entries",
		},
		{
			"a list becomes an object",
			"type: array, items: {$ref: \"#/components/schemas/Job\"}",
			"type: object",
			"field jobs: the type was array and is object",
		},
		{
			"a variant changes",
			"{kind: {type: string}}",
			"{kind: {type: integer}}",
			"variant 1 of oneOf is gone or has changed",
		},
		{"a variant is gone", ", {properties: {at: {type: integer}}}", "", "variant 2 of oneOf is gone"},
		{"a new variant", "oneOf: [", "oneOf: [{type: string}, ", ""},

		{"a request's field is gone", "        when: {type: string}\n", "", "field when: it is gone"},
		{"a request's new required field", "required: [name]", "required: [name, gpus]", "field gpus: it is required now"},
		{"a request's required field becomes optional", "required: [name]", "required: []", ""},
		{
			"a request's new optional field",
			"        when: {type: string}\n",
			"        when: {type: string}\n        who: {type: string}\n",
			"",
		},
		{
			"a request's type changes",
			"        when: {type: string}\n",
			"        when: {type: number}\n",
			"field when: the type was string and is number",
		},
		{"a request's type is wider", "        when: {type: string}\n", "        when: {type: [string, number]}\n", ""},
		{"a request's text is shorter", "maxLength: 64", "maxLength: 32", "maxLength was 64 and is 32"},
		{"a request's number is larger", "minimum: 0", "minimum: 1", "minimum was 0 and is 1"},
		{
			"a request's value is restricted",
			"        when: {type: string}\n",
			"        when: {type: string, enum: [now]}\n",
			"only certain values are allowed now",
		},
		{
			"a request's further fields are allowed",
			"NewJob:\n      type: object\n      additionalProperties: false\n",
			"NewJob:\n      type: object\n",
			"",
		},

		{"a schema is renamed", "schemas/NewJob\"}}}", "schemas/Job2\"}}}", post + "request: field name: it is gone"},
		{"a description", "        id: {type: string}", "        id: {type: string, description: what it is called}", ""},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			if !strings.Contains(small, tt.from) {
				t.Fatalf("the document has no %q", tt.from)
			}

			found, err := Breaks([]byte(small), []byte(strings.Replace(small, tt.from, tt.to, 1)))
			if err != nil {
				t.Fatal(err)
			}

			if tt.want == "" {
				if len(found) > 0 {
					t.Errorf("findings %q, want none", found)
				}

				return
			}

			if !slices.ContainsFunc(found, func(f string) bool { return strings.Contains(f, tt.want) }) {
				t.Errorf("findings %q, want one with %q", found, tt.want)
			}
		})
	}
}

func TestRequestsThatBecomeStricter(t *testing.T) {
	t.Parallel()

	tests := []struct{ name, from, to, before, after, want string }{
		{"a body", "        required: true\n", "", "optional", "required", "the request body is required now"},
		{"further fields", "      additionalProperties: false\n", "", "allowed", "refused", "further fields are refused now"},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			looser := strings.Replace(small, tt.from, tt.to, 1)
			found, err := Breaks([]byte(looser), []byte(small))
			if err != nil {
				t.Fatal(err)
			}

			if len(found) != 1 || !strings.Contains(found[0], tt.want) {
				t.Errorf("%s before, %s now: findings %q, want one with %q", tt.before, tt.after, found, tt.want)
			}
		})
	}
}

func TestBadDocumentsAreRefused(t *testing.T) {
	t.Parallel()

	for _, pair := range [][2]string{{"a: [", small}, {small, "a: ["}} {
		if _, err := Breaks([]byte(pair[0]), []byte(pair[1])); err == nil {
			t.Error("no error for a document that is not YAML")
		}
	}
}

// TestTheAPIBreaksNothing compares the API with the last release. After a deliberate break there is a new
// major version of the paths, not an edit of the released file.
func TestTheAPIBreaksNothing(t *testing.T) {
	t.Parallel()

	released, err := filepath.Glob("../../api/releases/*.yaml")
	if err != nil || len(released) == 0 {
		t.Fatalf("no released API in api/releases: %v", err)
	}

	last := slices.MaxFunc(released, func(a, b string) int { return slices.Compare(version(t, a), version(t, b)) })
	before, err := os.ReadFile(last)
	if err != nil {
		t.Fatal(err)
	}

	now, err := os.ReadFile("../../api/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}

	found, err := Breaks(before, now)
	if err != nil {
		t.Fatal(err)
	}

	for _, f := range found {
		t.Errorf("breaks clients of %s: %s", strings.TrimSuffix(filepath.Base(last), ".yaml"), f)
	}
}

// version returns the numbers of a file name such as 0.1.0.yaml, so that 0.10.0 is behind 0.9.0.
func version(t *testing.T, name string) []int {
	t.Helper()

	var numbers []int
	for part := range strings.SplitSeq(strings.TrimSuffix(filepath.Base(name), ".yaml"), ".") {
		n, err := strconv.Atoi(part)
		if err != nil {
			t.Fatalf("%s is not named by a version", name)
		}

		numbers = append(numbers, n)
	}

	return numbers
}
