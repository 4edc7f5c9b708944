package atomicfile_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"trainyard/internal/atomicfile"
)

// names lists a directory.
func names(t *testing.T, dir string) []string {
	t.Helper()

	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}

	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}

	return list
}

func put(t *testing.T, path, text string, perm os.FileMode) {
	t.Helper()

	if err := os.WriteFile(path, []byte(text), perm); err != nil {
		t.Fatal(err)
	}

	if err := os.Chmod(path, perm); err != nil {
		t.Fatal(err)
	}
}

func wantFile(t *testing.T, path, want string) {
	t.Helper()

	got, err := os.ReadFile(path)
	if err != nil || string(got) != want {
		t.Errorf("%s holds %q (%v), want %q", path, got, err, want)
	}

	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%s: %v (%v), want mode 0600", path, info.Mode(), err)
	}
}

func TestAFileIsReplacedAndClosedToOthers(t *testing.T) {
	t.Parallel()

	for name, options := range map[string][]atomicfile.Option{
		"durable":       nil,
		"volatile":      {atomicfile.Volatile()},
		"single writer": {atomicfile.SingleWriter()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path := filepath.Join(dir, "key")

			if err := atomicfile.Write(path, []byte("first"), options...); err != nil {
				t.Fatal(err)
			}

			wantFile(t, path, "first")

			// A file that was open to all is not open to all afterwards.
			put(t, path, "open", 0o644)

			if err := atomicfile.Write(path, []byte("second"), options...); err != nil {
				t.Fatal(err)
			}

			wantFile(t, path, "second")

			if got := names(t, dir); len(got) != 1 {
				t.Errorf("the directory holds %v", got)
			}
		})
	}
}

func TestASingleWriterOverwritesWhatACrashLeft(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "state")
	put(t, path+".new", "half of a much longer tex", 0o644)

	if err := atomicfile.Write(path, []byte("whole"), atomicfile.SingleWriter()); err != nil {
		t.Fatal(err)
	}

	wantFile(t, path, "whole")

	if got := names(t, dir); len(got) != 1 {
		t.Errorf("the directory holds %v", got)
	}
}

func TestASingleWriterDoesNotFollowALink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "state")
	other := filepath.Join(dir, "other")
	put(t, other, "theirs", 0o600)

	if err := os.Symlink(other, path+".new"); err != nil {
		t.Fatal(err)
	}

	if err := atomicfile.Write(path, []byte("ours"), atomicfile.SingleWriter()); err != nil {
		t.Fatal(err)
	}

	wantFile(t, other, "theirs")
	wantFile(t, path, "ours")
}

func TestLeftoversAreRemovedAndNothingElse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "ca.pem")

	for _, name := range []string{"ca.pem", ".ca.pem.new-123", ".ca.pem.new-9", "ca.pem.new", ".other.new-1", "notes"} {
		put(t, filepath.Join(dir, name), "x", 0o600)
	}

	if err := atomicfile.RemoveLeftovers(path); err != nil {
		t.Fatal(err)
	}

	if got := strings.Join(names(t, dir), " "); got != ".other.new-1 ca.pem notes" {
		t.Errorf("the directory holds %s", got)
	}
}

func TestAReaderThatFailsChangesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "blob")
	put(t, path, "old", 0o600)
	broken := errors.New("connection lost")

	err := atomicfile.WriteFrom(path, io.MultiReader(strings.NewReader("half"), iotest.ErrReader(broken)))
	if !errors.Is(err, broken) {
		t.Errorf("%v, want the reader's error", err)
	}

	wantFile(t, path, "old")

	if got := names(t, dir); len(got) != 1 {
		t.Errorf("the directory holds %v", got)
	}
}

func TestAnErrorNamesTheFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()

	missing := filepath.Join(dir, "missing", "file")
	if err := atomicfile.Write(missing, nil); err == nil || !strings.Contains(err.Error(), "write "+missing) {
		t.Errorf("%v", err)
	}

	// A directory cannot be replaced; the temporary file does not stay.
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}

	if err := atomicfile.Write(filepath.Join(dir, "folder"), nil); err == nil {
		t.Error("a directory was replaced")
	}

	if got := names(t, dir); len(got) != 1 {
		t.Errorf("the directory holds %v", got)
	}
}

func TestTheTemporaryFileIsWhereItIsWanted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	unfinished := filepath.Join(dir, "unfinished")
	if err := os.Mkdir(unfinished, 0o700); err != nil {
		t.Fatal(err)
	}

	seen := 0
	look := readerFunc(func([]byte) (int, error) {
		seen = len(names(t, unfinished))
		return 0, io.EOF
	})

	if err := atomicfile.WriteFrom(filepath.Join(dir, "blob"), look, atomicfile.TempDir(unfinished)); err != nil {
		t.Fatal(err)
	}

	if seen != 1 || len(names(t, unfinished)) != 0 {
		t.Errorf("%d files while writing, %v afterwards", seen, names(t, unfinished))
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestConcurrentWritersLeaveOneWholeFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "logins")

	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			text := bytes.Repeat([]byte{byte('a' + i)}, 10000)
			if err := atomicfile.Write(path, text); err != nil {
				t.Error(err)
			}
		})
	}

	group.Wait()

	got, err := os.ReadFile(path)
	if err != nil || len(got) != 10000 || bytes.Count(got, got[:1]) != 10000 {
		t.Errorf("%d bytes of a mix (%v)", len(got), err)
	}

	if got := names(t, dir); len(got) != 1 {
		t.Errorf("the directory holds %v", got)
	}
}
