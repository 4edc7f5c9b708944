// Package checkpoints_test runs the trainings of this folder by hand, kills them, and compares them with trainings that
// were left alone. test/moves does the same in a yard, from node to node.
package checkpoints_test

import (
	"bufio"
	"bytes"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"trainyard/internal/spec"
)

const (
	steps, every = 60, 7
	backend      = "KERAS_BACKEND=jax"
)

// plainPython returns a Python without packages.
func plainPython(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("python3")
	if err != nil {
		skip(t, "python3 is not installed")
	}

	return path
}

// installedBy returns the Python that a script of the set-up has made.
func installedBy(script string) func(*testing.T) string {
	return func(t *testing.T) string {
		t.Helper()
		var errs bytes.Buffer
		cmd := exec.CommandContext(t.Context(), filepath.Join("..", "..", "scripts", script), "--check")
		cmd.Stderr = &errs

		out, err := cmd.Output()
		if err != nil {
			skip(t, errs.String())
		}

		path, _, _ := strings.Cut(string(out), "\n")

		return path
	}
}

// recipes returns the programs that are tested, and their Pythons. The set-up does not install Lightning, Keras and
// JAX, which are large: these are tested with the Python that PYTHON names, as make test-sdk-frameworks does.
func recipes() map[string]func(*testing.T) string {
	all := map[string]func(*testing.T) string{
		"train_plain.py":       plainPython,
		"train_pytorch.py":     installedBy("setup-train.sh"),
		"train_huggingface.py": installedBy("setup-recipes.sh"),
	}

	if python := os.Getenv("PYTHON"); python != "" {
		for _, program := range []string{"train_lightning.py", "train_keras.py", "train_jax.py"} {
			all[program] = func(*testing.T) string { return python }
		}
	}

	return all
}

func skip(t *testing.T, why string) {
	t.Helper()

	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}

	t.Skip(why)
}

// training is a program of this folder with a checkpoint directory of its own.
type training struct {
	python, program, folder string
}

func (tr training) command(t *testing.T, env ...string) *exec.Cmd {
	t.Helper()
	sdk, err := filepath.Abs(filepath.Join("..", "..", "sdk", "python", "src"))
	if err != nil {
		t.Fatal(err)
	}

	cmd := exec.CommandContext(t.Context(), tr.python, tr.program,
		"--steps", strconv.Itoa(steps), "--every", strconv.Itoa(every))
	cmd.Env = append([]string{
		backend, "JAX_PLATFORMS=cpu",
		"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "PYTHONDONTWRITEBYTECODE=1", "PYTHONPATH=" + sdk,
		"TRAINYARD_JOB_ID=j1", "TRAINYARD_CHECKPOINT_DIR=" + tr.folder, "TRAINYARD_GRACE=60",
	}, env...)

	return cmd
}

// account is what a training has printed: the loss of each step, and the digest of its weights at the end.
type account struct {
	first   int // step at which it started
	last    int
	loss    map[int]string // of Keras, which prints another one, it is empty
	weights string
}

var line = regexp.MustCompile(`^(?:starts at step=(\d+)|step=(\d+) (?:loss=(\S+)|mean_loss=\S+)|weights=(\S+))$`)

// run runs it until it has printed a step, sends the signal then, and waits for its end. Step 0 lets it end by itself.
func (tr training) run(t *testing.T, until int, with syscall.Signal) account {
	t.Helper()
	var errs bytes.Buffer
	cmd := tr.command(t)
	cmd.Stderr = &errs

	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}

	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	a := account{loss: map[int]string{}}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		m := line.FindStringSubmatch(lines.Text())

		switch {
		case m == nil:
			continue
		case m[1] != "":
			a.first = number(t, m[1])
		case m[2] != "":
			a.last = number(t, m[2])
			if m[3] != "" {
				a.loss[a.last] = m[3]
			}
		default:
			a.weights = m[4]
		}

		if until > 0 && a.last == until {
			if err := cmd.Process.Signal(with); err != nil {
				t.Fatal(err)
			}
		}
	}

	// The signal may come when it is ending anyway.
	err = cmd.Wait()
	if err != nil && with != syscall.SIGKILL && (until == 0 || a.last < steps) {
		t.Fatalf("%s: %v\n%s", tr.program, err, &errs)
	}

	return a
}

func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}

	return n
}

// The decisive promise: a training that was killed at arbitrary steps, and asked to stop at another, has computed at
// each step what an undisturbed one has, to the last bit.
func TestAKilledTrainingComputesWhatAnUndisturbedOneDoes(t *testing.T) {
	t.Parallel()

	for program, python := range recipes() {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			tr := training{python: python(t), program: program, folder: t.TempDir()}
			undisturbed := training{python: tr.python, program: program, folder: t.TempDir()}.run(t, 0, 0)
			losses := len(undisturbed.loss)
			if undisturbed.last != steps || undisturbed.weights == "" || losses != steps && program != "train_keras.py" {
				t.Fatalf("the undisturbed training printed %+v", undisturbed)
			}

			saved := 0 // at least so many steps
			for _, stop := range []struct {
				at   int
				with syscall.Signal
			}{
				{every + 1 + rand.IntN(2*every), syscall.SIGKILL},
				{4*every + rand.IntN(every), syscall.SIGTERM},
				{6*every + rand.IntN(every), syscall.SIGKILL},
				{0, 0},
			} {
				part := tr.run(t, stop.at, stop.with)
				t.Logf("ran from step %d to %d, then %v", part.first, part.last, stop.with)

				if part.first < saved {
					t.Errorf("continued at step %d, though step %d was saved", part.first, saved)
				}

				for step, loss := range part.loss {
					if loss != undisturbed.loss[step] {
						t.Fatalf("step %d after a start at %d: loss %s, undisturbed %s", step, part.first, loss, undisturbed.loss[step])
					}
				}

				// A step is printed before it is saved, and one save may be under way when it is killed: the one before it is
				// there.
				saved = max(0, ((part.last-1)/every-1)*every)
				if stop.with == syscall.SIGTERM {
					saved = part.last
				}

				if stop.at == 0 && part.weights != undisturbed.weights {
					t.Errorf("ended with the weights %q, undisturbed %q", part.weights, undisturbed.weights)
				}
			}
		})
	}
}

func TestEveryJobFileRunsAProgramOfThisFolder(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no job files: %v", err)
	}

	programs := map[string]bool{}

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

		programs[strings.Fields(parsed.Jobs[0].Spec.Run)[1]] = true
	}

	onDisk, err := filepath.Glob("train_*.py")
	if err != nil {
		t.Fatal(err)
	}

	want := map[string]bool{}
	for _, name := range onDisk {
		want[name] = true
	}

	if diff := gocmp.Diff(want, programs); diff != "" {
		t.Errorf("programs without a job file, or the other way round (-programs +job files):\n%s", diff)
	}
}
