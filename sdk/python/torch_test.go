package sdk

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The package's own tests need no PyTorch; those of its checkpoints with several processes and worker processes do.
func TestCheckpointsWithPyTorch(t *testing.T) {
	t.Parallel()

	var errs bytes.Buffer
	setup := exec.CommandContext(t.Context(), filepath.Join("..", "..", "scripts", "setup-train.sh"), "--check")
	setup.Stderr = &errs

	out, err := setup.Output()
	if err != nil {
		skip(t, "needs PyTorch: "+errs.String())
	}

	python, _, _ := strings.Cut(string(out), "\n")

	tests := exec.CommandContext(t.Context(), python, "-B", "-m", "unittest", "tests.real_torch")
	if out, err := tests.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
