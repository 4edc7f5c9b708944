package arch_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"trainyard/test/golden"
)

// Between these lines ARCHITECTURE.md's table of packages is written by the test below.
const (
	tableBegin = "<!-- packages: written by make generate from the package comments -->"
	tableEnd   = "<!-- end of packages -->"
)

// TestArchitectureListsEveryPackage compares ARCHITECTURE.md's table with the package comments;
// under -update, as make generate calls it, it writes the table anew.
func TestArchitectureListsEveryPackage(t *testing.T) {
	t.Parallel()

	text, err := replaceBetween(architecture(t), tableBegin, tableEnd, packageTable(loadTree(t)))
	if err != nil {
		t.Fatalf("ARCHITECTURE.md: %v", err)
	}

	golden.Compare(t, filepath.Join("..", "ARCHITECTURE.md"), text)
}

// packageTable is a table of all packages in the order of their layers: name, layer, and the
// first sentence of the package comment.
func packageTable(pkgs []*pkg) string {
	listed := slices.Clone(pkgs)
	slices.SortStableFunc(listed, func(a, b *pkg) int { return layerOf(a.path) - layerOf(b.path) })

	var out strings.Builder
	out.WriteString("| package | layer | what it is for |\n| --- | --- | --- |\n")

	for _, p := range listed {
		n := layerOf(p.path)
		if n < 0 || isTests(p.path) {
			continue
		}

		name := strings.TrimPrefix(p.path, "internal/")
		fmt.Fprintf(&out, "| `%s` | %s | %s |\n", name, layers[n].name, strings.ReplaceAll(p.summary(), "|", `\|`))
	}

	return out.String()
}

// summary is the first sentence of the package comment without "Package name", "is" and the full stop.
func (p *pkg) summary() string {
	for _, f := range p.files {
		if f.Doc == nil {
			continue
		}

		words := strings.Fields(f.Doc.Text())
		if len(words) > 2 && (words[0] == "Package" || words[0] == "Command") {
			words = words[2:]
		}

		if len(words) > 1 && (words[0] == "is" || words[0] == "are") {
			words = words[1:]
		}

		return firstSentence(words)
	}

	return ""
}

// abbreviations end with a full stop that ends no sentence.
var abbreviations = []string{"e.g.", "i.e.", "etc.", "vs.", "cf."}

// firstSentence joins words up to the first that ends a sentence.
func firstSentence(words []string) string {
	for i, word := range words {
		if strings.HasSuffix(word, ".") && !slices.Contains(abbreviations, word) {
			return strings.TrimSuffix(strings.Join(words[:i+1], " "), ".")
		}
	}

	return strings.Join(words, " ")
}

// replaceBetween replaces the text between two lines.
func replaceBetween(text, begin, end, with string) (string, error) {
	before, rest, ok := strings.Cut(text, begin+"\n")
	if !ok {
		return "", fmt.Errorf("there is no line %q", begin)
	}

	_, after, ok := strings.Cut(rest, end)
	if !ok {
		return "", fmt.Errorf("there is no line %q", end)
	}

	return before + begin + "\n" + with + end + after, nil
}

func TestPackageTableIsMadeOfPackageComments(t *testing.T) {
	t.Parallel()

	sources := []struct{ path, text string }{
		{"cmd/trainyard", "// Command trainyard is the yard: server | agent.\n//\n// More.\npackage main"},
		{"internal/queue", "// Package queue orders jobs, e.g. by age. It decides\n// nothing else.\npackage queue"},
		{"internal/job", "// Package job is the noun\n// of the house.\npackage job"},
		{"internal/stuff", "// Package stuff is in no layer.\npackage stuff"},
		{"test/golden", "// Package golden is for tests.\npackage golden"},
		{"internal/fleet", "package fleet"},
	}

	var pkgs []*pkg
	for _, s := range sources {
		p, err := load(s.path, map[string]string{"a.go": s.text})
		if err != nil {
			t.Fatal(err)
		}

		pkgs = append(pkgs, p)
	}

	want := `| package | layer | what it is for |
| --- | --- | --- |
| ` + "`job`" + ` | nouns | the noun of the house |
| ` + "`fleet`" + ` | nouns |  |
| ` + "`queue`" + ` | decisions | orders jobs, e.g. by age |
| ` + "`cmd/trainyard`" + ` | commands | the yard: server \| agent |
`

	if got := packageTable(pkgs); got != want {
		t.Errorf("table:\n%s\nwant:\n%s", got, want)
	}
}

func TestTextIsReplacedBetweenTwoLines(t *testing.T) {
	t.Parallel()

	got, err := replaceBetween("a\n<b>\nold\n<e>\nz\n", "<b>", "<e>", "new\n")
	if err != nil || got != "a\n<b>\nnew\n<e>\nz\n" {
		t.Errorf("got %q, %v", got, err)
	}

	for _, text := range []string{"a\n<e>\n", "<b>\nold\n"} {
		if _, err := replaceBetween(text, "<b>", "<e>", "new\n"); err == nil {
			t.Errorf("%q: no error, want one for the missing line", text)
		}
	}
}
