package newcomer_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestTheTableNamesTestsThatExist keeps the table of README.md true: it has every finding, and each test that it names
// is somewhere in the repository.
func TestTheTableNamesTestsThatExist(t *testing.T) {
	t.Parallel()

	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}

	named := regexp.MustCompile("`(Test\\w+)`")
	rows := regexp.MustCompile(`(?m)^\| (\d+) \|[^|]+\|([^|]+)\|$`).FindAllStringSubmatch(string(text), -1)
	exist := testNames(t)

	for i, row := range rows {
		if row[1] != strconv.Itoa(i+1) {
			t.Fatalf("row %d is of finding %s", i+1, row[1])
		}

		tests := named.FindAllStringSubmatch(row[2], -1)
		if len(tests) == 0 && strings.TrimSpace(row[2]) != "open" {
			t.Errorf("finding %s has neither a test nor the word open: %s", row[1], row[2])
		}

		for _, name := range tests {
			if !exist[name[1]] {
				t.Errorf("finding %s names %s, which is nowhere", row[1], name[1])
			}
		}
	}

	const findings = 35
	if len(rows) != findings {
		t.Errorf("the table has %d of %d findings", len(rows), findings)
	}
}

// testNames returns the names of all tests of the repository.
func testNames(t *testing.T) map[string]bool {
	t.Helper()

	names := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	root := filepath.Join("..", "..", "..")

	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "build" || d.Name() == "node_modules" || strings.HasPrefix(d.Name(), ".") && path != root):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, "_test.go"):
			return nil
		}

		text, err := os.ReadFile(path)
		for _, m := range declared.FindAllStringSubmatch(string(text), -1) {
			names[m[1]] = true
		}

		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	return names
}
