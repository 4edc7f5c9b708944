package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"trainyard/internal/job"
)

// TestExamples runs every example through a real yard of two nodes with
// declared GPUs.
func TestExamples(t *testing.T) {
	t.Parallel()

	for _, tool := range []string{"python3", "go"} {
		if _, err := exec.LookPath(tool); err != nil && os.Getenv("CI") != "true" {
			t.Skipf("%s is not installed", tool)
		} else if err != nil {
			t.Fatalf("%s is not installed: %v", tool, err)
		}
	}

	y := newYard(t)
	y.join(t, []string{"north", "south"}, "--fake-gpus", "2xA100:80GB")
	shared := filepath.Join(y.Folder, "shared")
	y.Vars = append(y.Vars, "SHARED_DIR="+shared)

	tests := []struct {
		folder string
		jobs   int
		runs   int // that the first job has at least
		says   string
	}{
		{"checkpoints", 1, 1, "weights="},
		{"digits", 1, 1, "val_acc="},
		{"hybrid", 1, 1, "done=600"},
		{"forecast", 1, 1, "done val_loss="},
		{"pipeline", 3, 1, "| w0 | 2.000 |"},
		{"go-sgd", 3, 1, "val_loss="},
		{"retry", 1, 2, "starts at step=30"},
		{"deadline", 1, 1, "done=20000"},
		{"gpus", 1, 1, "workers=1"},
		{"two-nodes", 1, 1, "same_on_all_ranks=True"},
	}

	folders, err := filepath.Glob(filepath.Join("..", "..", "examples", "*", "job.yaml"))
	if err != nil || len(folders) != len(tests) {
		t.Fatalf("%d examples (%v), the table has %d", len(folders), err, len(tests))
	}

	for _, tt := range tests {
		t.Run(tt.folder, func(t *testing.T) {
			t.Parallel()
			file, err := filepath.Abs(filepath.Join("..", "..", "examples", tt.folder, "job.yaml"))
			if err != nil {
				t.Fatal(err)
			}

			ids := strings.Fields(y.succeed(t, "submit", "-y", "-q", file).out)
			if len(ids) != tt.jobs {
				t.Fatalf("%d jobs, want %d", len(ids), tt.jobs)
			}

			y.succeed(t, append([]string{"wait"}, ids...)...)
			output, falls := "", 0

			for n, id := range ids {
				d := y.job(t, id)
				if d.State != job.Succeeded || n == 0 && len(d.Runs) < tt.runs {
					t.Errorf("%s is %s after %d runs (%s)", id, d.State, len(d.Runs), d.Reason)
				}

				out := y.succeed(t, "logs", id).out
				output += out

				if fell(t, out) {
					falls++
				}
			}

			if !strings.Contains(output, tt.says) {
				t.Errorf("the output does not say %q:\n%s", tt.says, output)
			}

			if falls == 0 {
				t.Errorf("the loss of no job fell:\n%s", output)
			}
		})
	}
}

var lossPattern = regexp.MustCompile(`\bloss=([0-9.]+)`)

// fell reports whether the loss that a job printed was less at the end than at the beginning.
func fell(t *testing.T, out string) bool {
	t.Helper()
	found := lossPattern.FindAllStringSubmatch(out, -1)
	if len(found) < 2 {
		return false
	}

	value := func(n int) float64 {
		v, err := strconv.ParseFloat(found[n][1], 64)
		if err != nil {
			t.Fatal(err)
		}

		return v
	}

	return value(len(found)-1) < value(0)
}
