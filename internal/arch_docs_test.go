package arch_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"trainyard/test/markdown"
)

// TestLinksResolve checks the relative links of every document: the file exists, and so does
// the heading behind a #.
func TestLinksResolve(t *testing.T) {
	t.Parallel()

	for _, name := range documents(t) {
		for _, finding := range brokenLinks(name, readDocument(t, name), os.ReadFile) {
			t.Error(finding)
		}
	}
}

// TestMakeTargetsExist checks that every target that a document names in code is in the Makefile.
func TestMakeTargetsExist(t *testing.T) {
	t.Parallel()

	targets := makeTargets(readDocument(t, filepath.Join("..", "Makefile")))
	for _, name := range documents(t) {
		for _, finding := range unknownTargets(name, readDocument(t, name), targets) {
			t.Error(finding)
		}
	}
}

// TestPathsExist checks that every file and folder that the pages for developers name in code exists: they say where to
// find things, and are wrong as soon as one is moved.
func TestPathsExist(t *testing.T) {
	t.Parallel()

	exists := func(path string) bool {
		for _, root := range []string{"..", filepath.Join("..", "internal")} {
			found, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(path)))
			if err == nil && len(found) > 0 {
				return true
			}
		}

		return false
	}

	for _, name := range []string{"ARCHITECTURE.md", "CONTRIBUTING.md"} {
		for _, finding := range missingPaths(name, readDocument(t, filepath.Join("..", name)), exists) {
			t.Error(finding)
		}
	}
}

// documents returns every Markdown file of the repository.
func documents(t *testing.T) []string {
	t.Helper()

	names, err := filepath.Glob(filepath.Join("..", "*.md"))
	if err != nil {
		t.Fatal(err)
	}

	for _, root := range []string{"docs", "deploy", "examples", "sdk", "internal", "test", "scenarios"} {
		names = append(names, filesBelow(t, filepath.Join("..", root), ".md")...)
	}

	if len(names) < 10 {
		t.Fatalf("found only %d documents: the test looks in the wrong place", len(names))
	}

	return names
}

func readDocument(t *testing.T, name string) string {
	t.Helper()

	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}

	return string(text)
}

var (
	linkPattern = regexp.MustCompile(`\]\(([^)\s]+)(?:\s+"[^"]*")?\)`)
	spanPattern = regexp.MustCompile("`[^`\n]+`")
	// A target stands behind make and perhaps behind variables: make FUZZTIME=5m fuzz.
	makePattern   = regexp.MustCompile(`(?:^|[\s;&|(])make((?:\s+[A-Z_]+=\S+)*)\s+([a-z][a-z0-9-]*)`)
	targetPattern = regexp.MustCompile(`^([a-z][a-z0-9 -]*):(?:[^=]|$)`)
	// A path has a slash, or is the name of a Go file; build/ holds what is made by building.
	pathPattern    = regexp.MustCompile(`^(?:[a-zA-Z0-9._*-]+/)+[a-zA-Z0-9._*-]*$|^[a-z0-9_]+\.go$`)
	notSlugPattern = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// brokenLinks flags relative links whose file or heading does not exist.
func brokenLinks(name, text string, read func(string) ([]byte, error)) []string {
	var found []string
	for n, line := range markdown.Prose(text) {
		for _, m := range linkPattern.FindAllStringSubmatch(spanPattern.ReplaceAllString(line, ""), -1) {
			target := m[1]
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}

			file, heading, _ := strings.Cut(target, "#")
			content := text

			if file != "" {
				path := filepath.Join(filepath.Dir(name), filepath.FromSlash(file))
				raw, err := read(path)
				if err != nil && !isFolder(path) {
					found = append(found, fmt.Sprintf("%s:%d: the link %s leads nowhere", name, n+1, target))
					continue
				}

				content = string(raw)
			}

			if heading != "" && !slices.Contains(headings(content), heading) {
				found = append(found, fmt.Sprintf("%s:%d: the link %s names a heading that is not there", name, n+1, target))
			}
		}
	}

	return found
}

func isFolder(path string) bool {
	info, err := os.Stat(path)

	return err == nil && info.IsDir()
}

// headings returns the headings of a document as forges write them in links.
func headings(text string) []string {
	var list []string
	for _, line := range markdown.Prose(text) {
		title := strings.TrimLeft(line, "#")
		if title == line || !strings.HasPrefix(title, " ") {
			continue
		}

		slug := notSlugPattern.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), "")
		list = append(list, strings.ReplaceAll(slug, " ", "-"))
	}

	return list
}

// codeOf returns the code of each line of a document: fenced lines as they are, of others the spans
// in backquotes.
func codeOf(text string) [][]string {
	prose := markdown.Prose(text)
	code := make([][]string, 0, len(prose))
	for i, line := range strings.Split(text, "\n") {
		if prose[i] != line {
			code = append(code, []string{line})
			continue
		}

		var spans []string
		for _, span := range spanPattern.FindAllString(line, -1) {
			spans = append(spans, strings.Trim(span, "`"))
		}

		code = append(code, spans)
	}

	return code
}

// makeTargets returns the targets that a Makefile declares.
func makeTargets(text string) []string {
	var targets []string
	for line := range strings.SplitSeq(text, "\n") {
		if m := targetPattern.FindStringSubmatch(line); m != nil {
			targets = append(targets, strings.Fields(m[1])...)
		}
	}

	return targets
}

// unknownTargets flags targets that a document names in code and the Makefile does not have.
func unknownTargets(name, text string, targets []string) []string {
	var found []string
	for n, spans := range codeOf(text) {
		for _, span := range spans {
			span, _, _ = strings.Cut(span, "#")
			for _, m := range makePattern.FindAllStringSubmatch(span, -1) {
				if !slices.Contains(targets, m[2]) {
					found = append(found, fmt.Sprintf("%s:%d: there is no target %s: make %s", name, n+1, m[2], m[2]))
				}
			}
		}
	}

	return found
}

// missingPaths flags paths that a document names in code and that do not exist. Paths are relative to the repository or
// to internal; calls such as ./internal/queue and what is built or kept outside are left out.
func missingPaths(name, text string, exists func(path string) bool) []string {
	var found []string
	for n, line := range markdown.Prose(text) {
		for _, span := range spanPattern.FindAllString(line, -1) {
			path := strings.Trim(span, "`")
			if !pathPattern.MatchString(path) || strings.HasPrefix(path, "./") || strings.HasPrefix(path, "build/") {
				continue
			}

			if !exists(path) {
				found = append(found, fmt.Sprintf("%s:%d: there is no %s", name, n+1, path))
			}
		}
	}

	return found
}

func TestMissingPathsAreFlagged(t *testing.T) {
	t.Parallel()

	exists := func(path string) bool {
		return slices.Contains([]string{"internal/job", "job/cause.go", "place/*"}, path)
	}

	tests := []struct{ name, text, want string }{
		{"a folder", "see `internal/job`", ""},
		{"a file below internal", "`job/cause.go`", ""},
		{"a family", "`place/*`", ""},
		{"an argument of a command", "`go test ./internal/none` and `./internal/none`", ""},
		{"what is built", "`build/trainyard`", ""},
		{"a word", "`queue`, `place.Check`, `make quick`", ""},
		{"prose", "and/or", ""},
		{"a block", "```\n`internal/none`\n```", ""},
		{"a folder that is gone", "a\n`internal/none`", "x.md:2: there is no internal/none"},
		{"a file that is gone", "`job/none.go`", "there is no job/none.go"},
		{"a Go file without a folder", "`line.go`", "there is no line.go"},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			expect(t, missingPaths("x.md", tt.text, exists), tt.want)
		})
	}
}

func TestBrokenLinksAreFlagged(t *testing.T) {
	t.Parallel()

	files := map[string]string{"docs/b.md": "# Health checks & more\n", "docs/img/a.svg": ""}
	read := func(path string) ([]byte, error) {
		text, ok := files[filepath.ToSlash(path)]
		if !ok {
			return nil, os.ErrNotExist
		}

		return []byte(text), nil
	}

	tests := []struct{ name, text, want string }{
		{"a file that is there", "[b](b.md)", ""},
		{"a picture", "![a](img/a.svg)", ""},
		{"a heading that is there", "[b](b.md#health-checks--more)", ""},
		{"a heading of its own", "# Own\n[o](#own)", ""},
		{"another site", "[b](https://example.org/x.md)", ""},
		{"code is no link", "`[b](c.md)`", ""},
		{"a block is no link", "```\n[b](c.md)\n```", ""},
		{"a file that is not there", "x\n[c](c.md)", "docs/a.md:2: the link c.md leads nowhere"},
		{"a heading that is not there", "[b](b.md#health)", "names a heading that is not there"},
		{"no heading of its own", "[o](#own)", "names a heading that is not there"},
		{"the second of two", "[b](b.md) [c](c.md)", "c.md leads nowhere"},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			expect(t, brokenLinks("docs/a.md", tt.text, read), tt.want)
		})
	}
}

func TestUnknownMakeTargetsAreFlagged(t *testing.T) {
	t.Parallel()

	targets := makeTargets("VERSION := 1\nbuild: ## Build\n\tgo build\nbench-a bench-b:\n.PHONY: help\n")
	if want := []string{"build", "bench-a", "bench-b"}; !slices.Equal(targets, want) {
		t.Fatalf("targets = %q, want %q", targets, want)
	}

	tests := []struct{ name, text, want string }{
		{"in a span", "run `make build` now", ""},
		{"in a block", "```\nmake bench-a\n```", ""},
		{"behind variables", "`N=1 make bench-b`, `make N=1 bench-b`", ""},
		{"in prose", "make sure of it", ""},
		{"in a comment of a block", "```\ntrainyard up  # make it so\n```", ""},
		{"unknown in a span", "a\n`make deploy`", "x.md:2: there is no target deploy"},
		{"unknown in a block", "```\ncd a && make deploy\n```", "there is no target deploy"},
		{"unknown behind a variable", "`make N=1 deploy`", "there is no target deploy"},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			expect(t, unknownTargets("x.md", tt.text, targets), tt.want)
		})
	}
}
