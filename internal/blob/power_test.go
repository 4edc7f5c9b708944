package blob_test

import (
	"bytes"
	"io"
	"path/filepath"
	"testing"

	"trainyard/internal/atomicfile/disktest"
	"trainyard/internal/blob"
)

// A blob that was put is there after a power cut; one that was under way is there as a whole or not at all.
func TestAPutSurvivesAPowerCut(t *testing.T) {
	t.Parallel()

	for calls := range 30 { // the power fails at every point
		root := t.TempDir()
		disk, err := disktest.New(root)
		if err != nil {
			t.Fatal(err)
		}

		d, err := blob.OpenDirOn(disk, filepath.Join(root, "blobs"))
		if err != nil {
			t.Fatal(err)
		}

		want := bytes.Repeat([]byte("text"), 1000)
		disk.FailAfter(calls)

		put := d.Put(t.Context(), "logs/j1/j1.1/0/0-4000.gz", bytes.NewReader(want))
		if calls == 29 && put != nil {
			t.Fatalf("it needs more than %d calls: %v", calls, put)
		}
		if err := disk.Cut(func(int) int { return 0 }); err != nil {
			t.Fatal(err)
		}

		d, err = blob.OpenDirOn(disk, filepath.Join(root, "blobs"))
		if err != nil {
			t.Fatal(err)
		}

		if put != nil {
			continue
		}

		r, err := d.Get(t.Context(), "logs/j1/j1.1/0/0-4000.gz")
		if err != nil {
			t.Fatalf("after %d calls: %v", calls, err)
		}

		got, err := io.ReadAll(r)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("after %d calls it holds %d bytes (%v)", calls, len(got), err)
		}

		_ = r.Close()
	}
}
