package tarstream

import (
	"archive/tar"
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func open(t *testing.T, dir string) *os.Root {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = root.Close() })

	return root
}

// tree lists what is below a folder: files with their content, links with their target.
func tree(t *testing.T, dir string) []string {
	t.Helper()
	var list []string
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == dir {
			return err
		}

		rel, _ := filepath.Rel(dir, name)
		switch {
		case d.IsDir():
			rel += "/"
		case d.Type()&fs.ModeSymlink != 0:
			to, err := os.Readlink(name)
			if err != nil {
				return err
			}

			rel += " -> " + to
		default:
			text, err := os.ReadFile(name)
			if err != nil {
				return err
			}

			rel += " " + string(text)
		}

		list = append(list, rel)

		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	return list
}

func fill(t *testing.T, dir string) {
	t.Helper()
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(filepath.Join(dir, "d/e"), 0o750))
	must(os.WriteFile(filepath.Join(dir, "d/a"), []byte("one"), 0o600))
	must(os.WriteFile(filepath.Join(dir, "d/e/b"), []byte("two"), 0o700))
	must(os.Symlink("a", filepath.Join(dir, "d/inside")))
	must(os.Symlink("/etc/passwd", filepath.Join(dir, "d/outside")))
	must(os.Symlink("../../x", filepath.Join(dir, "d/e/above")))
}

func TestAFolderIsCopied(t *testing.T) {
	t.Parallel()

	for target, want := range map[string][]string{
		".":    {"d/", "d/a one", "d/e/", "d/e/b two", "d/inside -> a"},
		"new":  {"new/", "new/a one", "new/e/", "new/e/b two", "new/inside -> a"},
		"new/": {"new/", "new/d/", "new/d/a one", "new/d/e/", "new/d/e/b two", "new/d/inside -> a"},
		"x/y":  {"x/", "x/y/", "x/y/a one", "x/y/e/", "x/y/e/b two", "x/y/inside -> a"},
	} {
		t.Run(target, func(t *testing.T) {
			t.Parallel()
			from, to := t.TempDir(), t.TempDir()
			fill(t, from)

			var stream bytes.Buffer
			if err := Write(open(t, from), "d", &stream); err != nil {
				t.Fatal(err)
			}

			var skipped []string
			if err := Read(open(t, to), target, &stream, func(name string) { skipped = append(skipped, name) }); err != nil {
				t.Fatal(err)
			}

			if diff := cmp.Diff(want, tree(t, to)); diff != "" {
				t.Errorf("copied (-want +got):\n%s", diff)
			}

			if len(skipped) != 2 {
				t.Errorf("skipped %v", skipped)
			}
		})
	}
}

func TestNothingIsReadOutsideOfTheFolder(t *testing.T) {
	t.Parallel()
	outer := t.TempDir()
	dir := filepath.Join(outer, "work")
	fill(t, dir)

	if err := os.WriteFile(filepath.Join(outer, "secret"), []byte("gold"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("..", filepath.Join(dir, "up")); err != nil {
		t.Fatal(err)
	}

	for _, name := range []string{
		"../secret", "up/secret", "up", filepath.Join(outer, "secret"), "d/../../secret", "d/outside",
	} {
		var stream bytes.Buffer
		if err := Write(open(t, dir), name, &stream); err == nil || strings.Contains(stream.String(), "gold") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// archive makes a tar stream that no honest side sends.
func archive(t *testing.T, headers ...tar.Header) *bytes.Buffer {
	t.Helper()
	var stream bytes.Buffer
	w := tar.NewWriter(&stream)
	for _, h := range headers {
		if h.Typeflag == tar.TypeReg {
			h.Size = 4
		}

		h.Mode = 0o600
		err := w.WriteHeader(&h)
		if err == nil && h.Size > 0 {
			_, err = w.Write([]byte("evil"))
		}

		if err != nil {
			t.Fatal(err)
		}
	}

	if err := w.Close(); err != nil {
		t.Fatal(err)
	}

	return &stream
}

func TestNothingIsWrittenOutsideOfTheFolder(t *testing.T) {
	t.Parallel()

	for name, stream := range map[string][]tar.Header{
		"a name that leads out": {{Name: "../x", Typeflag: tar.TypeReg}},
		"an absolute name":      {{Name: "/tmp/tarstream-x", Typeflag: tar.TypeReg}},
		"a link that was there": {{Name: "up/x", Typeflag: tar.TypeReg}},
		"a link, then a file in it": {
			{Name: "l", Linkname: "..", Typeflag: tar.TypeSymlink}, {Name: "l/x", Typeflag: tar.TypeReg},
		},
		"a link to a link": {
			{Name: "d/l", Linkname: "../up", Typeflag: tar.TypeSymlink}, {Name: "d/l/x", Typeflag: tar.TypeReg},
		},
		"a device": {{Name: "x", Typeflag: tar.TypeChar}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			outer := t.TempDir()
			dir := filepath.Join(outer, "work")

			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink("..", filepath.Join(dir, "up")); err != nil {
				t.Fatal(err)
			}

			err := Read(open(t, dir), ".", archive(t, stream...), nil)

			left := slices.DeleteFunc(tree(t, outer), func(n string) bool { return strings.HasPrefix(n, "work/") })
			if len(left) > 0 {
				t.Errorf("%v was written: %v", left, err)
			}
		})
	}
}

func TestAFileIsReplacedAsAWhole(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()

	if err := os.WriteFile(filepath.Join(dir, "a"), []byte("something longer"), 0o600); err != nil {
		t.Fatal(err)
	}

	stream := archive(t, tar.Header{Name: "a", Typeflag: tar.TypeReg})
	stream.Truncate(514) // it breaks off in the middle of the content

	if err := Read(open(t, dir), ".", stream, nil); err == nil {
		t.Error("a stream that breaks off was taken for whole")
	}

	if diff := cmp.Diff([]string{"a something longer"}, tree(t, dir)); diff != "" {
		t.Errorf("after a stream that broke off (-want +got):\n%s", diff)
	}
}
