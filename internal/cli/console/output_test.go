package console

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

func TestYAMLSaysTheSameAsJSON(t *testing.T) {
	t.Parallel()
	value := map[string]any{
		"number-like": "123",
		"bool-like":   "yes",
		"null-like":   "null",
		"empty":       "",
		"lines":       "a\nb\n",
		"quote":       `it's "so"`,
		"control":     "\x1b[2J",
		"list":        []any{},
		"map":         map[string]any{},
		"n":           1.5,
		"time":        "2026-03-01T12:00:00Z",
		"unicode":     "größer \u2028",
		"colon":       "a: b",
		"<":           "&",
	}

	text, err := ToYAML(value)
	if err != nil {
		t.Fatal(err)
	}

	var back map[string]any
	if err := yaml.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(any(value), any(back)); diff != "" {
		t.Errorf("differs (-want +got):\n%s\n%s", diff, text)
	}

	if strings.Contains(string(text), "\x1b") {
		t.Error("a control character got through")
	}
}
