// Package smalldisk mounts small disks for tests, which can be filled and emptied.
package smalldisk

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Mount mounts a disk of some megabytes until the test ends. A test that may not mount is skipped; with CI=true it
// fails.
func Mount(t *testing.T, megabytes int) (dir string) {
	t.Helper()
	dir = t.TempDir()

	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm", megabytes)); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("a full disk needs the right to mount: ", err)
		}

		t.Skip("a full disk needs the right to mount: ", err)
	}

	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})

	return dir
}

// Fill writes until the disk is full and returns what makes room again. It may be called again after that.
func Fill(t *testing.T, dir string) (empty func()) {
	t.Helper()
	return FillTo(t, dir, -1)
}

// FillTo is as Fill, until no more than so many bytes are left.
func FillTo(t *testing.T, dir string, left int64) (empty func()) {
	t.Helper()
	path := filepath.Join(dir, "filler")

	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}

	for size := 64 << 10; size > 0 && free(t, dir) > left; {
		if _, err := f.Write(bytes.Repeat([]byte{1}, size)); err != nil {
			size /= 2
		}
	}

	if err := f.Close(); err != nil {
		t.Fatal(err)
	}

	return func() {
		if err := os.Truncate(path, 0); err != nil { // a process that is just being started may have it open
			t.Fatal(err)
		}
	}
}

// free returns how many bytes are left on the disk.
func free(t *testing.T, dir string) int64 {
	t.Helper()

	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		t.Fatal(err)
	}

	return int64(s.Bavail) * s.Bsize
}
