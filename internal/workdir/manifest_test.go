package workdir_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"trainyard/internal/api"
	"trainyard/internal/workdir"
	"trainyard/test/fuzzing"
)

func errorsAs(err error, target any) bool { return errors.As(err, target) }

func TestManifestRefuses(t *testing.T) {
	t.Parallel()
	d := strings.Repeat("a", 64)
	file := func(path string) api.ManifestFile { return api.ManifestFile{Path: path, Digest: d} }
	tests := []struct {
		name  string
		files []api.ManifestFile
	}{
		{"a path that climbs", []api.ManifestFile{file("../x")}},
		{"a path that climbs in the middle", []api.ManifestFile{file("a/../../x")}},
		{"an absolute path", []api.ManifestFile{file("/etc/passwd")}},
		{"an empty path", []api.ManifestFile{file("")}},
		{"a path with an empty element", []api.ManifestFile{file("a//b")}},
		{"a path with a dot", []api.ManifestFile{file("./a")}},
		{"a path with a NUL", []api.ManifestFile{file("a\x00b")}},
		{"a path that is not UTF-8", []api.ManifestFile{file("a\xff")}},
		{"an element that is too long", []api.ManifestFile{file(strings.Repeat("a", 256))}},
		{"the same path twice", []api.ManifestFile{file("a"), file("a")}},
		{"paths out of order", []api.ManifestFile{file("b"), file("a")}},
		{"a path below a file", []api.ManifestFile{file("a"), file("a.b"), file("a/b")}},
		{"a path below a link", []api.ManifestFile{{Path: "a", Link: "b"}, file("a/b")}},
		{"a link outside", []api.ManifestFile{{Path: "a", Link: "../b"}}},
		{"an absolute link", []api.ManifestFile{{Path: "a", Link: "/b"}}},
		{"a link with a digest", []api.ManifestFile{{Path: "a", Link: "b", Digest: d}}},
		{"neither link nor digest", []api.ManifestFile{{Path: "a"}}},
		{"a digest in capitals", []api.ManifestFile{{Path: "a", Digest: strings.Repeat("A", 64)}}},
		{"a digest that is a path", []api.ManifestFile{{Path: "a", Digest: "../../etc/passwd"}}},
		{"set-user-id", []api.ManifestFile{{Path: "a", Digest: d, Mode: 0o4755}}},
		{"a name with an escape", []api.ManifestFile{file("a\x1b[2J")}},
		{"a name with a newline", []api.ManifestFile{file("a\nb")}},
		{"a name with a C1 control", []api.ManifestFile{file("a\u009bb")}},
		{"a link to a name with an escape", []api.ManifestFile{{Path: "a", Link: "b\x1b"}}},
		{"a path that is too deep", []api.ManifestFile{file(strings.Repeat("a/", 128) + "a")}},
		{"a link outside through another", []api.ManifestFile{
			{Path: "a/b/l", Link: "../.."}, {Path: "x", Link: "a/b/l/../identity"},
		}},
		{"a link outside through two others", []api.ManifestFile{
			{Path: "a/l", Link: ".."}, {Path: "b/m", Link: "../a/l"}, {Path: "c/d/e/n", Link: "../../../b/m/../x"},
		}},
		{"links that lead through too many others", chain(41)},
		{"a size below zero", []api.ManifestFile{{Path: "a", Digest: d, Size: -1}}},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := api.Manifest{Files: tt.files}
			if code := codeOf(workdir.Check(m)); code != "manifest_invalid" {
				t.Errorf("code = %q, want manifest_invalid", code)
			}

			err := workdir.Materialise(t.Context(), m, filepath.Join(t.TempDir(), "w"), nil)
			if code := codeOf(err); code != "manifest_invalid" {
				t.Errorf("Materialise: %v, want manifest_invalid", err)
			}
		})
	}
}

// chain returns links that lead through each other to a file.
func chain(links int) []api.ManifestFile {
	list := []api.ManifestFile{{Path: "l00", Digest: strings.Repeat("a", 64)}}
	for i := 1; i <= links; i++ {
		list = append(list, api.ManifestFile{Path: fmt.Sprintf("l%02d", i), Link: fmt.Sprintf("l%02d", i-1)})
	}

	return list
}

func TestManifestAcceptsLinksThatStayInside(t *testing.T) {
	t.Parallel()
	d := strings.Repeat("a", 64)

	for name, files := range map[string][]api.ManifestFile{
		"to the folder itself":  {{Path: "a/b/l", Link: "../.."}},
		"through another":       {{Path: "a/b", Digest: d}, {Path: "c/l", Link: "../a"}, {Path: "x", Link: "c/l/../a/b"}},
		"to what is not there":  {{Path: "a", Link: "b/../c"}},
		"in circles":            {{Path: "a", Link: "b/x"}, {Path: "b", Link: "a"}},
		"through as many as go": chain(40),
	} {
		if err := workdir.Check(api.Manifest{Files: files}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzManifest(f *testing.F) {
	d := strings.Repeat("a", 64)
	for _, seed := range []string{
		`{"files":[]}`, `{"files":null}`, `{`, `{"files":[{"path":"a","mode":420,"size":1,"digest":"` + d + `"}]}`,
		`{"files":[{"path":"../a","digest":"` + d + `"}]}`, `{"files":[{"path":"a","link":"b/../../c"}]}`,
		`{"files":[{"path":"a","link":"b"},{"path":"a/b","digest":"` + d + `"}]}`, `{"files":[]} x`,
		`{"files":[{"path":"a/b/l","link":"../.."},{"path":"x","link":"a/b/l/../c"}]}`,
		`{"files":[{"path":"s/l","mode":511,"size":0,"link":"../.."},{"path":"s/x","digest":"` + d + `"}]}`,
	} {
		f.Add([]byte(seed))
	}

	f.Add([]byte(`{"files":[` + fuzzing.Long(`{"path":"a","link":"b"},`) + `{"path":"c","link":"b"}]}`))
	f.Add([]byte(`{"files":[{"path":"` + fuzzing.Long("a/") + `b","digest":"` + d + `"}]}`))

	f.Fuzz(func(t *testing.T, text []byte) {
		defer fuzzing.Bounded(t)()

		m, err := workdir.Decode(bytes.NewReader(text))
		if err != nil {
			return
		}

		canonical, err := workdir.Encode(m)
		if err != nil {
			t.Fatalf("an accepted manifest cannot be encoded: %v", err)
		}

		again, err := workdir.Decode(bytes.NewReader(canonical))
		if err != nil {
			t.Fatalf("its canonical form is refused: %v", err)
		}

		if second, err := workdir.Encode(again); err != nil || !bytes.Equal(canonical, second) {
			t.Fatalf("the canonical form changes: %s then %s (%v)", canonical, second, err)
		}

		materialiseInside(t, m)
	})
}

// materialiseInside makes the folder and checks that nothing appeared outside it.
func materialiseInside(t *testing.T, m api.Manifest) {
	t.Helper()
	outer := t.TempDir()
	dir := filepath.Join(outer, "in", "work")
	if err := os.Mkdir(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}

	// The contents are unknown, so only links and folders can be made.
	var links api.Manifest
	for _, f := range m.Files {
		if f.Link != "" {
			links.Files = append(links.Files, f)
		}
	}

	fetch := func(context.Context, string) (io.ReadCloser, error) { return nil, errors.New("no content") }

	// Names that the file system refuses are an error, never a write elsewhere.
	made := workdir.Materialise(t.Context(), links, dir, fetch) == nil
	if made {
		linksStayInside(t, dir, links.Files)
	}

	err := filepath.WalkDir(outer, func(name string, _ fs.DirEntry, err error) error {
		if err == nil && name != outer && name != filepath.Dir(dir) && (!made || !strings.HasPrefix(name, dir)) {
			t.Errorf("%s was made", name)
		}

		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// linksStayInside checks that no link of a folder leads outside, however many others it leads through.
func linksStayInside(t *testing.T, dir string, links []api.ManifestFile) {
	t.Helper()

	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}

	defer func() { _ = root.Close() }()

	for _, l := range links {
		if _, err := root.Stat(l.Path); err != nil && strings.Contains(err.Error(), "escapes") {
			t.Errorf("link %s -> %s: %v", l.Path, l.Link, err)
		}
	}
}
