// Package examples_test runs the programs of the examples by hand, without a
// yard: what they print, how they stop, that they go on from a checkpoint.
package examples_test

import (
	"bufio"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"trainyard/internal/job"
	"trainyard/internal/spec"
)

// tool returns the path of a program that an example needs.
func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s is not installed: %v", name, err)
		}

		t.Skipf("%s is not installed", name)
	}

	return path
}

// command prepares a program of an example with exactly the environment of a
// run: nothing of the caller's but where programs and caches are.
func command(t *testing.T, folder string, env []string, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), tool(t, name), args...)
	cmd.Dir = folder
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"),
		"HOME=" + os.Getenv("HOME"),
		"GOCACHE=" + os.Getenv("GOCACHE"),
		"PYTHONDONTWRITEBYTECODE=1",
	}, env...)

	return cmd
}

// finish runs a command to its end and returns what it printed and its exit code.
func finish(t *testing.T, cmd *exec.Cmd) (string, int) {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		t.Fatalf("start %v: %v", cmd.Args, err)
	}

	return string(out), cmd.ProcessState.ExitCode()
}

// succeed runs a command that must end well and returns what it printed.
func succeed(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, code := finish(t, cmd)
	if code != 0 {
		t.Fatalf("%v ended with code %d:\n%s", cmd.Args, code, out)
	}

	return out
}

// values returns every value of a key=number that was printed, in order.
func values(t *testing.T, out, key string) []float64 {
	t.Helper()
	var found []float64
	for _, m := range regexp.MustCompile(`\b`+key+`=([0-9.]+)`).FindAllStringSubmatch(out, -1) {
		v, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			t.Fatalf("%s: %v", m[0], err)
		}

		found = append(found, v)
	}

	return found
}

// mustFall fails unless the loss was printed at least twice and fell.
func mustFall(t *testing.T, out string) {
	t.Helper()
	loss := values(t, out, "loss")
	if len(loss) < 2 || loss[len(loss)-1] >= loss[0] {
		t.Errorf("the loss did not fall: %v\n%s", loss, out)
	}
}

func lastLine(out string) string {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	return lines[len(lines)-1]
}

func TestEveryFolderHasAJobFileAndALineInTheReadme(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}

	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}

	folders := 0

	for _, e := range entries {
		if !e.IsDir() {
			continue
		}

		folders++

		jobFile := filepath.Join(e.Name(), "job.yaml")
		if _, err := os.Stat(jobFile); err != nil {
			t.Errorf("%s has no job file: %v", e.Name(), err)
		}

		if !strings.Contains(string(readme), "["+e.Name()+"]("+filepath.ToSlash(jobFile)+")") {
			t.Errorf("README.md has no line for %s", e.Name())
		}
	}

	if folders < 5 {
		t.Errorf("%d examples, want at least 5", folders)
	}
}

func TestEveryJobFileIsValid(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*/job.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no job files: %v", err)
	}

	environment := func(key string) (string, bool) { return "/shared", key == "SHARED_DIR" }
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}

		if _, err := spec.Parse(text, spec.Options{Env: environment}); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}

	pipeline, err := os.ReadFile(filepath.Join("pipeline", "job.yaml"))
	if err != nil {
		t.Fatal(err)
	}

	if _, err := spec.Parse(pipeline, spec.Options{}); err == nil || !strings.Contains(err.Error(), "SHARED_DIR") {
		t.Errorf("pipeline without SHARED_DIR in the environment: error %v, want one that names it", err)
	}
}

func TestDigitsLearns(t *testing.T) {
	t.Parallel()
	env := []string{"TRAINYARD_CHECKPOINT_DIR=" + t.TempDir()}
	out := succeed(t, command(t, "digits", env, "python3", "train.py", "--epochs", "3", "--images", "800"))
	mustFall(t, out)

	accuracy := values(t, out, "val_acc")
	if len(accuracy) == 0 || accuracy[len(accuracy)-1] < 0.4 {
		t.Errorf("reads too few digits (chance is 0.1): %v", accuracy)
	}
}

func TestDigitsStoppedAndResumedGivesTheNumbersOfAnUnbrokenRun(t *testing.T) {
	t.Parallel()
	args := []string{"train.py", "--epochs", "3", "--images", "400", "--report-every", "7"}
	whole := succeed(t, command(t, "digits", []string{"TRAINYARD_CHECKPOINT_DIR=" + t.TempDir()}, "python3", args...))

	env := []string{"TRAINYARD_CHECKPOINT_DIR=" + t.TempDir()}
	cmd := command(t, "digits", env, "python3", args...)
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}

	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	var first strings.Builder
	for lines := bufio.NewScanner(pipe); lines.Scan(); {
		first.WriteString(lines.Text() + "\n")

		if strings.HasPrefix(lines.Text(), "step=7 ") {
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
		}
	}

	_ = cmd.Wait() // the exit code tells

	if code := cmd.ProcessState.ExitCode(); code != 143 {
		t.Fatalf("after SIGTERM the exit code is %d, want 143:\n%s", code, &first)
	}

	if !strings.Contains(first.String(), "stopped by SIGTERM, saved at step=") {
		t.Errorf("did not say that it saved:\n%s", &first)
	}

	second := succeed(t, command(t, "digits", env, "python3", args...))
	if !strings.HasPrefix(second, "resumed from step=") {
		t.Errorf("did not resume:\n%s", second)
	}

	wholeLines := strings.Split(strings.TrimSpace(whole), "\n")

	secondLines := strings.Split(strings.TrimSpace(second), "\n")
	if got, want := strings.Join(secondLines[len(secondLines)-3:], "\n"), strings.Join(wholeLines[len(wholeLines)-3:], "\n"); got != want {
		t.Errorf("the resumed run ended with\n%s\nthe unbroken one with\n%s", got, want)
	}
}

func TestPipelineHandsOnFromStepToStep(t *testing.T) {
	t.Parallel()
	env := []string{"SHARED_DIR=" + filepath.Join(t.TempDir(), "new")}
	succeed(t, command(t, "pipeline", env, "python3", "prepare.py"))
	mustFall(t, succeed(t, command(t, "pipeline", env, "python3", "train.py")))

	report := succeed(t, command(t, "pipeline", env, "python3", "report.py"))
	if !strings.Contains(report, "| w0 | 2.000 |") {
		t.Errorf("the report does not compare the weights:\n%s", report)
	}
}

func TestPipelineSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, script, want string
		env                []string
	}{
		{name: "no shared folder", script: "prepare.py", want: "SHARED_DIR is not set"},
		{
			name:   "step before did not run",
			script: "train.py",
			want:   "samples.csv is not there",
			env:    []string{"SHARED_DIR=" + t.TempDir()},
		},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			out, code := finish(t, command(t, "pipeline", tt.env, "python3", tt.script))
			if code == 0 || !strings.Contains(out, tt.want) {
				t.Errorf("code %d, want an error with %q:\n%s", code, tt.want, out)
			}
		})
	}
}

func TestGoSGDLearnsBestAtTheMiddleRate(t *testing.T) {
	t.Parallel()
	final := map[string]float64{}

	for _, rate := range []string{"0.0001", "0.01", "1"} {
		// From a bare copy, as on a node: the shipped folder is in no Go module.
		folder := t.TempDir()
		source, err := os.ReadFile(filepath.Join("go-sgd", "main.go"))
		if err != nil {
			t.Fatal(err)
		}

		if err := os.WriteFile(filepath.Join(folder, "main.go"), source, 0o600); err != nil {
			t.Fatal(err)
		}

		out := succeed(t, command(t, folder, nil, "go", "run", "main.go", "-lr", rate))
		loss := values(t, lastLine(out), "val_loss")
		if len(loss) != 1 {
			t.Fatalf("no val_loss in the last line:\n%s", out)
		}

		final[rate] = loss[0]
	}

	if final["0.01"] >= final["0.0001"] || final["0.01"] >= final["1"] {
		t.Errorf("the middle rate is not the best: %v", final)
	}
}

func TestRetryBreaksDownOnceAndGoesOnFromItsCheckpoint(t *testing.T) {
	t.Parallel()
	env := []string{"TRAINYARD_CHECKPOINT_DIR=" + t.TempDir()}
	first, code := finish(t, command(t, "retry", env, "python3", "flaky.py"))
	if code != 1 || !strings.Contains(first, "starts at step=0") {
		t.Fatalf("first run: code %d, want 1:\n%s", code, first)
	}

	second := succeed(t, command(t, "retry", env, "python3", "flaky.py"))
	if !strings.Contains(second, "starts at step=30") {
		t.Errorf("second run did not go on from the checkpoint:\n%s", second)
	}

	mustFall(t, first+second)
}

func TestDeadlineTellsHowFarItIsAlsoWhenItIsStopped(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	file := filepath.Join(folder, "progress.json")
	told := func() float64 {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}

		var p job.Progress
		if err := json.Unmarshal(text, &p); err != nil {
			t.Fatalf("%s: %v", text, err)
		}

		return p.Done
	}

	env := []string{"TRAINYARD_CHECKPOINT_DIR=" + folder, "TRAINYARD_PROGRESS=" + file}
	cmd := command(t, "deadline", env, "python3", "train.py", "--steps", "10000000")
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}

	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	var first strings.Builder
	for lines := bufio.NewScanner(pipe); lines.Scan(); {
		first.WriteString(lines.Text() + "\n")

		if strings.HasPrefix(lines.Text(), "step=1000 ") {
			if got := told(); got < 1000 {
				t.Errorf("at step 1000 it has told %v", got)
			}

			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
		}
	}

	_ = cmd.Wait() // the exit code tells

	saved := values(t, lastLine(first.String()), "step")
	if code := cmd.ProcessState.ExitCode(); code != 143 || len(saved) != 1 || told() != saved[0] {
		t.Fatalf("code %d, told %v, want 143 and what was saved:\n%s", code, told(), &first)
	}

	steps := saved[0] + 1500
	second := succeed(
		t,
		command(t, "deadline", env, "python3", "train.py", "--steps", strconv.FormatFloat(steps, 'f', 0, 64)),
	)

	if !strings.HasPrefix(second, "resumed from step="+strconv.FormatFloat(saved[0], 'f', 0, 64)+"\n") || told() != steps {
		t.Errorf("told %v, want %v:\n%s", told(), steps, second)
	}

	mustFall(t, first.String()+second)
}

func TestDeadlineSaysInItsFileWhatItsProgramDoes(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("deadline", "job.yaml"))
	if err != nil {
		t.Fatal(err)
	}

	file, err := spec.Parse(text, spec.Options{Now: time.Now()})
	if err != nil {
		t.Fatal(err)
	}

	s := file.Jobs[0].Spec
	if want := "--steps " + strconv.FormatFloat(s.Speed.Work, 'f', 0, 64); !strings.Contains(s.Run, want) {
		t.Errorf("run is %q and speed.work %v", s.Run, s.Speed.Work)
	}

	if s.Deadline == nil || s.LateCost == 0 || s.Checkpoint == nil || s.Speed.On("", 0).Rate(0, 1) <= 0 {
		t.Errorf("the file does not show what it is for: %+v", s)
	}
}

func TestGPUsStartsAWorkerForEachDeviceItWasGiven(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct{ devices, want string }{{"2", "workers=1"}, {"0,3", "workers=2"}} {
		out := succeed(t, command(t, "gpus", []string{"CUDA_VISIBLE_DEVICES=" + tt.devices}, "python3", "train.py"))
		if !strings.Contains(out, "CUDA_VISIBLE_DEVICES="+tt.devices+"\n") || !strings.Contains(out, tt.want) {
			t.Errorf("with devices %s want %s:\n%s", tt.devices, tt.want, out)
		}

		mustFall(t, out)
	}

	if out, code := finish(t, command(t, "gpus", []string{"CUDA_VISIBLE_DEVICES="}, "python3", "train.py")); code != 1 {
		t.Errorf("with no device the exit code is %d, want 1:\n%s", code, out)
	}
}

func TestTwoNodesHoldTheSameWeights(t *testing.T) {
	t.Parallel()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}

	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}

	var outs [2]strings.Builder

	var cmds [2]*exec.Cmd
	for rank := range cmds {
		env := []string{"NODE_RANK=" + strconv.Itoa(rank), "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + port}
		cmds[rank] = command(t, "two-nodes", env, "python3", "train.py")
		cmds[rank].Stdout, cmds[rank].Stderr = &outs[rank], &outs[rank]
		if err := cmds[rank].Start(); err != nil {
			t.Fatal(err)
		}
	}

	digests := map[string]bool{}

	for rank, cmd := range cmds {
		if err := cmd.Wait(); err != nil {
			t.Fatalf("rank %d: %v\n%s", rank, err, &outs[rank])
		}

		mustFall(t, outs[rank].String())

		m := regexp.MustCompile(`weights=([0-9a-f]+) same_on_all_ranks=True`).FindStringSubmatch(outs[rank].String())
		if m == nil {
			t.Fatalf("rank %d does not hold what the others hold:\n%s", rank, &outs[rank])
		}

		digests[m[1]] = true
	}

	if len(digests) != 1 {
		t.Errorf("the ranks ended with different weights: %v", digests)
	}
}
