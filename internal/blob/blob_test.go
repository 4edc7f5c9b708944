package blob_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/blob"
	"trainyard/internal/blob/blobtest"
	"trainyard/internal/fault"
)

func TestAFolderKeepsTheContract(t *testing.T) {
	t.Parallel()
	blobtest.Run(t, func(t *testing.T) blob.Store {
		t.Helper()
		return open(t, filepath.Join(t.TempDir(), "not", "there", "yet"))
	})
}

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

	return blobtest.Read(t, r, err)
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

	if diff := cmp.Diff([]string{"a"}, blobtest.Names(t, d, "")); diff != "" {
		t.Errorf("the half is listed: %s", diff)
	}

	d = open(t, root)

	if diff := cmp.Diff([]string{"a"}, files(t, root)); diff != "" {
		t.Errorf("files after a restart: %s", diff)
	}

	if got := get(t, d, "a"); got != "kept" {
		t.Errorf("read %q after a restart", got)
	}

	put(t, d, "b", "still works")
}

func TestReaderThatFailsLeavesNoFile(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	d := open(t, root)
	broken := errors.New("line is down")
	err := d.Put(t.Context(), "a/b", io.MultiReader(strings.NewReader("half of it"), iotest.ErrReader(broken)))
	if !errors.Is(err, broken) {
		t.Errorf("put = %v, want the reader's error", err)
	}

	if got := files(t, root); len(got) > 0 {
		t.Errorf("left behind: %v", got)
	}
}

func TestNothingIsReadOrWrittenOutsideTheFolder(t *testing.T) {
	t.Parallel()
	outer := t.TempDir()
	d := open(t, filepath.Join(outer, "blobs"))

	if err := os.WriteFile(filepath.Join(outer, "secret"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}

	for _, name := range []string{"../secret", "a/../../secret", ".unfinished", ".unfinished/x"} {
		_, getErr := d.Get(t.Context(), name)
		for what, err := range map[string]error{
			"put": d.Put(t.Context(), name, strings.NewReader("x")), "get": getErr, "delete": d.Delete(t.Context(), name),
		} {
			if fault.KindOf(err) != fault.Invalid {
				t.Errorf("%s %q: %v, want it refused", what, name, err)
			}
		}
	}

	for _, err := range d.List(t.Context(), ".unfinished/") {
		if fault.KindOf(err) != fault.Invalid {
			t.Errorf("list of what is being written: %v", err)
		}
	}

	if diff := cmp.Diff([]string{"secret"}, files(t, outer)); diff != "" {
		t.Errorf("files: %s", diff)
	}
}

// A folder that is not there, as when its volume is not mounted, does not say that a blob is not found: what
// refers to it would be taken for lost.
func TestABlobIsNotMissingWhileTheFolderIs(t *testing.T) {
	t.Parallel()

	root := filepath.Join(t.TempDir(), "blobs")
	store, err := blob.OpenDir(root)
	if err != nil {
		t.Fatal(err)
	}

	if err := store.Put(t.Context(), "chunks/a", strings.NewReader("a")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(root, root+".aside"); err != nil {
		t.Fatal(err)
	}

	if _, err := store.Get(t.Context(), "chunks/a"); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("Get without the folder: %v, want it unavailable", err)
	}
	if has, err := store.Has(t.Context(), "chunks/a"); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("Has without the folder: %v, %v, want it unavailable", has, err)
	}

	if err := os.Rename(root+".aside", root); err != nil {
		t.Fatal(err)
	}

	if has, err := store.Has(t.Context(), "chunks/a"); err != nil || !has {
		t.Errorf("Has with the folder back: %v, %v", has, err)
	}
	if _, err := store.Stat(t.Context(), "chunks/b"); fault.KindOf(err) != fault.NotFound {
		t.Errorf("a blob that was never stored: %v, want it not found", err)
	}
}

// The folder of logs has an entry for each job, and whoever looked for one log read all of them.
func TestListingAFolderDoesNotReadItsNeighbours(t *testing.T) { //nolint:paralleltest // it counts allocations
	root := t.TempDir()
	d := open(t, root)
	put(t, d, "logs/j1/0/a", "x")

	list := func() {
		n := 0
		for _, err := range d.List(t.Context(), "logs/j1/0/") {
			if err != nil {
				t.Fatal(err)
			}

			n++
		}

		if n != 1 {
			t.Fatalf("%d blobs, want 1", n)
		}
	}

	alone := testing.AllocsPerRun(10, list)

	for i := range 500 {
		if err := os.MkdirAll(filepath.Join(root, "logs", "j"+strconv.Itoa(i+2)), 0o700); err != nil {
			t.Fatal(err)
		}
	}

	if among := testing.AllocsPerRun(10, list); among > alone+50 {
		t.Errorf("%v allocations, and %v without neighbours", among, alone)
	}

	for range d.List(t.Context(), "logs/j1/0/a/b/") {
		t.Error("something is below a blob")
	}
}
