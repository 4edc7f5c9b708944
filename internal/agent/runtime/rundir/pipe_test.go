package rundir

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestWhoListensIsWoken(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pipe")
	if err := Poke(path, "nobody"); err != nil {
		t.Errorf("a pipe that is not there: %v", err)
	}

	for range 2 {
		if err := MakePipe(path); err != nil {
			t.Fatal(err)
		}
	}

	if err := Poke(path, "nobody"); err != nil {
		t.Errorf("a pipe that nobody has open: %v", err)
	}

	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}

	defer func() { _ = f.Close() }()

	if err := Poke(path, "you\n"); err != nil {
		t.Fatal(err)
	}

	buf := make([]byte, 100)
	if n, err := f.Read(buf); err != nil || string(buf[:n]) != "you\n" {
		t.Errorf("woken by %q, %v", buf[:n], err)
	}

	for range 100 { // more than it holds
		if err := Poke(path, strings.Repeat("x", 4000)); err != nil {
			t.Fatalf("a pipe that is full: %v", err)
		}
	}
}
