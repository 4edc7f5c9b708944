package checkpoints

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// What the Python package writes is what the agent finds, and what it has not written to its end is not found, even if
// the program ends well.
func TestCheckpointsOfThePythonPackageAreFound(t *testing.T) {
	t.Parallel()

	python, err := exec.LookPath("python3")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}

		t.Skip("python3 is not installed")
	}

	const program = `
import os, sys, trainyard
from pathlib import Path
folder, half = map(Path, sys.argv[1:])
for step in (6, 7):
    with trainyard.saving(step, folder, metric="loss", value=1 / step) as new:
        (new / "weights").write_text("weights")
(folder / "own.pt").write_text("weights")
trainyard.checkpoint_saved(folder / "own.pt", 8)
with trainyard.saving(9, half) as new:
    (new / "weights").write_text("half")
    os._exit(0)
`
	dir, half := t.TempDir(), t.TempDir()
	cmd := exec.CommandContext(t.Context(), python, "-B", "-c", program, dir, half)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+filepath.Join("..", "..", "..", "sdk", "python", "src"))

	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	want := []string{"step-00000006 marker 6", "step-00000007 marker 7", "own.pt marker 8"}
	if diff := cmp.Diff(want, find(t, newFinder(), dir, nil)); diff != "" {
		t.Errorf("found (-want +got):\n%s", diff)
	}

	if found := find(t, newFinder(), half, &ending{at: time.Now(), clean: true}); len(found) > 0 {
		t.Errorf("found %q, which is half written", found)
	}
}
