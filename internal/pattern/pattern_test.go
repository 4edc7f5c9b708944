package pattern_test

import (
	"strings"
	"testing"

	"trainyard/internal/pattern"
)

func TestExpensiveExpressionsAreRefused(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]string{
		`(.*x){300}y`:                    "too expensive",
		`(x{30}){30}`:                    "too expensive",
		`((a{10}){10}){10}`:              "too expensive",
		strings.Repeat(`\w{1,900}`, 100): "too expensive",
		`(a|b){1,}(?:cd){200,}`:          "too expensive",
		`(`:                              "missing closing )",
		`x{1001}`:                        "invalid repeat count",
		strings.Repeat("x", 1001):        "at most 1000 bytes, got 1001",
	} {
		_, err := pattern.Compile(text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: %v, want an error with %q", text, err, want)
		}
	}
}

func TestUsualExpressionsAreCompiled(t *testing.T) {
	t.Parallel()

	for text, line := range map[string]string{
		``:           "anything",
		`loss=.*nan`: "step 3 loss= nan",
		`(?i)error`:  "an Error",
		`it (?P<step>\d+) err (?P<val_loss>[-+]?\d*\.?\d+(?:[eE][-+]?\d+)?)`: "it 3 err 1e-3",
		`\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}`:                                "at 2026-11-16T13:00:00",
		`(x?){50}x{50}y`:                                                     strings.Repeat("x", 50) + "y",
	} {
		p, err := pattern.Compile(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}

		if !p.MatchString(line) {
			t.Errorf("%s does not match %q", text, line)
		}
	}
}

func TestTheCostGrowsWithTextAndExpression(t *testing.T) {
	t.Parallel()
	plain, err := pattern.Compile("nomatch")
	if err != nil {
		t.Fatal(err)
	}

	nested, err := pattern.Compile(`(x?){50}x{50}y`)
	if err != nil {
		t.Fatal(err)
	}

	if plain.Cost(99) != 100 {
		t.Errorf("plain text costs %d", plain.Cost(99))
	}

	if nested.Cost(99) < 100*plain.Cost(99) || nested.Cost(199) != 2*nested.Cost(99) {
		t.Errorf("a nested expression costs %d and %d", nested.Cost(99), nested.Cost(199))
	}
}
