package agent_test

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"trainyard/internal/agent/runtime"
	"trainyard/internal/workdir"
)

// ship puts a folder into the yard and returns the digest of its manifest.
func (y *fakeYard) ship(files map[string]string) string {
	y.t.Helper()
	root := y.t.TempDir()
	for name, text := range files {
		full := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			y.t.Fatal(err)
		}

		if err := os.WriteFile(full, []byte(text), 0o755); err != nil {
			y.t.Fatal(err)
		}
	}

	tree, err := workdir.Scan(y.t.Context(), root, workdir.Options{})
	if err != nil {
		y.t.Fatal(err)
	}

	text, err := workdir.Encode(tree.Manifest)
	if err != nil {
		y.t.Fatal(err)
	}

	y.mu.Lock()
	defer y.mu.Unlock()

	y.files[tree.Digest] = text

	for _, digest := range tree.Digests() {
		f, err := tree.Open(digest)
		if err != nil {
			y.t.Fatal(err)
		}

		data, err := io.ReadAll(f)
		if err != nil {
			y.t.Fatal(err)
		}

		if err := f.Close(); err != nil {
			y.t.Fatal(err)
		}

		y.files[digest] = data
	}

	return tree.Digest
}

func TestFilesAreFetchedOnce(t *testing.T) {
	t.Parallel()
	y, rt := newYard(t), newFakeRuntime()
	launch(t, config(t, y, rt))
	y.await("a report", func() bool { return len(y.reports) > 0 })
	var files runtime.Materialise
	rt.wait(y, "the runtime", func() bool {
		files = rt.files
		return files != nil
	})

	first := y.ship(map[string]string{"train.py": "print(1)", "lib/a.py": "a"})

	second := y.ship(map[string]string{"train.py": "print(2)", "lib/a.py": "a"})
	for _, digest := range []string{first, second, first} {
		dir := filepath.Join(t.TempDir(), "work")
		if err := os.Mkdir(dir, 0o755); err != nil { // as the runtime does
			t.Fatal(err)
		}

		if err := files(t.Context(), digest, dir); err != nil {
			t.Fatal(err)
		}

		tree, err := workdir.Scan(t.Context(), dir, workdir.Options{})
		if err != nil || tree.Digest != digest {
			t.Errorf("made %v (%v), want %s", tree, err, digest)
		}

		// A job may change its files; the store must not notice.
		if err := os.WriteFile(filepath.Join(dir, "lib/a.py"), []byte("changed"), 0o755); err != nil {
			t.Fatal(err)
		}
	}

	y.mu.Lock()
	defer y.mu.Unlock()

	if len(y.fetches) != 5 {
		t.Errorf("%d contents were fetched, want 5", len(y.fetches))
	}

	for digest, n := range y.fetches {
		if n != 1 {
			t.Errorf("%s was fetched %d times", digest, n)
		}
	}
}

func TestFilesThatAreNotThereAreAnError(t *testing.T) {
	t.Parallel()
	y, rt := newYard(t), newFakeRuntime()
	launch(t, config(t, y, rt))
	y.await("a report", func() bool { return len(y.reports) > 0 })
	digest := y.ship(map[string]string{"a": "x"})
	y.change(func() {
		for d := range y.files {
			if d != digest {
				y.files[d] = []byte("damaged")
			}
		}
	})

	var files runtime.Materialise
	rt.wait(y, "the runtime", func() bool {
		files = rt.files
		return files != nil
	})

	dir := filepath.Join(t.TempDir(), "work")
	if err := files(t.Context(), digest, dir); codeOf(err) != "workdir_content_damaged" {
		t.Errorf("damaged content: %v", err)
	}

	if err := files(t.Context(), digest[1:]+"0", dir); err == nil {
		t.Error("no error for a manifest that is not there")
	}

	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("something was made: %v", err)
	}
}
