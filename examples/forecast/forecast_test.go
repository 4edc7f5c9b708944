// Package forecast_test runs the trainings of this folder that need no packages by hand,
// without a yard. test/e2e runs all of them in one and looks at what is foretold.
package forecast_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/spec"
)

// python prepares a training; the package trainyard is that of this repository.
func python(t *testing.T, env []string, args ...string) *exec.Cmd {
	t.Helper()
	path, err := exec.LookPath("python3")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("python3 is not installed: %v", err)
		}

		t.Skip("python3 is not installed")
	}

	sdk, err := filepath.Abs(filepath.Join("..", "..", "sdk", "python", "src"))
	if err != nil {
		t.Fatal(err)
	}

	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Env = append(
		[]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "PYTHONDONTWRITEBYTECODE=1", "PYTHONPATH=" + sdk},
		env...)

	return cmd
}

func TestEveryJobFileIsValidAndNamesAProgram(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.yaml")
	if err != nil || len(files) != 5 {
		t.Fatalf("%d job files, want 5 (%v)", len(files), err)
	}

	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}

		parsed, err := spec.Parse(text, spec.Options{})
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}

		command := strings.Fields(parsed.Jobs[0].Spec.Run)
		if _, err := os.Stat(command[1]); command[0] != "python3" || err != nil {
			t.Errorf("%s runs %q (%v)", file, command, err)
		}
	}
}

func TestPlainLearnsAndCountsItsEpochs(t *testing.T) {
	t.Parallel()
	out, err := python(t, nil, "plain.py", "--epochs", "8", "--pause", "0").Output()
	if err != nil {
		t.Fatal(err)
	}

	found := regexp.MustCompile(`(?m)^epoch (\d+)/8 loss=([0-9.]+) val_loss=([0-9.]+)$`).
		FindAllStringSubmatch(string(out), -1)
	if len(found) != 8 {
		t.Fatalf("%d lines, want 8:\n%s", len(found), out)
	}

	first, err := strconv.ParseFloat(found[0][3], 64)
	if err != nil {
		t.Fatal(err)
	}

	last, err := strconv.ParseFloat(found[7][3], 64)
	if err != nil {
		t.Fatal(err)
	}

	if found[7][1] != "8" || last > first/2 {
		t.Errorf("the loss fell from %g to %g only:\n%s", first, last, out)
	}
}

// inside is a run as a training sees it from within.
type inside struct{ folder string }

func (in inside) env() []string {
	return []string{
		"TRAINYARD_JOB_ID=j1",
		"TRAINYARD_METRICS_FILE=" + in.file(),
		"TRAINYARD_CHECKPOINT_DIR=" + filepath.Join(in.folder, "checkpoint"),
	}
}

func (in inside) file() string { return filepath.Join(in.folder, "metrics.jsonl") }

var values = regexp.MustCompile(`"metrics":\{[^}]*\}`)

// told returns the metrics that it has told of so far.
func (in inside) told(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(in.file())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}

	return values.FindAllString(string(text), -1)
}

func TestATrainingThatIsStoppedTellsTheSameAsOneThatIsNot(t *testing.T) {
	t.Parallel()
	whole, parts := inside{t.TempDir()}, inside{t.TempDir()}
	if out, err := python(t, whole.env(), "sdk.py", "--steps", "60", "--pause", "0").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	cmd := python(t, parts.env(), "sdk.py", "--steps", "60", "--pause", "0.2")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	for end := time.Now().Add(2 * time.Minute); len(parts.told(t)) < 2; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it tells nothing")
		}
	}

	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}

	_ = cmd.Wait() // the exit code tells

	if code := cmd.ProcessState.ExitCode(); code != 143 {
		t.Fatalf("after SIGTERM the exit code is %d, want 143", code)
	}

	out, err := python(t, parts.env(), "sdk.py", "--steps", "60", "--pause", "0").CombinedOutput()
	if err != nil || !bytes.HasPrefix(out, []byte("resumes from step ")) {
		t.Fatalf("the second run: %v\n%s", err, out)
	}

	if diff := cmp.Diff(whole.told(t), parts.told(t)); diff != "" || len(whole.told(t)) != 6 {
		t.Errorf("in one piece and in two (-one +two):\n%s", diff)
	}
}
