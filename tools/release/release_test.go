package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"
)

// smallModule writes a command that prints what the linker set, and returns its folder.
func smallModule(t *testing.T) string {
	t.Helper()

	dir := t.TempDir()

	files := map[string]string{
		"go.mod":                     "module small\n\ngo 1.24\n",
		"cmd/yard/a.go":              "package main\n\nvar version, commit string\n\nfunc main() { println(version, commit, len(helper) > 0, pages) }\n",
		"cmd/yard/h.go":              "//go:build helper\n\npackage main\n\nimport _ \"embed\"\n\n//go:embed helper.bin\nvar helper []byte\n",
		"cmd/yard/p.go":              "//go:build portal\n\npackage main\n\nimport _ \"embed\"\n\n//go:embed portal/index.html\nvar pages string\n",
		"cmd/yard/portal/index.html": "pages",
		"cmd/yard-helper/a.go":       "package main\n\nfunc main() {}\n",
		"LICENSE":                    "free\n",
		"README.md":                  "read\n",
		"CHANGELOG.md":               "# Changelog\n\n## [Unreleased]\n\n## [0.1.0] - 2026-01-01\n",
		"not-in-archive":             "x\n",
	}

	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}

		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	return dir
}

// releaseOf builds the small module in a folder of its own and returns the folder of the archives.
func releaseOf(t *testing.T) string {
	t.Helper()

	out := filepath.Join(t.TempDir(), "out")
	var stderr bytes.Buffer

	err := run(t.Context(), []string{
		"-version", "0.1.0", "-commit", "abc", "-epoch", "1767225600", "-source", smallModule(t), "-package", "./cmd/yard",
		"-platforms", runtime.GOOS + "/" + runtime.GOARCH, "-out", out,
	}, io.Discard, &stderr)
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}

	return out
}

func TestTwoFoldersGiveTheSameBytes(t *testing.T) {
	t.Parallel()

	first, second := releaseOf(t), releaseOf(t)
	entries, err := os.ReadDir(first)
	if err != nil {
		t.Fatal(err)
	}

	base := "yard-0.1.0-" + runtime.GOOS + "-" + runtime.GOARCH

	var names []string
	for _, e := range entries {
		names = append(names, e.Name())

		a, err := os.ReadFile(filepath.Join(first, e.Name()))
		if err != nil {
			t.Fatal(err)
		}

		b, err := os.ReadFile(filepath.Join(second, e.Name()))
		if err != nil {
			t.Fatal(err)
		}

		if !bytes.Equal(a, b) {
			t.Errorf("%s differs between two builds", e.Name())
		}
	}

	if want := []string{"SHA256SUMS", base + ".cdx.json", base + ".tar.gz"}; !slices.Equal(names, want) {
		t.Errorf("files = %q, want %q", names, want)
	}

	checkArchive(t, filepath.Join(first, base+".tar.gz"), base)
}

// checkArchive checks order, date, owner and modes of an archive.
func checkArchive(t *testing.T, path, base string) {
	t.Helper()

	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}

	defer func() { _ = f.Close() }()

	unzipped, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}

	var names []string

	for archive := tar.NewReader(unzipped); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}

		if err != nil {
			t.Fatal(err)
		}

		names = append(names, h.Name)

		if h.ModTime.Unix() != 1767225600 || h.Uname != "root" || h.Uid != 0 {
			t.Errorf("%s: date %v, owner %s (%d), want the commit's date and root", h.Name, h.ModTime, h.Uname, h.Uid)
		}

		if executable := h.Mode == 0o755; executable != (h.Name == base+"/yard") {
			t.Errorf("%s: mode %o", h.Name, h.Mode)
		}
	}

	want := []string{base + "/CHANGELOG.md", base + "/LICENSE", base + "/README.md", base + "/yard"}
	if !slices.Equal(names, want) {
		t.Errorf("archive = %q, want %q", names, want)
	}
}

func TestSBOMListsWhatIsLinked(t *testing.T) {
	t.Parallel()

	info := &debug.BuildInfo{
		GoVersion: "go1.26.8", Main: debug.Module{Path: "trainyard"},
		Deps: []*debug.Module{
			{Path: "example.org/a", Version: "v1.2.3", Sum: "h1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="},
			{Path: "example.org/old", Version: "v1.0.0", Replace: &debug.Module{Path: "example.org/new", Version: "v2.0.0"}},
		},
		Settings: []debug.BuildSetting{{Key: "GOOS", Value: "linux"}, {Key: "GOARCH", Value: "arm64"}},
	}

	raw, err := encodeSBOM(info, "ff", &release{Version: "0.1.0", Commit: "abc", Time: time.Unix(1767225600, 0).UTC()})
	if err != nil {
		t.Fatal(err)
	}

	var got sbom
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}

	var refs []string
	for _, c := range got.Components {
		refs = append(refs, c.PURL)
	}

	want := []string{"pkg:golang/std@1.26.8", "pkg:golang/example.org/a@v1.2.3", "pkg:golang/example.org/new@v2.0.0"}
	if !slices.Equal(refs, want) {
		t.Errorf("components = %q, want %q", refs, want)
	}

	if got.Metadata.Timestamp != "2026-01-01T00:00:00Z" || got.Metadata.Component.PURL != "pkg:golang/trainyard@0.1.0" {
		t.Errorf("metadata = %+v", got.Metadata)
	}

	const digest = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
	if h := got.Components[1].Hashes; len(h) != 1 || h[0].Content != digest {
		t.Errorf("hashes = %+v, want go.sum's in hexadecimal", h)
	}
}

func TestBadArgumentsAreRefused(t *testing.T) {
	t.Parallel()

	good := func(changes ...string) []string {
		out := filepath.Join(t.TempDir(), "out")
		args := []string{"-version", "0.1.0", "-commit", "abc", "-epoch", "1", "-source", smallModule(t), "-out", out}

		return append(args, changes...)
	}

	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "old.tar.gz"), nil, 0o600); err != nil {
		t.Fatal(err)
	}

	tests := []struct {
		name string
		args []string
		want string
	}{
		{"a version with a v", good("-version", "v0.1.0"), "-version must be a semantic version"},
		{"a version the changelog does not know", good("-version", "0.2.0"), "no section"},
		{"no commit", good("-commit", ""), "-commit must be given"},
		{"no date", good("-epoch", "0"), "-epoch must be given"},
		{"no folder", good("-out", ""), "-out must be given"},
		{"a folder with an old archive", good("-out", full), "is not empty"},
		{"no architecture", good("-platforms", "linux"), "os/arch"},
		{"a package that does not compile", good("-platforms", "linux/amd64", "-package", "./cmd/none"), "go build"},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			err := run(t.Context(), tt.args, io.Discard, io.Discard)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want one with %q", err, tt.want)
			}
		})
	}
}
