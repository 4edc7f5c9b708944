package agent

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// SmallDisk mounts a disk of some megabytes and returns how to fill it and how to make room again.
func SmallDisk(t *testing.T) (dir string, fill, empty func()) {
	t.Helper()
	dir = t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}

		t.Skipf("a full disk needs the right to mount: %v", err)
	}

	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})

	path := filepath.Join(dir, "filler")
	fill = func() {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			t.Fatal(err)
		}

		for size := 64 << 10; size > 0; {
			if _, err := f.Write(bytes.Repeat([]byte{1}, size)); err != nil {
				size /= 2
			}
		}

		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}

	return dir, fill, func() {
		if err := os.Truncate(path, 0); err != nil { // a process that is just being started may have it open
			t.Fatal(err)
		}
	}
}
