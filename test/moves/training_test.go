package moves_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"trainyard/internal/id"
)

// every is the checkpoint interval of all trainings, in steps.
const every = 20

// program is a training whose numbers depend on its seed alone.
type program struct {
	name   string
	path   string // of the program
	python string // that runs it
	flags  []string
	steps  int
	// most is how many steps a kill may cost: a checkpoint interval.
	most int
	find func(*testing.T)
}

// plainPython is a training without any package but ours.
func plainPython() *program {
	p := &program{name: "plain Python", steps: 600, most: every}
	p.find = func(t *testing.T) {
		t.Helper()
		path, err := exec.LookPath("python3")
		if err != nil {
			lacking(t, "python3 is not installed")
		}

		p.python, p.path = path, example(t, "train_plain.py")
	}

	return p
}

// pyTorch is a training with PyTorch on the CPU, which waits until a checkpoint is written.
func pyTorch() *program {
	p := &program{name: "PyTorch", flags: []string{"--wait"}, steps: 600, most: every}
	p.find = func(t *testing.T) {
		t.Helper()
		var errs bytes.Buffer
		cmd := exec.CommandContext(t.Context(), filepath.Join("..", "..", "scripts", "setup-train.sh"), "--check")
		cmd.Stderr = &errs

		out, err := cmd.Output()
		if err != nil {
			lacking(t, "needs PyTorch: "+errs.String())
		}

		p.python, _, _ = strings.Cut(string(out), "\n")
		p.path = example(t, "train_pytorch.py")
	}

	return p
}

// backgroundSaves is the same while checkpoints are written in the background. A kill may then also cost the steps
// since a save began that was not complete: fewer than another interval, because one save waits for the one before.
func backgroundSaves() *program {
	p := pyTorch()
	p.name, p.flags, p.most = "PyTorch, saves in the background", nil, 2*every-1

	return p
}

func example(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", "examples", "checkpoints", name))
	if err != nil {
		t.Fatal(err)
	}

	return path
}

// lacking skips a test whose requirement is missing; in CI the requirement must be met.
func lacking(t *testing.T, why string) {
	t.Helper()

	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}

	t.Skip(why)
}

// command is the command line of a training.
func (p *program) command(seed int, pause string) []string {
	return append([]string{
		p.python, p.path, "--steps", strconv.Itoa(p.steps), "--every", strconv.Itoa(every), "--seed", strconv.Itoa(seed),
		"--pause", pause,
	}, p.flags...)
}

// undisturbed runs a training from its beginning to its end, outside of any yard.
func (p *program) undisturbed(t *testing.T, seed int) printed {
	t.Helper()
	sdk, err := filepath.Abs(filepath.Join("..", "..", "sdk", "python", "src"))
	if err != nil {
		t.Fatal(err)
	}

	args := p.command(seed, "0")
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Dir = t.TempDir()
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "PYTHONDONTWRITEBYTECODE=1", "PYTHONPATH=" + sdk,
	}

	var errs bytes.Buffer
	cmd.Stderr = &errs

	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("an undisturbed training: %v: %s", err, errs.String())
	}

	whole := parse(string(out))
	if whole.first != 0 || whole.last != p.steps || whole.weights == "" {
		t.Fatalf("an undisturbed training printed %s", out)
	}

	return whole
}

// printed is what a run of a training has printed.
type printed struct {
	first, last int // step at which it started, and that it reached
	started     bool
	loss        map[int]string
	weights     string
}

var line = regexp.MustCompile(`(?m)^(?:starts at step=(\d+)|step=(\d+) loss=(\S+)|weights=(\S+))$`)

// parse reads whole lines; the last one of a program that was killed may be torn.
func parse(text string) printed {
	p := printed{loss: map[int]string{}}
	for _, m := range line.FindAllStringSubmatch(text[:strings.LastIndex(text, "\n")+1], -1) {
		switch {
		case m[1] != "":
			p.first, _ = strconv.Atoi(m[1])
			p.last, p.started = p.first, true
		case m[2] != "":
			p.last, _ = strconv.Atoi(m[2])
			p.loss[p.last] = m[3]
		default:
			p.weights = m[4]
		}
	}

	return p
}

// output is the file to which a run writes what it prints. It is not the log of the run: what a program has printed
// when its supervisor is killed need not be in there.
func (y *yard) output(run id.Run) string { return filepath.Join(y.shared, string(run)) }

// read reads what a run has printed so far.
func (y *yard) read(t *testing.T, run id.Run) printed {
	t.Helper()
	text, err := os.ReadFile(y.output(run))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}

	return parse(string(text))
}

// account is what all moves of a yard have cost.
type account struct {
	runs, moves, repeated, worst int
}

func (a *account) String() string {
	return fmt.Sprintf("%d runs, %d on another node than the one before, %d steps repeated, at most %d at once",
		a.runs, a.moves, a.repeated, a.worst)
}

// compare compares all runs of a training with an undisturbed one. No run may repeat more than so many steps.
func (y *yard) compare(t *testing.T, j id.Job, nodes []id.Node, most int, want printed) {
	t.Helper()
	last, weights := 0, ""

	for i, node := range nodes {
		run := id.NewRun(j, i+1)
		got := y.read(t, run)
		y.account.runs++

		if i > 0 && node != nodes[i-1] {
			y.account.moves++
		}

		if !got.started {
			continue // it was killed before
		}

		lost := last - got.first
		if lost < 0 || lost > most {
			t.Errorf("run %s on %s starts at step %d, the one before had reached %d: more than %d steps are lost",
				run, node, got.first, last, most)
		}

		y.account.repeated += lost
		y.account.worst = max(y.account.worst, lost)

		for _, step := range sorted(got.loss) {
			if got.loss[step] != want.loss[step] {
				t.Errorf("run %s on %s: the loss of step %d is %s, undisturbed it is %s",
					run, node, step, got.loss[step], want.loss[step])

				break
			}
		}

		last, weights = got.last, got.weights
	}

	if weights != want.weights {
		t.Errorf("the weights of %s are %q, undisturbed they are %q", j, weights, want.weights)
	}
}

func sorted(loss map[int]string) []int {
	var steps []int
	for step := range loss {
		steps = append(steps, step)
	}

	slices.Sort(steps)

	return steps
}
