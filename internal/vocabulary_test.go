package arch_test

import (
	"bufio"
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// retired are words and turns of phrase that users no longer meet: docs/glossary.md has the
// words that stand in their place. They are looked for in string literals and struct tags of
// the program, in the documentation and in the files that are generated from the code.
var retired = []struct {
	name    string
	pattern *regexp.Regexp
	instead string
}{
	{"hire", regexp.MustCompile(`(?i)\bhir(e|es|ed|ing)\b`), "provision"},
	{"rent", regexp.MustCompile(`(?i)\brent(s|ed|ing)?\b`), "provision; node cost"},
	{"hand in", regexp.MustCompile(`(?i)\bhand(s|ed|ing)? in\b`), "submit"},
	{"the line", regexp.MustCompile(`(?i)\b(ahead in|waits? in|next in|first in|back into the|in the) line\b`), "queue"},
	{"waits for its turn", regexp.MustCompile(`(?i)\bwaits? for (its|their) turn\b`), "queued"},
	{"who waits", regexp.MustCompile(`(?i)\b(who|what) waits\b`), "queued jobs"},
	{"is no", regexp.MustCompile(`(?i)\b(is|are) no (?:[a-z-]+ )?[a-z-]+`), "must be …, got …"},
	{"so long", regexp.MustCompile(`(?i)\bthe last so\b|\bthis .long.|\bso long\b`), "duration"},
	{"goes by", regexp.MustCompile(`(?i)\bgo(es)? by\b|\bwent by\b`), "is based on"},
	{"told", regexp.MustCompile(`(?i)\btold\b`), "reported, set, given"},
	{"dearer", regexp.MustCompile(`(?i)\bdear(er|est)\b|\bsooner, but\b`), "more expensive"},
	{"nobody", regexp.MustCompile(`(?i)\bnobody (said|can tell|told|knows)\b`), "unknown, not given"},
	{"books", regexp.MustCompile(`(?i)\bthe books\b|\bbookkeep`), "ledger, usage"},
	{"let nothing new", regexp.MustCompile(`(?i)\blets? nothing new\b`), "cordon"},
	{"give way", regexp.MustCompile(`(?i)\bg(i|a)ves? way\b`), "preempt"},
	{"taken back", regexp.MustCompile(`(?i)\b(can be|was|is) taken back\b`), "spot; reclaimed by the provider"},
	{"four times out of five", regexp.MustCompile(`(?i)\bfour times out of five\b`), "80 % prediction interval"},
	{"no end in sight", regexp.MustCompile(`(?i)\bno end in sight\b`), "unknown"},
	{"reckon", regexp.MustCompile(`(?i)\breckon`), "estimate, assume"},
	{"foretell", regexp.MustCompile(`(?i)\bfore(tell|told|see|seen|saw)\b`), "forecast"},
	{"vouch", regexp.MustCompile(`(?i)\bvouch`), "verify"},
	{"agenda", regexp.MustCompile(`(?i)\bagenda\b`), "timers"},
	{"seats", regexp.MustCompile(`(?i)\bseats?\b`), "allocation"},
}

// exempt are sentences in which a pattern above is good English.
var exempt = []*regexp.Regexp{
	regexp.MustCompile(`(?i)\bthere (is|are) no\b`),
	regexp.MustCompile(
		`(?i)\b(is|are) no (longer|more|less|fewer|later|earlier|better|faster|cheaper|larger|other|different|effect)\b`,
	),
	regexp.MustCompile(`(?i)\bwhere there (is|are) no\b`),
}

// offence is a retired word in a text.
func offence(text string) (name, instead string, found bool) {
	for _, e := range exempt {
		text = e.ReplaceAllString(text, "")
	}

	for _, r := range retired {
		if r.pattern.MatchString(text) {
			return r.name, r.instead, true
		}
	}

	return "", "", false
}

func TestRetiredWordsAreGone(t *testing.T) {
	t.Parallel()

	root := ".."
	visited := 0

	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}

		rel := filepath.ToSlash(strings.TrimPrefix(path, root+string(filepath.Separator)))
		if d.IsDir() {
			if slices.Contains(
				[]string{".git", "build", "testdata", "docs/adr", "internal/store/sql/migrations"},
				rel,
			) ||
				d.Name() == "testdata" || d.Name() == "node_modules" {
				return filepath.SkipDir
			}

			return nil
		}

		texts, err := visibleTexts(path, rel)
		if err != nil {
			return err
		}

		if texts != nil {
			visited++
		}

		for _, v := range texts {
			if name, instead, found := offence(v.text); found {
				t.Errorf("%s:%d: %q is not a word of ours any more (write: %s): %s", rel, v.line, name, instead, v.text)
			}
		}

		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	if visited < 300 {
		t.Errorf("looked at %d files only: the walk does not find the sources", visited)
	}
}

// visible is a text that a user may read, with the line it stands on.
type visible struct {
	line int
	text string
}

// visibleTexts returns the texts of a file that users may read, and nil for a file that they do not.
func visibleTexts(path, rel string) ([]visible, error) {
	switch {
	case strings.HasSuffix(rel, "_test.go"):
		return nil, nil
	case strings.HasSuffix(rel, ".go") && !strings.HasPrefix(rel, "test/"):
		return literals(path)
	case rel == "CHANGELOG.md" || rel == "docs/glossary.md":
		return nil, nil // they name what was renamed
	case strings.HasSuffix(rel, ".md"),
		strings.HasSuffix(rel, ".yard"),
		rel == "api/openapi.yaml",
		rel == "api/jobfile.schema.json",
		strings.HasPrefix(rel, "deploy/"),
		strings.HasPrefix(rel, "examples/"),
		strings.HasPrefix(rel, "scripts/"),
		rel == "Makefile":
		return textLines(path)
	}

	return nil, nil
}

// literals returns the string literals of a Go file that are sentences: those with a space in them.
func literals(path string) ([]visible, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, nil, 0)
	if err != nil {
		return nil, fmt.Errorf("parse: %w", err)
	}

	texts := []visible{}
	ast.Inspect(file, func(n ast.Node) bool {
		lit, ok := n.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return true
		}

		text, err := strconv.Unquote(lit.Value)
		if err == nil && strings.Contains(text, " ") {
			texts = append(texts, visible{fset.Position(lit.Pos()).Line, text})
		}

		return true
	})

	return texts, nil
}

func textLines(path string) ([]visible, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}

	texts := []visible{}
	scanner := bufio.NewScanner(bytes.NewReader(data))
	scanner.Buffer(nil, 1<<24)

	for line := 1; scanner.Scan(); line++ {
		texts = append(texts, visible{line, scanner.Text()})
	}

	return texts, scanner.Err()
}

func TestOffence(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]string{
		"the node is hired for j1":            "hire",
		"101 is no whole number":              "is no",
		"there is no node with 8 GPUs":        "",
		"the job is no longer queued":         "",
		"only the last so `long`":             "so long",
		"ahead in line":                       "the line",
		"line 3: unknown key":                 "",
		"provisions a node for 2 queued jobs": "",
		"what the forecast goes by":           "goes by",
		"the current rate of the node":        "",
		"parenthesis":                         "",
	} {
		got, _, _ := offence(text)
		if got != want {
			t.Errorf("offence(%q) = %q, want %q", text, got, want)
		}
	}
}
