// Package hybrid_test checks what the hybrid demo is made of, without a yard: the
// training program learns and goes on from its checkpoint, and every file is valid.
package hybrid_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"trainyard/internal/job"
	"trainyard/internal/provision"
	"trainyard/internal/spec"
)

// train runs the program to its end and returns what it printed.
func train(t *testing.T, folder string, args ...string) string {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("python3 is not installed: %v", err)
		}

		t.Skip("python3 is not installed")
	}

	cmd := exec.CommandContext(t.Context(), python, append([]string{"train.py", "--rate", "100000"}, args...)...)
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"),
		"TRAINYARD_CHECKPOINT_DIR=" + folder,
		"TRAINYARD_PROGRESS=" + filepath.Join(folder, "progress"),
	}

	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}

	return string(out)
}

func TestTheProgramLearnsAndGoesOnFromItsCheckpoint(t *testing.T) {
	t.Parallel()
	whole, parts := t.TempDir(), t.TempDir()
	want := train(t, whole, "--steps", "600")
	losses := regexp.MustCompile(`loss=([0-9.]+)`).FindAllStringSubmatch(want, -1)
	first, err := strconv.ParseFloat(losses[0][1], 64)
	if err != nil {
		t.Fatal(err)
	}

	last, err := strconv.ParseFloat(losses[len(losses)-1][1], 64)
	if err != nil || last > first/2 || last > 0.3 { // chance is 0.69
		t.Errorf("the loss went from %v to %v (%v)", first, last, err)
	}

	train(t, parts, "--steps", "250")
	got := train(t, parts, "--steps", "600")

	end := func(out string) string { return out[strings.LastIndex(out, "done="):] }
	if !strings.HasPrefix(got, "resumed from step=250\n") || end(got) != end(want) {
		t.Errorf("in two parts it ended with %q, in one with %q", end(got), end(want))
	}

	text, err := os.ReadFile(filepath.Join(parts, "progress"))
	if err != nil {
		t.Fatal(err)
	}

	var told job.Progress
	if err := json.Unmarshal(text, &told); err != nil || told.Done != 600 {
		t.Errorf("it told %s (%v)", text, err)
	}
}

func TestEveryFileIsValid(t *testing.T) {
	t.Parallel()
	jobs, err := filepath.Glob("jobs/*.yaml")
	if err != nil || len(jobs) != 12 {
		t.Fatalf("%d jobs (%v), want 12", len(jobs), err)
	}

	for _, path := range append(jobs, "job.yaml") {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}

		f, err := spec.Parse(text, spec.Options{})
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}

		if path != "job.yaml" && f.Jobs[0].Spec.Name != strings.TrimSuffix(filepath.Base(path), ".yaml") {
			t.Errorf("%s is of job %s", path, f.Jobs[0].Spec.Name)
		}
	}

	for path, offers := range map[string]int{"offers.yaml": 3, "offers-ec2.yaml": 3} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}

		if got, err := provision.ParseOffers(path, text); err != nil || len(got) != offers {
			t.Errorf("%s has %d offers (%v), want %d", path, len(got), err, offers)
		}
	}
}
