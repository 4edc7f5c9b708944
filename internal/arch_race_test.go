package arch_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestOnlySequentialPackagesAreTestedWithoutTheRaceDetector looks at the packages that make test runs without the race
// detector: neither they nor their tests nor anything of ours that they import starts a goroutine. Whoever uses them
// from several goroutines is tested with the detector, and it watches them there.
func TestOnlySequentialPackagesAreTestedWithoutTheRaceDetector(t *testing.T) {
	t.Parallel()

	script, err := os.ReadFile(filepath.Join("..", "scripts", "test.sh"))
	if err != nil {
		t.Fatal(err)
	}

	m := regexp.MustCompile(`(?m)^sequential='(.+)'$`).FindSubmatch(script)
	if m == nil {
		t.Fatal("scripts/test.sh does not say which packages are sequential")
	}

	sequential, err := regexp.Compile(string(m[1]))
	if err != nil {
		t.Fatal(err)
	}

	visited, read := 0, make(map[string]concurrency)

	for _, name := range goFolders(t) {
		if !sequential.MatchString(module+"/"+name) || name == "internal" { // whose tests read the sources
			continue
		}

		visited++

		for _, finding := range startedBy(t, name, read) {
			t.Errorf("%s starts a goroutine, and %s is tested without the race detector", finding, name)
		}
	}

	if visited < 20 {
		t.Errorf("looked at %d packages only: the test looks in the wrong place", visited)
	}
}

// unwatched start goroutines for those who wait for real time, which nothing sequential does, and for simulations
// beside each other: those of test/bench/andreas and test/bench/relocate are tested with the race detector.
var unwatched = []string{"internal/clock", "test/bench/together"}

// concurrency is where the files of a package start goroutines, and what they import of this module.
type concurrency struct{ starts, imports []string }

// startedBy returns where goroutines are started by a package, its tests and everything they import.
func startedBy(t *testing.T, name string, read map[string]concurrency) []string {
	t.Helper()

	own, tests := filesOf(t, name, "*.go", read), filesOf(t, name, "*_test.go", read)
	found := slices.Concat(own.starts, tests.starts)
	next, seen := slices.Concat(own.imports, tests.imports), map[string]bool{name: true}

	for len(next) > 0 {
		imported := next[0]
		next = next[1:]

		if !seen[imported] && !among(imported, unwatched) {
			c := filesOf(t, imported, "*.go", read)
			found, next = append(found, c.starts...), append(next, c.imports...)
		}

		seen[imported] = true
	}

	return found
}

// filesOf reads the files of a package that match the pattern; its tests only if the pattern is theirs.
func filesOf(t *testing.T, name, pattern string, read map[string]concurrency) concurrency {
	t.Helper()

	if c, ok := read[name+pattern]; ok {
		return c
	}

	files, err := filepath.Glob(filepath.Join("..", filepath.FromSlash(name), pattern))
	if err != nil {
		t.Fatal(err)
	}

	var c concurrency
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") == (pattern == "*_test.go") {
			c.add(t, file)
		}
	}

	read[name+pattern] = c

	return c
}

// add adds what a file imports, and where it starts goroutines with the go statement or a wait group.
func (c *concurrency) add(t *testing.T, file string) {
	t.Helper()

	fset := token.NewFileSet()

	parsed, err := parser.ParseFile(fset, file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}

	for _, i := range parsed.Imports {
		if path, ours := strings.CutPrefix(strings.Trim(i.Path.Value, `"`), module+"/"); ours {
			c.imports = append(c.imports, path)
		}
	}

	ast.Inspect(parsed, func(n ast.Node) bool {
		selector, ok := n.(*ast.SelectorExpr)
		if _, starts := n.(*ast.GoStmt); starts || ok && selector.Sel.Name == "Go" {
			c.starts = append(c.starts, strings.TrimPrefix(fset.Position(n.Pos()).String(), "../"))
		}

		return true
	})
}
