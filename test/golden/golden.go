// Package golden compares what a test made with a file that holds what is expected, and
// writes the file anew under the flag -update.
//
// Every test with golden files uses this package, so one flag renews them all: `make golden`
// runs exactly the packages whose tests import it. It is imported by tests alone.
package golden

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "update the golden files instead of comparing with them")

// Update reports whether golden files are to be written anew. Tests that keep their
// expectations in a format of their own ask it; others call Compare.
func Update() bool { return *update }

// Compare fails the test if got differs from the file at path. Under -update it writes the
// file first, with the folders it needs.
func Compare(t testing.TB, path, got string) {
	t.Helper()

	if Update() {
		Write(t, path, got)
	}

	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (write it with -update)", err)
	}

	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (-want +got); if the new text is right, run make golden and review the diff:\n%s", path, diff)
	}
}

// Write writes a golden file, with the folders it needs.
func Write(t testing.TB, path, text string) {
	t.Helper()

	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // part of the sources
		t.Fatal(err)
	}

	if err := os.WriteFile(path, []byte(text), 0o644); err != nil { //nolint:gosec // part of the sources
		t.Fatal(err)
	}
}
