package pypi

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"trainyard/internal/executable"
)

// modified is the time of all wheels.
var modified = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// UV returns the directory of a copy of the real uv that every user may execute. Where there is none the test is
// skipped, in CI it fails.
func UV(t testing.TB) (dir string) {
	t.Helper()

	_, file, _, _ := runtime.Caller(0)
	script := filepath.Join(filepath.Dir(file), "../../scripts/setup-uv.sh")

	out, err := exec.CommandContext(t.Context(), script, "--check").Output()
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("needs uv: scripts/setup.sh test installs it")
		}

		t.Skip("needs uv: scripts/setup.sh test installs it")
	}

	return Program(t, "uv", strings.TrimSpace(string(out)))
}

// Program returns a directory with a copy of a program that every user may execute.
func Program(t testing.TB, name, from string) (dir string) {
	t.Helper()
	dir = t.TempDir()

	data, err := os.ReadFile(from)
	if err == nil {
		err = executable.Write(filepath.Join(dir, name), data, 0o755)
	}

	if err == nil {
		err = os.Chmod(filepath.Dir(dir), 0o711) //nolint:gosec // others pass it
	}

	if err != nil {
		t.Fatal(err)
	}

	return dir
}
