package blob_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"trainyard/internal/atomicfile"
	"trainyard/internal/blob"
)

// moody is a disk that does not sync a folder while it is broken.
type moody struct {
	atomicfile.Disk
	broken string // name of the folder
	synced int    // how often it was
}

func (m *moody) SyncDir(dir string) error {
	if filepath.Base(dir) == m.broken {
		return errors.New("input/output error")
	}

	m.synced++

	return m.Disk.SyncDir(dir)
}

// TestABlobIsThereOnlyWhenItSurvivesAPowerCut: a Put that could not sync the folder fails, although the blob has its
// name. Whoever asks for it later must not take it for stored before the folder is synced.
func TestABlobIsThereOnlyWhenItSurvivesAPowerCut(t *testing.T) {
	t.Parallel()
	disk := &moody{Disk: atomicfile.OS{}, broken: "a"}

	d, err := blob.OpenDirOn(disk, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}

	if err := d.Put(t.Context(), "a/b", strings.NewReader("text")); err == nil {
		t.Fatal("a folder that was not synced is taken for one that was")
	}

	if has, err := d.Has(t.Context(), "a/b"); err == nil {
		t.Errorf("has = %v although nobody knows what a power cut leaves", has)
	}

	disk.broken, disk.synced = "", 0

	if has, err := d.Has(t.Context(), "a/b"); !has || err != nil || disk.synced != 1 {
		t.Errorf("has = %v (%v) after %d syncs, want it synced once", has, err, disk.synced)
	}

	if has, err := d.Has(t.Context(), "a/b"); !has || err != nil || disk.synced != 1 {
		t.Errorf("has = %v (%v) after %d syncs, want no further one", has, err, disk.synced)
	}
}
