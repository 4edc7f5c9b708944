package e2e_test

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// blobs lists what the server keeps of files, by when it was written.
func (y *yard) blobs(t *testing.T) map[string]int64 {
	t.Helper()
	all := map[string]int64{}

	err := filepath.WalkDir(filepath.Join(y.Folder, "server", "blobs"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.Contains(path, "/logs/") {
			return err
		}

		info, err := d.Info()
		if err != nil {
			return err
		}

		all[path] = info.ModTime().UnixNano()

		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	return all
}

func TestOnlyChangedFilesAreShipped(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.join(t, []string{"north"})
	folder := filepath.Join(y.Home, "work")
	put := func(name, text string) {
		t.Helper()
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}

		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	put("job.yaml", "workdir: .\nrun: find . -type f | sort | xargs head -n 1\nresources: {cpus: 0.1}\n")
	put("a.txt", "first a\n")
	put("sub/b.txt", "first b\n")
	put("data/big.bin", "not to be shipped\n")
	put("notes.log", "not to be shipped either\n")
	put(".trainyardignore", "data/\n*.log\n")
	file := filepath.Join(folder, "job.yaml")
	first := y.succeed(t, "submit", "-y", file).out
	for _, want := range []string{"first a", "first b"} {
		if !strings.Contains(first, want) {
			t.Errorf("the run did not have %q: %s", want, first)
		}
	}

	if strings.Contains(first, "not to be shipped") {
		t.Errorf("what is ignored was shipped: %s", first)
	}

	before := y.blobs(t)
	put("sub/b.txt", "second b\n")

	second := y.succeed(t, "submit", "-y", file).out
	if !strings.Contains(second, "first a") || !strings.Contains(second, "second b") {
		t.Errorf("the second run had other files: %s", second)
	}

	after := y.blobs(t)
	for path, at := range before {
		if after[path] != at {
			t.Errorf("%s was sent again", path)
		}

		delete(after, path)
	}

	if len(after) != 2 { // the changed file and the list
		t.Errorf("%d files were sent for one change: %v", len(after), slices.Collect(maps.Keys(after)))
	}
}

func TestASetUpIsMadeOnce(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.join(t, []string{"north"})
	count := filepath.Join(y.Folder, "count")
	file := "setup: echo made >> " + count + "; echo v1 > $TRAINYARD_SETUP_DIR/version\nrun: cat $TRAINYARD_SETUP_DIR/version\nresources: {cpus: 0.1}\n"
	for range 2 {
		if r := y.succeed(t, "submit", "-y", y.write(t, file)); !strings.Contains(r.out, "v1") {
			t.Errorf("the run does not have its set-up: %s", r)
		}
	}

	if got := awaitFile(t, count); got != "made\n" {
		t.Errorf("the set-up was made more or less than once: %q", got)
	}

	r := y.run(t, "submit", "-y", y.write(t, "setup: echo cannot; exit 3\nrun: echo never\nresources: {cpus: 0.1}\n"))
	if r.code == 0 || strings.Contains(r.out, "never") || !strings.Contains(r.out+r.err, "FAILED_SETUP") {
		t.Errorf("a set-up that fails: %s", r)
	}
}
