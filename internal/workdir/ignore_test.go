package workdir

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"trainyard/test/fuzzing"
)

func TestIgnorePatterns(t *testing.T) {
	t.Parallel()
	tests := []struct {
		rules string
		name  string // a trailing slash marks a folder
		want  bool
	}{
		{"*.o", "a.o", true},
		{"*.o", "x/y/a.o", true},
		{"/a.o", "x/a.o", false},
		{"x/a.o", "y/x/a.o", false},
		{"**/x/a.o", "y/x/a.o", true},
		{"x/**", "x/", false},
		{"x/**", "x/a/b", true},
		{"a/**/b", "a/b", true},
		{"a/**/b", "a/x/y/b", true},
		{"a/**/b", "a/x/y/c", false},
		{"build/", "build/", true},
		{"build/", "build", false},
		{"*.log\n!keep.log", "keep.log", false},
		{"!keep.log\n*.log", "keep.log", true},
		{"# comment", "# comment", false},
		{`\#x`, "#x", true},
		{`\!x`, "!x", true},
		{"x   ", "x", true},
		{`x\ `, "x ", true},
		{"[a-c]x", "bx", true},
		{"[!a-c]x", "bx", false},
		{"[]x]", "]", true},
		{"[a", "[a", false},
		{"a?c", "abc", true},
		{"a?c", "ac", false},
		{"*", "anything", true},
		{"**", "any/thing", true},
		{"\r\nx\r\n", "x", true},
		{"\ufeffx", "x", true},
		{"/", "x", false},
		{"a*b*c*d", "axxbxxcxx", false},
		{"", "x", false},
	}

	for _, tt := range tests {
		t.Run(fmt.Sprintf("%q on %q", tt.rules, tt.name), func(t *testing.T) {
			t.Parallel()
			list := &ignoreList{rules: parseIgnore(tt.rules)}

			name, isDir := strings.CutSuffix(tt.name, "/")
			if got := list.ignores(name, isDir); got != tt.want {
				t.Errorf("ignored = %v, want %v", got, tt.want)
			}
		})
	}
}

// TestIgnoreAgreesWithGit asks Git itself about random patterns.
func TestIgnoreAgreesWithGit(t *testing.T) {
	t.Parallel()

	if _, err := exec.LookPath("git"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("git is needed here")
		}

		t.Skip("git is not installed")
	}

	const seed = 7
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, seed))
	names := []string{"a", "b", "ab", "a.c", "b.c", "abc"}

	for range 100 {
		root := t.TempDir()
		git(t, root, nil, "init", "-q")

		var all []string
		for range 12 {
			name := names[rng.IntN(len(names))]
			for range rng.IntN(3) {
				name = names[rng.IntN(len(names))] + "/" + name
			}

			full := filepath.Join(root, name)
			if os.MkdirAll(filepath.Dir(full), 0o755) == nil && os.WriteFile(full, nil, 0o644) == nil {
				all = append(all, name)
			}
		}

		var rules strings.Builder
		for range 1 + rng.IntN(4) {
			rules.WriteString(randomRule(rng) + "\n")
		}

		if err := os.WriteFile(filepath.Join(root, ".gitignore"), []byte(rules.String()), 0o644); err != nil {
			t.Fatal(err)
		}

		tree, err := Scan(t.Context(), root, Options{})
		if err != nil {
			t.Fatal(err)
		}

		var got []string
		for _, f := range tree.Manifest.Files {
			got = append(got, f.Path)
		}

		out := git(t, root, nil, "ls-files", "-z", "--others", "--exclude-standard")
		want := strings.FieldsFunc(string(out), func(c rune) bool { return c == 0 })
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("rules %q on %q:\n git   %q\n yard  %q", rules.String(), all, want, got)
		}
	}
}

// randomRule makes a line of an ignore file. Two stars beside other characters
// are left out: what Git does with them depends on how it splits the pattern.
func randomRule(rng *rand.Rand) string {
	pieces := []string{"a", "b", "c", "*", "**", "?", "[ab]", "[!a]", "/", "/", ".", "ab", "!", `\`, "-"}
	for {
		rule := ""
		for range 1 + rng.IntN(4) {
			rule += pieces[rng.IntN(len(pieces))]
		}

		odd := slices.ContainsFunc(strings.Split(rule, "/"), func(part string) bool {
			return strings.Contains(part, "**") && strings.Trim(part, "*") != ""
		})
		if !odd {
			return rule
		}
	}
}

func git(t *testing.T, dir string, input []byte, args ...string) []byte {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "core.excludesFile=/dev/null"}, args...)...)
	cmd.Dir, cmd.Stdin = dir, bytes.NewReader(input)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("git %v: %v", args, err)
	}

	return out
}

func FuzzIgnore(f *testing.F) {
	f.Add("*.o\n!x.o\n/a/**/b/\n[a-z]?\\*", "a/b/x.o", true)
	f.Add(strings.Repeat("**/", 50)+"x", strings.Repeat("a/", 50)+"y", false)
	f.Add(strings.Repeat("*a", 50), strings.Repeat("a", 100), false)
	f.Add(fuzzing.Long("*a"), strings.Repeat("a", 4096), false) // the longest path that there is
	f.Add(fuzzing.Long("**/"), strings.Repeat("a/", 2048), true)
	f.Add("[", "[", false)
	f.Add("\\", "\\", false)

	f.Fuzz(func(t *testing.T, rules, name string, isDir bool) {
		defer fuzzing.Bounded(t)()

		list := &ignoreList{rules: parseIgnore(rules)}
		got := list.ignores(name, isDir)

		// A rule that keeps everything, put last, decides against any other.
		list.rules = append(list.rules, parseIgnore("!*")...)
		if list.ignores(name, isDir) {
			t.Errorf("ignored in spite of the last line (before: %v)", got)
		}
	})
}

// TestThePortalLeavesOutTheSameSecrets compares the list with that of the portal, which uploads folders too. That the
// rules mean the same there is tested in web/tests/submit.test.mjs.
func TestThePortalLeavesOutTheSameSecrets(t *testing.T) {
	t.Parallel()

	const name = "../../web/src/pages/submit/ignore.ts"
	source, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}

	if !strings.Contains(string(source), "const confidential = `"+confidential+"`;") {
		t.Errorf("%s has another list of confidential files", name)
	}
}
