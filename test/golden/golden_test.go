package golden

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// recorder is a test that keeps what it is told instead of failing.
type recorder struct {
	testing.TB
	failures []string
}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	panic(r)
}

// compare runs Compare and returns what it reported.
func compare(t *testing.T, path, got string) (failures []string) {
	t.Helper()

	r := &recorder{TB: t}
	defer func() {
		if caught := recover(); caught != nil && caught != r {
			panic(caught)
		}

		failures = r.failures
	}()

	Compare(r, path, got)

	return r.failures
}

// One test, not parallel: it sets the flag that every test of the binary shares.
func TestCompareReportsADifferenceAndUpdateRemovesIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "testdata", "a.golden")

	if failures := compare(t, path, "one\n"); len(failures) != 1 || !strings.Contains(failures[0], "-update") {
		t.Errorf("a missing file: %q, want a failure that names -update", failures)
	}

	*update = true
	failures := compare(t, path, "one\n")
	*update = false

	if len(failures) > 0 {
		t.Errorf("with -update: %q, want nothing", failures)
	}

	text, err := os.ReadFile(path)
	if err != nil || string(text) != "one\n" {
		t.Fatalf("the file holds %q (%v), want what was given", text, err)
	}

	if failures := compare(t, path, "one\n"); len(failures) > 0 {
		t.Errorf("the same text: %q, want nothing", failures)
	}

	if failures := compare(t, path, "two\n"); len(failures) != 1 || !strings.Contains(failures[0], "make golden") {
		t.Errorf("another text: %q, want a failure that says how to renew it", failures)
	}
}
