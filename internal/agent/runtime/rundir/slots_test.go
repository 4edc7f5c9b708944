package rundir

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// A write that a crash cuts short at any byte leaves the record before it or the new one.
func TestATornWriteLeavesTheOlderRecord(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(t *rapid.T) {
		path := filepath.Join(os.TempDir(), fmt.Sprintf("slots-%d-%d", os.Getpid(), rapid.Uint64().Draw(t, "name")))
		defer func() { _ = os.Remove(path) }()

		if err := reserveSlots(path); err != nil {
			t.Fatal(err)
		}

		if ok, err := readRecord(path, new(string)); ok || err != nil {
			t.Fatalf("a reserved file has a record: %v, %v", ok, err)
		}

		values := rapid.SliceOfN(rapid.StringN(0, 500, 2000), 1, 5).Draw(t, "values")
		last := ""
		for i, v := range values {
			before, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}

			if err := writeRecord(path, v); err != nil {
				t.Fatal(err)
			}

			after, err := os.ReadFile(path)
			if err != nil || len(after) != len(before) {
				t.Fatalf("%d bytes, %d before: %v", len(after), len(before), err)
			}

			// The new content reached the disk up to some byte only.
			torn := append([]byte(nil), before...)
			cut := rapid.IntRange(0, len(after)).Draw(t, "cut")
			copy(torn[:cut], after[:cut])
			if err := os.WriteFile(path, torn, 0o600); err != nil {
				t.Fatal(err)
			}

			var got string
			ok, err := readRecord(path, &got)
			if err != nil || ok && got != last && got != v || !ok && i > 0 {
				t.Fatalf("read %q, %v, %v; want %q or %q", got, ok, err, last, v)
			}

			if err := os.WriteFile(path, after, 0o600); err != nil {
				t.Fatal(err)
			}

			last = v
		}
	})
}

func TestAReaderNeverSeesAPartOfARecord(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "record")
	if err := writeRecord(path, []int{0}); err != nil {
		t.Fatal(err)
	}

	var writer sync.WaitGroup
	writer.Go(func() {
		for n := range 500 {
			list := make([]int, 500)
			for i := range list {
				list[i] = n
			}

			if err := writeRecord(path, list); err != nil {
				t.Error(err)
			}
		}
	})

	for range 500 {
		var list []int
		if ok, err := readRecord(path, &list); !ok || err != nil {
			t.Fatal(ok, err)
		}

		for _, n := range list {
			if n != list[0] {
				t.Fatalf("mixed: %v", list)
			}
		}
	}

	writer.Wait()
}

func TestDamageOfBothRecordsIsAnError(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "record")
	noise := make([]byte, recordSlots*slotSize)
	for i := range noise {
		noise[i] = 0xa5
	}

	if err := os.WriteFile(path, noise, 0o600); err != nil {
		t.Fatal(err)
	}

	if ok, err := readRecord(path, new(string)); ok || err == nil {
		t.Errorf("read damage: %v, %v", ok, err)
	}

	if err := writeRecord(path, "mended"); err != nil {
		t.Fatal(err)
	}

	var got string
	if ok, err := readRecord(path, &got); !ok || err != nil || got != "mended" {
		t.Errorf("read %q, %v, %v", got, ok, err)
	}
}
