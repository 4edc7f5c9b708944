package arch_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestOnlySequentialPackagesAreTestedWithoutTheRaceDetector looks at the packages that make test
// runs without the race detector: they are pure, so they start no goroutine and change no package
// variable, and their tests start none either. Whoever uses them from several goroutines is tested
// with the detector, and it watches them there.
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

	visited := 0

	for _, name := range goFolders(t) {
		if !sequential.MatchString(module+"/"+name) || name == "internal" { // whose tests read the sources
			continue
		}

		visited++

		if !isPure(name) {
			t.Errorf("%s is tested without the race detector, and is not pure", name)
		}

		files, err := filepath.Glob(filepath.Join("..", filepath.FromSlash(name), "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}

		for _, file := range files {
			for _, finding := range goroutines(t, file) {
				t.Errorf("%s starts a goroutine, and %s is tested without the race detector", finding, name)
			}
		}
	}

	if visited < 20 {
		t.Errorf("looked at %d packages only: the test looks in the wrong place", visited)
	}
}

// goroutines returns where a file starts goroutines, with the go statement or a wait group.
func goroutines(t *testing.T, file string) []string {
	t.Helper()

	fset := token.NewFileSet()

	parsed, err := parser.ParseFile(fset, file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}

	var found []string

	ast.Inspect(parsed, func(n ast.Node) bool {
		selector, ok := n.(*ast.SelectorExpr)
		if _, starts := n.(*ast.GoStmt); starts || ok && selector.Sel.Name == "Go" {
			found = append(found, strings.TrimPrefix(fset.Position(n.Pos()).String(), "../"))
		}

		return true
	})

	return found
}
