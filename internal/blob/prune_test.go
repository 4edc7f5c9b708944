package blob

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// acting is a reader during which something happens.
type acting struct {
	io.Reader
	act func()
}

func (a *acting) Read(p []byte) (int, error) {
	a.act()
	return a.Reader.Read(p)
}

func TestEmptyFoldersArePruned(t *testing.T) {
	t.Parallel()
	d, err := OpenDir(filepath.Join(t.TempDir(), "blobs"))
	if err != nil {
		t.Fatal(err)
	}

	there := func(folder string, want bool) {
		t.Helper()
		if _, err := os.Stat(filepath.Join(d.Folder(), folder)); errors.Is(err, os.ErrNotExist) == want {
			t.Errorf("%s is there: %v, want %v", folder, err, want)
		}
	}
	remove := func(name string) {
		t.Helper()
		if err := errors.Join(d.Delete(t.Context(), name), d.Prune(name)); err != nil {
			t.Fatal(err)
		}
	}

	for _, name := range []string{"logs/1/a/x", "logs/1/a/y", "logs/1/z"} {
		if err := d.Put(t.Context(), name, strings.NewReader("text")); err != nil {
			t.Fatal(err)
		}
	}

	remove("logs/1/a/x")
	there("logs/1/a", true)
	remove("logs/1/a/y")
	there("logs/1/a", false)
	there("logs/1", true)

	// The folder is empty, and a blob is about to be put there.
	content := &acting{strings.NewReader("text"), func() {
		remove("logs/1/z")
		remove("logs/1/b/old")
	}}
	if err := d.Put(t.Context(), "logs/1/b/new", content); err != nil {
		t.Fatal(err)
	}

	there("logs/1/b", true)
	remove("logs/1/b/new")
	there("logs/1", false)
	there("logs", true)

	if err := d.Prune("logs/1/b/new"); err != nil {
		t.Errorf("once more: %v", err)
	}
}
