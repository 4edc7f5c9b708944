package backup_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"trainyard/internal/backup"
	"trainyard/internal/fault"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func must(t *testing.T, err error) {
	t.Helper()

	if err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o700))
	must(t, os.WriteFile(path, []byte(text), 0o600))
}

func wantText(t *testing.T, path, want string) {
	t.Helper()

	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("%s is %q, %v; want %q", path, got, err, want)
	}
}

func wantCode(t *testing.T, err error, code string) {
	t.Helper()

	var f *fault.Error
	if !errors.As(err, &f) || f.Code != code {
		t.Errorf("got %v, want %s", err, code)
	}
}

// yard makes a folder with files of a yard.
func yard(t *testing.T) string {
	t.Helper()
	data := t.TempDir()
	write(t, filepath.Join(data, "blobs/a/one"), "first")
	write(t, filepath.Join(data, "blobs/two"), "second")
	write(t, filepath.Join(data, "blobs/.unfinished/three"), "half")
	write(t, filepath.Join(data, "logs/j1"), "output")

	return data
}

// backUp makes a backup of a yard and returns how many files were linked.
func backUp(t *testing.T, data, folder string, created time.Time) int {
	t.Helper()
	w, err := backup.New(folder, "yard-1")
	must(t, err)
	write(t, w.Path(backup.Database), "database")
	must(t, w.Include(backup.Database))
	must(t, w.Add(t.Context(), filepath.Join(data, "logs"), "logs", false))
	must(t, w.Add(t.Context(), filepath.Join(data, "blobs"), "blobs", true, ".unfinished"))
	m, err := w.Finish(backup.Manifest{Yard: "yard-1", Created: created})
	must(t, err)

	if got, err := backup.Open(folder); err != nil || got != m {
		t.Errorf("it says of itself %+v, %v; want %+v", got, err, m)
	}

	return w.Linked
}

func inode(t *testing.T, path string) os.FileInfo {
	t.Helper()
	info, err := os.Stat(path)
	must(t, err)

	return info
}

func TestASecondBackupCopiesOnlyWhatIsNew(t *testing.T) {
	t.Parallel()
	data, all := yard(t), t.TempDir()
	first, second := filepath.Join(all, "monday"), filepath.Join(all, "tuesday")

	if n := backUp(t, data, first, noon); n != 0 {
		t.Errorf("the first backup linked %d files", n)
	}

	write(t, filepath.Join(data, "blobs/three"), "third")
	must(t, os.Remove(filepath.Join(data, "blobs/two")))

	if n := backUp(t, data, second, noon.Add(time.Hour)); n != 1 {
		t.Errorf("the second backup linked %d files, want the blob that both have", n)
	}

	if !os.SameFile(inode(t, filepath.Join(first, "blobs/a/one")), inode(t, filepath.Join(second, "blobs/a/one"))) {
		t.Error("a blob that did not change was copied")
	}

	if os.SameFile(inode(t, filepath.Join(first, "logs/j1")), inode(t, filepath.Join(second, "logs/j1"))) {
		t.Error("a file that may grow was linked")
	}

	// Each is complete without the other.
	must(t, os.RemoveAll(first))
	must(t, backup.Verify(t.Context(), second))
	wantText(t, filepath.Join(second, "blobs/three"), "third")

	for _, gone := range []string{"blobs/two", "blobs/.unfinished"} {
		if _, err := os.Stat(filepath.Join(second, gone)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is in the backup: %v", gone, err)
		}
	}
}

func TestABlobThatWasReplacedIsCopiedAgain(t *testing.T) {
	t.Parallel()
	data, all := yard(t), t.TempDir()
	backUp(t, data, filepath.Join(all, "monday"), noon)

	path := filepath.Join(data, "blobs/two")
	write(t, path, "SECOND")
	must(t, os.Chtimes(path, noon, noon))
	backUp(t, data, filepath.Join(all, "tuesday"), noon.Add(time.Hour))
	wantText(t, filepath.Join(all, "tuesday/blobs/two"), "SECOND")
}

func TestWhatIsMissingIsPutBackAndWhatIsThereStays(t *testing.T) {
	t.Parallel()
	data, folder := yard(t), filepath.Join(t.TempDir(), "backup")
	backUp(t, data, folder, noon)

	write(t, filepath.Join(data, "logs/j1"), "output and more")
	must(t, os.RemoveAll(filepath.Join(data, "blobs/a")))

	n, err := backup.PutBack(t.Context(), folder, "blobs", filepath.Join(data, "blobs"))
	must(t, err)

	if n != 1 {
		t.Errorf("%d blobs were put back, want the one that was missing", n)
	}

	n, err = backup.PutBack(t.Context(), folder, "logs", filepath.Join(data, "logs"))
	must(t, err)

	if n != 0 {
		t.Errorf("%d files with output were put back, want none", n)
	}

	wantText(t, filepath.Join(data, "blobs/a/one"), "first")
	wantText(t, filepath.Join(data, "logs/j1"), "output and more")
}

func TestADamagedBackupIsRefused(t *testing.T) {
	t.Parallel()

	for name, damage := range map[string]func(folder string){
		"other bytes":    func(folder string) { write(t, filepath.Join(folder, "blobs/two"), "sEcond") },
		"a missing file": func(folder string) { must(t, os.Remove(filepath.Join(folder, "logs/j1"))) },
		"the database":   func(folder string) { write(t, filepath.Join(folder, backup.Database), "data") },
		"the list":       func(folder string) { write(t, filepath.Join(folder, "files"), "x 1 2 ../../etc/passwd\n") },
	} {
		folder := filepath.Join(t.TempDir(), "backup")
		backUp(t, yard(t), folder, noon)
		damage(folder)
		t.Log(name)
		wantCode(t, backup.Verify(t.Context(), folder), "damaged_backup")
	}
}

func TestOnlyACompleteBackupHasItsName(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "backup")
	w, err := backup.New(folder, "yard-1")
	must(t, err)
	must(t, w.Add(t.Context(), filepath.Join(yard(t), "logs"), "logs", false))

	_, err = backup.Open(folder)
	wantCode(t, err, "not_a_backup")
	must(t, w.Discard())
	backUp(t, yard(t), folder, noon)

	_, err = backup.New(folder, "yard-1")
	wantCode(t, err, "file_exists")
}

// A server that removes and renames blobs while they are copied does no harm: what is listed is there and whole, and
// what is looked for twice is found under its new name.
func TestABackupDuringARemovalIsComplete(t *testing.T) {
	t.Parallel()
	data, folder := t.TempDir(), filepath.Join(t.TempDir(), "backup")
	const files = 300

	for n := range files {
		write(t, filepath.Join(data, "blobs/logs", "j"+strconv.Itoa(n), "old"), "text")
		write(t, filepath.Join(data, "blobs/files", strconv.Itoa(n)), "text")
	}

	w, err := backup.New(folder, "yard-1")
	must(t, err)

	done := make(chan error)

	go func() {
		var errs []error
		for n := files - 1; n >= 0; n-- { // against the order in which they are copied
			from, to := filepath.Join(data, "blobs/logs", "j"+strconv.Itoa(n), "old"), filepath.Join(data, "blobs/logs/0")
			errs = append(errs, os.MkdirAll(to, 0o700), os.Link(from, filepath.Join(to, strconv.Itoa(n))), os.Remove(from),
				os.Remove(filepath.Dir(from)), os.Remove(filepath.Join(data, "blobs/files", strconv.Itoa(n))))
		}

		done <- errors.Join(errs...)
	}()

	must(t, w.Add(t.Context(), filepath.Join(data, "blobs"), "blobs", true))
	must(t, <-done)
	must(t, w.Add(t.Context(), filepath.Join(data, "blobs/logs"), "blobs/logs", true))

	_, err = w.Finish(backup.Manifest{Yard: "yard-1", Created: noon})
	must(t, err)
	must(t, backup.Verify(t.Context(), folder))

	restored := t.TempDir()
	_, err = backup.PutBack(t.Context(), folder, "blobs", restored)
	must(t, err)

	for n := range files {
		wantText(t, filepath.Join(restored, "logs/0", strconv.Itoa(n)), "text")
	}
}

func TestAFileIsListedOnce(t *testing.T) {
	t.Parallel()
	data, folder := yard(t), filepath.Join(t.TempDir(), "backup")
	w, err := backup.New(folder, "yard-1")
	must(t, err)

	for range 2 {
		must(t, w.Add(t.Context(), filepath.Join(data, "blobs"), "blobs", true, ".unfinished"))
	}

	m, err := w.Finish(backup.Manifest{Yard: "yard-1", Created: noon})
	must(t, err)

	if m.Files != 2 {
		t.Errorf("the backup lists %d files, want 2", m.Files)
	}
}
