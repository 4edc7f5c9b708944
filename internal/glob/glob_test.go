package glob

import (
	"path"
	"testing"

	"pgregory.net/rapid"
)

func TestPatternsChooseFilesAndFolders(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		pattern, name string
		want          bool
	}{
		{"ckpt/best.pt", "ckpt/best.pt", true},
		{"ckpt/best.pt", "ckpt/best.pt.tmp", false},
		{"ckpt/best.pt", "a/ckpt/best.pt", false},
		{"runs/**", "runs/a/b.txt", true},
		{"runs/**", "runs", false},
		{"runs", "runs/a/b.txt", true},
		{"runs/", "runs/a", true},
		{"./runs", "runs/a", true},
		{"*.csv", "a.csv", true},
		{"*.csv", "b/a.csv", false},
		{"**/*.csv", "b/c/a.csv", true},
		{"**/*.csv", "a.csv", true},
		{"**", "a/b", true},
		{"r?n[0-9]/x", "run7/x", true},
		{"r?n[!0-9]/x", "run7/x", false},
		{`\*`, "*", true},
		{`\*`, "a", false},
	} {
		if got := Match(tt.pattern, tt.name); got != tt.want {
			t.Errorf("%s chooses %s: %v, want %v", tt.pattern, tt.name, got, tt.want)
		}
	}
}

func TestAWalkLeavesOutOnlyFoldersThatNothingIsChosenIn(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		pattern, dir string
		want         bool
	}{
		{"ckpt/best.pt", "ckpt", true},
		{"ckpt/best.pt", "venv", false},
		{"ckpt/best.pt", "ckpt/old", false},
		{"**/*.csv", "venv/lib", true},
		{"runs/*/metrics", "runs/a", true},
		{"runs/*/metrics", "runs/a/b", false},
		{"runs", "runs/a/b", true},
	} {
		if got := Reaches(tt.pattern, tt.dir); got != tt.want {
			t.Errorf("%s reaches %s: %v, want %v", tt.pattern, tt.dir, got, tt.want)
		}
	}

	rapid.Check(t, func(t *rapid.T) {
		word := rapid.SampledFrom([]string{"a", "b", "ab", "c.x"})
		part := rapid.SampledFrom([]string{"a", "b", "*", "a*", "?", "**", "*.x", "[ab]"})
		pattern := path.Join(rapid.SliceOfN(part, 1, 4).Draw(t, "pattern")...)
		dir := path.Join(rapid.SliceOfN(word, 1, 3).Draw(t, "folder")...)
		name := path.Join(dir, path.Join(rapid.SliceOfN(word, 1, 3).Draw(t, "file")...))

		if Match(pattern, name) && !Reaches(pattern, dir) {
			t.Fatalf("%s chooses %s and does not reach %s", pattern, name, dir)
		}
	})
}

func TestPatternsThatLeadOutOfTheFolderAreRefused(t *testing.T) {
	t.Parallel()

	for pattern, right := range map[string]bool{
		"ckpt/best.pt": true, "runs/**": true, "**/*.csv": true, "[a-z]*": true, "a/./b": true, `\[`: true,
		"": false, ".": false, "..": false, "/etc/passwd": false, "~/x": false, "../x": false, "a/../../x": false,
		"a/../b": false, "[a": false, `a\`: false, "a\nb": false, "./": false,
	} {
		if constraint, _ := Check(pattern); (constraint == "") != right {
			t.Errorf("%q: %q, want it to be right: %v", pattern, constraint, right)
		}
	}
}
