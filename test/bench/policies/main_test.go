package main

import (
	"os"
	"path/filepath"
	"testing"

	"trainyard/test/bench/information"
	"trainyard/test/golden"
)

// A comparison says what each side knows, in its output and on its page; a benchmark that compares nobody says why.
func TestEveryBenchmarkSaysWhatEachSideKnows(t *testing.T) {
	pages := map[string][]information.Comparison{}

	for name, b := range targets {
		switch {
		case b.page == "":
			t.Errorf("bench-%s has no page", name)
		case (b.comparisons == nil) == (b.alone == ""):
			t.Errorf("bench-%s must declare its comparisons, or say why it has none", name)
		case b.comparisons != nil && len(b.comparisons()) == 0:
			t.Errorf("bench-%s declares no comparison", name)
		case b.comparisons != nil:
			pages[b.page] = append(pages[b.page], b.comparisons()...)
		}
	}

	for page, list := range pages {
		path := filepath.Join("..", "..", "..", "docs", "explanation", page)

		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}

		want, err := information.Page(string(text), list)
		if err != nil {
			t.Errorf("%s: %v", page, err)
			continue
		}

		golden.Compare(t, path, want)
	}
}
