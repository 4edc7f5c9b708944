package workdir_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/workdir"
)

// later is a clock that is ahead, so that files just written count as settled.
type later struct{}

func (later) Now() time.Time { return time.Now().Add(time.Hour) }

// build makes a folder. A value that begins with "->" is a link, "dir" an empty folder.
func build(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		full := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}

		var err error
		if target, ok := strings.CutPrefix(text, "->"); ok {
			err = os.Symlink(target, full)
		} else {
			err = os.WriteFile(full, []byte(text), 0o644)
		}

		if err != nil {
			t.Fatal(err)
		}
	}

	return root
}

func paths(m api.Manifest) []string {
	all := []string{}
	for _, f := range m.Files {
		all = append(all, f.Path)
	}

	return all
}

func TestScanListsFiles(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		files map[string]string
		want  []string
	}{
		{
			"everything without an ignore file, sorted by bytes",
			map[string]string{"b": "1", "a/x": "2", "a.b": "3", "a-": "4"},
			[]string{"a-", "a.b", "a/x", "b"},
		},
		{"never .git", map[string]string{".git/config": "1", "sub/.git": "gitdir: x", "a": "1"}, []string{"a"}},
		{
			"gitignore holds",
			map[string]string{".gitignore": "*.pyc\n/data/\n", "a.pyc": "1", "sub/b.pyc": "1", "data/x": "1", "sub/data/x": "1"},
			[]string{".gitignore", "sub/data/x"},
		},
		{
			// newcomer 7: with a .trainyardignore that left out one link, all that .gitignore left out was uploaded.
			"trainyardignore adds to gitignore files",
			map[string]string{
				".gitignore":         "*.bin\ndata/\n",
				".trainyardignore":   "*.tmp\n!keep.bin\n",
				"a.bin":              "1",
				"keep.bin":           "1",
				"a.tmp":              "1",
				"data/x":             "1",
				"s/.gitignore":       "*\n",
				"s/.trainyardignore": "!x\n",
				"s/x":                "1",
				"s/y":                "1",
			},
			[]string{".gitignore", ".trainyardignore", "keep.bin", "s/x"},
		},
		{
			"a nested file stands above the outer",
			map[string]string{".gitignore": "*.log\n", "keep/.gitignore": "!*.log\n", "a.log": "1", "keep/b.log": "1"},
			[]string{".gitignore", "keep/.gitignore", "keep/b.log"},
		},
		{
			"links inside are kept",
			map[string]string{"a/file": "1", "a/link": "->file", "up": "->a/../a", "dangling": "->nothing"},
			[]string{"a/file", "a/link", "dangling", "up"},
		},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tree, err := workdir.Scan(t.Context(), build(t, tt.files), workdir.Options{})
			if err != nil {
				t.Fatal(err)
			}

			if diff := cmp.Diff(tt.want, paths(tree.Manifest)); diff != "" {
				t.Errorf("paths (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFilesThatMayHoldSecretsAreLeftOut(t *testing.T) {
	t.Parallel()
	files := map[string]string{
		"train.py": "1", ".env": "1", "sub/.env.local": "1", ".env.example": "1", "keys/id_rsa": "1", "keys/id_rsa.pub": "1",
		"keys/server.pem": "1", ".aws/credentials": "1", ".netrc": "1", "home/.docker/config.json": "1", "tokens.py": "1",
		"api.token": "1", ".huggingface/token": "1",
	}

	for name, test := range map[string]struct {
		ignore  string
		include []string
		want    string
		note    string
	}{
		"by default": {
			want: ".env.example keys/id_rsa.pub tokens.py train.py",
			note: "left out because they may hold secrets: .aws, .env, .huggingface/token, .netrc, api.token and 4 more",
		},
		"unless they are included": {
			include: []string{".env", "keys/*.pem"},
			want:    ".env .env.example keys/id_rsa.pub keys/server.pem tokens.py train.py",
			note:    "left out because they may hold secrets: .aws, .huggingface/token, .netrc, api.token, home/.docker/config.json and 2 more",
		},
		"unless the ignore file says otherwise": {
			ignore: "!.env\n!.aws\nkeys\nhome\n.huggingface\n*.token\n",
			want:   ".aws/credentials .env .env.example .trainyardignore tokens.py train.py",
			note:   "left out because they may hold secrets: .netrc, sub/.env.local",
		},
		"included although it is ignored": {
			ignore: "*\n", include: []string{".env"}, want: ".env",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := maps.Clone(files)
			if test.ignore != "" {
				folder[".trainyardignore"] = test.ignore
			}

			tree, err := workdir.Scan(t.Context(), build(t, folder), workdir.Options{Include: test.include})
			if err != nil {
				t.Fatal(err)
			}

			if got := strings.Join(paths(tree.Manifest), " "); got != test.want {
				t.Errorf("uploaded %s\nwant     %s", got, test.want)
			}

			note := strings.Join(tree.Notes, "\n")
			if !strings.HasPrefix(note, test.note) || test.note == "" && note != "" ||
				test.note != "" && !strings.Contains(note, "--include NAME") {
				t.Errorf("note %q, want %q", note, test.note)
			}
		})
	}
}

func TestScanRefuses(t *testing.T) {
	t.Parallel()
	small := workdir.Options{MaxFiles: 2, MaxTotal: 10, MaxFile: 6}

	tests := []struct {
		name  string
		files map[string]string
		code  string
	}{
		{"an absolute link", map[string]string{"l": "->/etc/passwd"}, "workdir_link_outside"},
		{"a link that climbs out", map[string]string{"s/l": "->../../x"}, "workdir_link_outside"},
		{"a name that is not UTF-8", map[string]string{"a\xff": "1"}, "workdir_bad_name"},
		{"too many files", map[string]string{"a": "", "b": "", "c": ""}, "workdir_too_many_files"},
		{"too large a whole", map[string]string{"a": "123456", "b": "123456"}, "workdir_too_large"},
		{"too large a file", map[string]string{"a": "1234567"}, "workdir_file_too_large"},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := workdir.Scan(t.Context(), build(t, tt.files), small)
			if got := codeOf(err); got != tt.code {
				t.Errorf("code = %q, want %q (%v)", got, tt.code, err)
			}
		})
	}
}

func TestScanSeesALinkThatLeadsOutThroughAnother(t *testing.T) {
	t.Parallel()

	// By its text x is s/t/y; the file system goes through l to the root's parent.
	root := build(t, map[string]string{"s/t/l": "->../..", "x": "->s/t/l/../out"})
	if err := os.WriteFile(filepath.Join(filepath.Dir(root), "out"), nil, 0o600); err != nil {
		t.Fatal(err)
	}

	if _, err := workdir.Scan(t.Context(), root, workdir.Options{}); codeOf(err) != "workdir_link_outside" {
		t.Errorf("err = %v, want workdir_link_outside", err)
	}
}

func codeOf(err error) string {
	var e *fault.Error
	if errorsAs(err, &e) {
		return e.Code
	}

	return ""
}

func TestScanNotesWhatIsNoFile(t *testing.T) {
	t.Parallel()
	root := build(t, map[string]string{"a": "1"})
	if err := syscall.Mkfifo(filepath.Join(root, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}

	tree, err := workdir.Scan(t.Context(), root, workdir.Options{})
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff([]string{"pipe skipped: neither a file nor a folder"}, tree.Notes); diff != "" {
		t.Error(diff)
	}
}

func TestScanReadsUnchangedFilesOnce(t *testing.T) {
	t.Parallel()
	root := build(t, map[string]string{"a": "one", "b": "two"})
	opts := workdir.Options{CacheDir: t.TempDir(), Clock: later{}}
	scan := func() *workdir.Tree {
		t.Helper()
		tree, err := workdir.Scan(t.Context(), root, opts)
		if err != nil {
			t.Fatal(err)
		}

		return tree
	}

	first, second := scan(), scan()
	if first.Hashed != 2 || second.Hashed != 0 || first.Digest != second.Digest {
		t.Errorf("hashed %d then %d, digests %s and %s", first.Hashed, second.Hashed, first.Digest, second.Digest)
	}

	// The same size and the same time of change, as some tools restore it.
	info, err := os.Stat(filepath.Join(root, "a"))
	if err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(filepath.Join(root, "a"), []byte("ONE"), 0o644); err != nil {
		t.Fatal(err)
	}

	if err := os.Chtimes(filepath.Join(root, "a"), info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}

	if third := scan(); third.Hashed != 1 || third.Digest == first.Digest {
		t.Errorf("a changed file was taken for the old one: hashed %d", third.Hashed)
	}
}

func TestScanDoesNotRememberWhatChangedJustNow(t *testing.T) {
	t.Parallel()
	root := build(t, map[string]string{"a": "one"})

	opts := workdir.Options{CacheDir: t.TempDir()}
	for range 2 {
		tree, err := workdir.Scan(t.Context(), root, opts)
		if err != nil || tree.Hashed != 1 {
			t.Fatalf("hashed %d (%v), want 1", tree.Hashed, err)
		}
	}
}

func TestScanGoesOnWithoutAReadableCache(t *testing.T) {
	t.Parallel()
	root, cache := build(t, map[string]string{"a": "one"}), t.TempDir()
	opts := workdir.Options{CacheDir: cache, Clock: later{}}
	if _, err := workdir.Scan(t.Context(), root, opts); err != nil {
		t.Fatal(err)
	}

	files, err := filepath.Glob(filepath.Join(cache, "*.json"))
	if err != nil || len(files) != 1 {
		t.Fatalf("cache files %v (%v)", files, err)
	}

	if err := os.WriteFile(files[0], []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}

	tree, err := workdir.Scan(t.Context(), root, opts)
	if err != nil || tree.Hashed != 1 || len(tree.Notes) != 1 {
		t.Errorf("hashed %d, notes %q, err %v", tree.Hashed, tree.Notes, err)
	}
}

func TestScanNoticesAFileThatChanges(t *testing.T) {
	t.Parallel()

	// The kernel makes these files' content when they are read: it never is what their size says.
	const ever = "/proc/sys/kernel/random"
	if _, err := os.Stat(ever); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("needs Linux's %s: %v", ever, err)
		}

		t.Skipf("needs Linux's %s: %v", ever, err)
	}

	if _, err := workdir.Scan(t.Context(), ever, workdir.Options{}); codeOf(err) != "workdir_file_changing" {
		t.Errorf("err = %v, want workdir_file_changing", err)
	}
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	root := build(
		t,
		map[string]string{
			"train.py":    "print(1)",
			"empty":       "",
			"pkg/a.py":    "a",
			"pkg/same.py": "print(1)",
			"pkg/link":    "->a.py",
			"latest":      "->pkg",
		},
	)

	if err := os.Chmod(filepath.Join(root, "train.py"), 0o755); err != nil {
		t.Fatal(err)
	}

	tree, err := workdir.Scan(t.Context(), root, workdir.Options{})
	if err != nil {
		t.Fatal(err)
	}

	text, err := workdir.Encode(tree.Manifest)
	if err != nil {
		t.Fatal(err)
	}

	m, err := workdir.Decode(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}

	dir := filepath.Join(t.TempDir(), "work")

	fetch := func(_ context.Context, digest string) (io.ReadCloser, error) { return tree.Open(digest) }
	if err := workdir.Materialise(t.Context(), m, dir, fetch); err != nil {
		t.Fatal(err)
	}

	again, err := workdir.Scan(t.Context(), dir, workdir.Options{})
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(tree.Manifest, again.Manifest); diff != "" || tree.Digest != again.Digest {
		t.Errorf("the copy differs (-sent +made):\n%s", diff)
	}

	if got, want := len(tree.Digests()), 3; got != want {
		t.Errorf("%d different contents, want %d", got, want)
	}

	if err := workdir.Materialise(t.Context(), m, dir, fetch); err == nil {
		t.Error("a folder that is there was overwritten")
	}

	left, err := filepath.Glob(filepath.Join(filepath.Dir(dir), ".materialise-*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
}

func TestMaterialiseLeavesNothingWhenItFails(t *testing.T) {
	t.Parallel()
	good := strings.Repeat("0", 64)
	m := api.Manifest{Files: []api.ManifestFile{{Path: "a/b", Mode: 0o644, Size: 1, Digest: good}}}
	for name, fetch := range map[string]workdir.Fetch{
		"another content": func(context.Context, string) (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader("x")), nil
		},
		"no content": func(context.Context, string) (io.ReadCloser, error) { return nil, fmt.Errorf("gone") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			parent := t.TempDir()
			if err := workdir.Materialise(t.Context(), m, filepath.Join(parent, "work"), fetch); err == nil {
				t.Fatal("no error")
			}

			entries, err := os.ReadDir(parent)
			if err != nil || len(entries) != 0 {
				t.Errorf("left behind: %v (%v)", entries, err)
			}
		})
	}
}

func TestScanNotesLinksToWhatIsLeftOut(t *testing.T) {
	t.Parallel()
	tree, err := workdir.Scan(t.Context(), build(t, map[string]string{
		".gitignore": "data/\n", "data/train.bin": "1", "code/a.py": "1", "latest": "->data/train.bin", "all": "->data",
		"code/self": "->a.py", "gone": "->nothing", "twice": "->latest", "folder": "->code",
	}), workdir.Options{})
	if err != nil {
		t.Fatal(err)
	}

	want := []string{
		"the link all leads to data, which is not uploaded",
		"the link gone leads to nothing, which is not uploaded",
		"the link latest leads to data/train.bin, which is not uploaded",
		"the link twice leads to data/train.bin, which is not uploaded",
	}
	if diff := cmp.Diff(want, slices.Sorted(slices.Values(tree.Notes))); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
}

func TestTheLargestPartsAreFound(t *testing.T) {
	t.Parallel()
	tree, err := workdir.Scan(t.Context(), build(t, map[string]string{
		"data/a": "12345", "data/sub/b": "12345", "model.bin": "123456", "x/y": "1", "z": "1",
	}), workdir.Options{})
	if err != nil {
		t.Fatal(err)
	}

	want := []workdir.Part{{Name: "data/", Files: 2, Size: 10}, {Name: "model.bin", Files: 1, Size: 6}}
	if diff := cmp.Diff(want, tree.Largest(2)); diff != "" {
		t.Errorf("parts (-want +got):\n%s", diff)
	}
}
