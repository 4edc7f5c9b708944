package blob_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/blob"
	"trainyard/internal/fault"
)

func open(t *testing.T, root string) *blob.Dir {
	t.Helper()
	d, err := blob.OpenDir(root)
	if err != nil {
		t.Fatal(err)
	}

	return d
}

func put(t *testing.T, d *blob.Dir, name, text string) {
	t.Helper()

	if err := d.Put(t.Context(), name, strings.NewReader(text)); err != nil {
		t.Fatalf("put %s: %v", name, err)
	}
}

func get(t *testing.T, d *blob.Dir, name string) string {
	t.Helper()
	r, err := d.Get(t.Context(), name)
	if err != nil {
		return string(fault.KindOf(err))
	}

	defer func() { _ = r.Close() }()

	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatalf("read %s: %v", name, err)
	}

	return string(text)
}

func list(t *testing.T, d *blob.Dir, prefix string) []string {
	t.Helper()
	names, err := d.List(t.Context(), prefix)
	if err != nil {
		t.Fatalf("list %q: %v", prefix, err)
	}

	return names
}

// files lists every file below a folder, whatever it is.
func files(t *testing.T, root string) []string {
	t.Helper()
	var names []string

	err := filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			names = append(names, strings.TrimPrefix(path, root+"/"))
		}

		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	return names
}

func TestBlobsAreKept(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "not", "there", "yet")
	d := open(t, root)
	put(t, d, "logs/j1.1/0", "hello")
	put(t, d, "logs/j1.10/0", "")
	put(t, d, "files/ab/cd", "x")
	put(t, d, "logs/j1.1/0", "hello") // the same once more

	for range 2 {
		if got := get(t, d, "logs/j1.1/0"); got != "hello" {
			t.Errorf("read %q, want hello", got)
		}

		for prefix, want := range map[string][]string{
			"":           {"files/ab/cd", "logs/j1.1/0", "logs/j1.10/0"},
			"logs/":      {"logs/j1.1/0", "logs/j1.10/0"},
			"logs/j1.1":  {"logs/j1.1/0", "logs/j1.10/0"},
			"logs/j1.1/": {"logs/j1.1/0"},
			"lo":         {"logs/j1.1/0", "logs/j1.10/0"},
			"nothing/":   nil,
			"f":          {"files/ab/cd"},
			".":          nil,
		} {
			if diff := cmp.Diff(want, list(t, d, prefix)); diff != "" {
				t.Errorf("list %q: %s", prefix, diff)
			}
		}

		d = open(t, root) // and all is there after a restart
	}

	if err := d.Delete(t.Context(), "logs/j1.1/0"); err != nil {
		t.Error(err)
	}

	if err := d.Delete(t.Context(), "logs/j1.1/0"); err != nil {
		t.Errorf("deleting what is not there: %v", err)
	}

	if got := get(t, d, "logs/j1.1/0"); got != "not_found" {
		t.Errorf("read %q after it was deleted", got)
	}
}

func TestFoldersAreNoBlobs(t *testing.T) {
	t.Parallel()
	d := open(t, t.TempDir())
	put(t, d, "a/b", "x")

	for _, name := range []string{"a", "a/b/c", "c"} {
		has, err := d.Has(t.Context(), name)
		if err != nil || has || get(t, d, name) != "not_found" {
			t.Errorf("%s: has %v, %v, read %q; want nothing there", name, has, err, get(t, d, name))
		}

		if err := d.Delete(t.Context(), name); err != nil {
			t.Errorf("delete %s: %v", name, err)
		}
	}

	if has, err := d.Has(t.Context(), "a/b"); err != nil || !has {
		t.Errorf("a/b is gone: %v, %v", has, err)
	}

	if err := d.Put(t.Context(), "a/b/c", strings.NewReader("x")); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("a blob below a blob: %v", err)
	}
}

func TestCrashLeavesNothingHalfWritten(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	d := open(t, root)
	put(t, d, "a", "kept")

	// What a process that was killed in the middle of Put leaves behind.
	if err := os.WriteFile(filepath.Join(root, ".unfinished", "123"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff([]string{"a"}, list(t, d, "")); diff != "" {
		t.Errorf("the half is listed: %s", diff)
	}

	d = open(t, root)

	if diff := cmp.Diff([]string{"a"}, files(t, root)); diff != "" {
		t.Errorf("files after a restart: %s", diff)
	}

	put(t, d, "b", "still works")
}

func TestReaderThatFailsLeavesNoTrace(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	d := open(t, root)
	broken := errors.New("line is down")
	err := d.Put(t.Context(), "a/b", io.MultiReader(strings.NewReader("half of it"), iotest.ErrReader(broken)))
	if !errors.Is(err, broken) || fault.KindOf(err) != fault.Unavailable {
		t.Errorf("put = %v, want the reader's error", err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	if err := d.Put(ctx, "a/b", strings.NewReader("x")); !errors.Is(err, context.Canceled) {
		t.Errorf("put = %v, want cancelled", err)
	}

	if got := files(t, root); len(got) > 0 {
		t.Errorf("left behind: %v", got)
	}
}

func TestNamesThatLeadAstrayAreRefused(t *testing.T) {
	t.Parallel()
	outer := t.TempDir()
	d := open(t, filepath.Join(outer, "blobs"))

	if err := os.WriteFile(filepath.Join(outer, "secret"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}

	for _, name := range []string{"", ".", "..", "../secret", "a/../../secret", "/etc/passwd", "a//b", "a/", "./a", "a/./b", "a\x00b", ".unfinished", ".unfinished/x"} {
		_, getErr := d.Get(t.Context(), name)
		_, hasErr := d.Has(t.Context(), name)
		for what, err := range map[string]error{
			"put": d.Put(t.Context(), name, strings.NewReader("x")), "get": getErr, "has": hasErr, "delete": d.Delete(t.Context(), name),
		} {
			if fault.KindOf(err) != fault.Invalid {
				t.Errorf("%s %q: %v, want it refused", what, name, err)
			}
		}
	}

	for _, prefix := range []string{"../", "/", "/etc/", "a/../../", ".unfinished/"} {
		if names, err := d.List(t.Context(), prefix); fault.KindOf(err) != fault.Invalid {
			t.Errorf("list %q: %v, %v, want it refused", prefix, names, err)
		}
	}

	if diff := cmp.Diff([]string{"secret"}, files(t, outer)); diff != "" {
		t.Errorf("files: %s", diff)
	}
}

func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	d := open(t, t.TempDir())
	large := bytes.Repeat([]byte("0123456789"), 10_000)

	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			name := fmt.Sprintf("x/%d/blob", i%4) // four write each
			if err := d.Put(t.Context(), name, bytes.NewReader(large)); err != nil {
				t.Errorf("put %s: %v", name, err)
			}

			r, err := d.Get(t.Context(), name)
			if err != nil {
				t.Errorf("get %s: %v", name, err)
				return
			}

			got, err := io.ReadAll(r)
			if err := errors.Join(err, r.Close()); err != nil || !bytes.Equal(got, large) {
				t.Errorf("%s has %d bytes, %v", name, len(got), err)
			}
		})
	}

	all.Wait()

	if got := list(t, d, "x/"); len(got) != 4 {
		t.Errorf("listed %v, want 4", got)
	}
}
