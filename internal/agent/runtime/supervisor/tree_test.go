package supervisor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"trainyard/internal/agent/runtime/rundir"

	"golang.org/x/sys/unix"
)

func TestCopyKeepsLinksModesAndTimes(t *testing.T) {
	t.Parallel()
	from, to := filepath.Join(t.TempDir(), "from"), filepath.Join(t.TempDir(), "to")
	when := time.Unix(1_600_000_000, 0)
	steps := []error{
		os.MkdirAll(filepath.Join(from, "closed"), 0o700),
		os.WriteFile(filepath.Join(from, "closed", "file"), []byte("text"), 0o640),
		os.Symlink("closed/file", filepath.Join(from, "link")),
		unix.Mkfifo(filepath.Join(from, "pipe"), 0o600),
		os.Chmod(filepath.Join(from, "closed"), 0o500),
		os.Chtimes(filepath.Join(from, "closed", "file"), when, when),
		os.Chtimes(filepath.Join(from, "closed"), when, when),
	}

	if err := errors.Join(steps...); err != nil {
		t.Fatal(err)
	}

	if err := copyTree(from, to); err != nil {
		t.Fatal(err)
	}

	got := ""
	for _, name := range []string{"closed", "closed/file", "link"} {
		info, err := os.Lstat(filepath.Join(to, name))
		if err != nil {
			t.Fatal(err)
		}

		got += fmt.Sprintf(
			"%s %v %v\n",
			name,
			info.Mode(),
			info.Mode().Type() != 0 && !info.IsDir() || info.ModTime().Equal(when),
		)
	}

	want := "closed dr-x------ true\nclosed/file -rw-r----- true\nlink Lrwxrwxrwx true\n"
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}

	if _, err := os.Lstat(filepath.Join(to, "pipe")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a pipe was copied: %v", err)
	}

	if err := rundir.RemoveTree(to); err != nil {
		t.Error(err)
	}
}

func TestFingerprintSeesEveryChange(t *testing.T) {
	t.Parallel()
	changes := map[string]func(dir string) error{
		"nothing":          func(string) error { return nil },
		"a new file":       func(dir string) error { return os.WriteFile(filepath.Join(dir, "b"), nil, 0o600) },
		"other content":    func(dir string) error { return os.WriteFile(filepath.Join(dir, "a"), []byte("abcd"), 0o600) },
		"another mode":     func(dir string) error { return os.Chmod(filepath.Join(dir, "a"), 0o640) },
		"a link to a file": func(dir string) error { return os.Symlink("a", filepath.Join(dir, "l")) },
		"a file less":      func(dir string) error { return os.Remove(filepath.Join(dir, "a")) },
	}

	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "a"), []byte("abc"), 0o600); err != nil {
				t.Fatal(err)
			}

			before, size, err := fingerprint(dir)
			if err != nil || size < 3 {
				t.Fatal(size, err)
			}

			if err := change(dir); err != nil {
				t.Fatal(err)
			}

			after, _, err := fingerprint(dir)
			if err != nil || (after == before) != (name == "nothing") {
				t.Errorf("changed = %v, %v", after != before, err)
			}
		})
	}
}
