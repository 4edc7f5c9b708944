package atomicfile_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"trainyard/internal/atomicfile"
	"trainyard/internal/atomicfile/disktest"
)

// A write that has returned survives; one that has not is there as a whole or not at all.
func TestWrittenFilesSurviveAPowerCut(t *testing.T) {
	t.Parallel()
	temp := t.TempDir()

	rapid.Check(t, func(t *rapid.T) {
		dir, disk := newDisk(t, temp)
		choose := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "choice") }
		written := map[string]int{}   // by name: the number of the last write that returned
		attempted := map[string]int{} // by name: the number of the last write at all
		number := 0

		t.Repeat(map[string]func(*rapid.T){
			"write": func(t *rapid.T) {
				name := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "name")
				options := []atomicfile.Option{atomicfile.On(disk)}
				if rapid.Bool().Draw(t, "single writer") {
					options = append(options, atomicfile.SingleWriter())
				}

				number++
				attempted[name] = number

				text := strings.Repeat(fmt.Sprintf("%d ", number), 50)
				if err := atomicfile.Write(filepath.Join(dir, name), []byte(text), options...); err == nil {
					written[name] = number
				}
			},
			"power fails soon": func(t *rapid.T) { disk.FailAfter(rapid.IntRange(0, 12).Draw(t, "calls")) },
			"power cut": func(t *rapid.T) {
				if err := disk.Cut(choose); err != nil {
					t.Fatal(err)
				}

				for name, least := range written {
					got := read(t, filepath.Join(dir, name))
					if got < least || got > attempted[name] {
						t.Fatalf("%s holds write %d, want one from %d to %d", name, got, least, attempted[name])
					}
				}
			},
			"": func(*rapid.T) {},
		})
	})
}

func newDisk(t *rapid.T, temp string) (string, *disktest.Disk) {
	t.Helper()
	dir, err := os.MkdirTemp(temp, "disk")
	if err != nil {
		t.Fatal(err)
	}

	disk, err := disktest.New(dir)
	if err != nil {
		t.Fatal(err)
	}

	return dir, disk
}

// read returns the number of the write that a file holds.
func read(t *rapid.T, path string) int {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	words := strings.Fields(string(text))
	if len(words) != 50 || strings.Join(words, " ") != strings.TrimSpace(strings.Repeat(words[0]+" ", 50)) {
		t.Fatalf("%s holds a part: %q", path, text)
	}

	number := 0
	if _, err := fmt.Sscan(words[0], &number); err != nil {
		t.Fatal(err)
	}

	return number
}

func TestMadeDirectoriesSurviveAPowerCut(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	disk, err := disktest.New(root)
	if err != nil {
		t.Fatal(err)
	}

	deep := filepath.Join(root, "a", "b", "c")
	if err := disk.Mkdir(filepath.Join(root, "a")); err != nil { // by somebody who did not sync
		t.Fatal(err)
	}
	if err := atomicfile.MkdirAll(disk, root, deep); err != nil {
		t.Fatal(err)
	}
	if err := disk.Cut(func(int) int { return 0 }); err != nil {
		t.Fatal(err)
	}

	if info, err := os.Stat(deep); err != nil || !info.IsDir() {
		t.Errorf("%v, %v", info, err)
	}
}

// The disk loses what was not synced, else the tests on it prove nothing.
func TestThePowerCutTakesWhatWasNotSynced(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	path := filepath.Join(root, "file")
	put(t, path, "old", 0o600)
	put(t, filepath.Join(root, "removed"), "old", 0o600)

	disk, err := disktest.New(root)
	if err != nil {
		t.Fatal(err)
	}

	lose := func(int) int { return 0 }

	f, err := disk.OpenFile(path, os.O_RDWR)
	if err != nil {
		t.Fatal(err)
	}

	made, err := disk.OpenFile(filepath.Join(root, "made"), os.O_RDWR|os.O_CREATE)
	if err != nil {
		t.Fatal(err)
	}

	_, err = f.WriteAt([]byte("new text"), 0)
	_, err2 := made.WriteAt([]byte("text"), 0)
	if err := errors.Join(err, err2, made.Sync(), disk.Remove(filepath.Join(root, "removed")), disk.Cut(lose)); err != nil {
		t.Fatal(err)
	}

	wantFile(t, path, "old")
	wantFile(t, filepath.Join(root, "removed"), "old")

	if _, err := os.Stat(filepath.Join(root, "made")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the name survived without a sync of its directory: %v", err)
	}
	if err := f.Sync(); err == nil {
		t.Error("a file that was open before the power cut can be synced")
	}

	// What is written can be torn, and leave zeros.
	f, err = disk.OpenFile(path, os.O_RDWR)
	if err != nil {
		t.Fatal(err)
	}

	choices := []int{2, 5, 1} // torn, after 5 bytes, with the full length
	_, err = f.WriteAt([]byte("new text"), 0)
	if err := errors.Join(err, disk.Cut(func(int) int {
		next := choices[0]
		choices = choices[1:]

		return next
	})); err != nil {
		t.Fatal(err)
	}

	wantFile(t, path, "new t\x00\x00\x00")
}
