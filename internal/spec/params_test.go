package spec

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParametersAreGivenOnSubmission(t *testing.T) {
	t.Parallel()

	const file = `run: train --lr {{lr}} --opt {{opt}} --data {{data}}
params:
  lr: 0.1
  steps: {type: integer, default: 100, min: 1}
  opt: {type: string, one_of: [adam, sgd], default: adam}
  fast: false
  name: base
  data: ~
  layers: [1, 2]
`

	for _, tt := range []struct {
		name  string
		given map[string]string
		want  map[string]any // beside the defaults
		err   string
	}{
		{"what has no default", map[string]string{"data": "cifar"}, map[string]any{"data": "cifar"}, ""},
		{
			"values of the types of the file",
			map[string]string{"data": "3", "lr": "1e-3", "steps": "5", "opt": "sgd", "fast": "true", "name": "1", "layers": "[3]"},
			map[string]any{
				"data": 3.0, "lr": 0.001, "steps": 5.0, "opt": "sgd", "fast": true, "name": "1", "layers": []any{3.0},
			},
			"",
		},
		{
			"any text for a text",
			map[string]string{"data": "a b", "name": "[x\n$(y) \"'"},
			map[string]any{"data": "a b", "name": "[x\n$(y) \"'"}, "",
		},
		{"an empty text", map[string]string{"data": "x", "name": ""}, map[string]any{"data": "x", "name": ""}, ""},
		{"nothing", nil, nil, "needs a value for {{data}}"},
		{"a text for a number", map[string]string{"data": "x", "lr": "fast"}, nil, "--set lr: must be a number, got"},
		{"a fraction for an integer", map[string]string{"data": "x", "steps": "1.5"}, nil, "--set steps: must be an integer"},
		{"less than the least", map[string]string{"data": "x", "steps": "0"}, nil, "--set steps: must be at least 1, got 0"},
		{"none of the choices", map[string]string{"data": "x", "opt": "lion"}, nil, "must be one of adam, sgd"},
		{"a word for a boolean", map[string]string{"data": "x", "fast": "yes"}, nil, "--set fast: must be a boolean"},
		{"an unknown one", map[string]string{"data": "x", "setps": "3"}, nil, "no parameter setps (did you mean steps?)"},
		{"nothing for a number", map[string]string{"data": "x", "lr": ""}, nil, "--set lr: must be a number"},
	} {
		parsed, err := Parse([]byte(file), Options{Params: tt.given})
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s: %v, want %s", tt.name, err, tt.err)
			}

			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}

		want := map[string]any{
			"lr": 0.1, "steps": 100.0, "opt": "adam", "fast": false, "name": "base", "layers": []any{1.0, 2.0},
		}
		maps.Copy(want, tt.want)

		got := parsed.Jobs[0].Spec
		if diff := cmp.Diff(want, got.Params); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", tt.name, diff)
		}

		// What is stored and submitted again has the values.
		text, err := Render(got)
		if err != nil {
			t.Fatal(err)
		}

		again, err := Parse(text, Options{})
		if err != nil {
			t.Errorf("%s: submitted again: %v", tt.name, err)
			continue
		}
		if diff := cmp.Diff(got, again.Jobs[0].Spec); diff != "" {
			t.Errorf("%s: submitted again (-was +is)\n%s", tt.name, diff)
		}
	}
}

func TestAFileIsCheckedWithoutItsParameters(t *testing.T) {
	t.Parallel()

	text := "run: train {{lr}} {{n}}\nparams: {lr: ~, n: {type: integer}}\n"
	if _, err := Parse([]byte(text), Options{AnyParams: true}); err != nil {
		t.Error(err)
	}
}

func TestBracesOfOtherLanguagesAreLeftAlone(t *testing.T) {
	t.Parallel()

	for _, text := range []string{
		"run: docker ps --format '{{.Names}}'", `run: 'echo \{{lr}}'`, "run: 'echo {{ x | y }} {{}} {{ a.b.c }} }}{{'",
		"run: a\nsetup: 'jinja {{ other }}'", "run: a\nparams: {prompt: 'answer {{question}}'}",
	} {
		if _, err := Parse([]byte(text), Options{}); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}
