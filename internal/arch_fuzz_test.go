package arch_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// TestEveryFuzzTargetBoundsItsTime: without it a target does not notice an input that keeps the parser busy for long.
func TestEveryFuzzTargetBoundsItsTime(t *testing.T) {
	t.Parallel()

	target := regexp.MustCompile(`\.Fuzz\(func\(`)
	bounded := regexp.MustCompile(`\.Fuzz\(func\(t \*testing\.T.*\) \{\n\t+defer fuzzing\.Bounded\(t\)\(\)\n`)
	found := 0

	for _, name := range goFolders(t) {
		files, err := filepath.Glob(filepath.Join("..", filepath.FromSlash(name), "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}

		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}

			targets := len(target.FindAll(text, -1))
			found += targets

			if n := len(bounded.FindAll(text, -1)); n != targets {
				t.Errorf("%s has %d fuzz targets, and %d begin with defer fuzzing.Bounded(t)()", file, targets, n)
			}
		}
	}

	if found < 20 {
		t.Errorf("%d fuzz targets were found", found)
	}
}
