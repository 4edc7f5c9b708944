package jobfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"trainyard/internal/humanize"
	"trainyard/internal/id"
)

// Starter is a job file to begin with, for the files of a folder.
type Starter struct {
	Text    string
	Summary string // what it runs, in a sentence
}

// maxScript is how much of a program is looked at.
const maxScript = 1 << 20

// program is what is known of the program that a folder holds.
type program struct {
	name        string // of the job
	run         string // how it is started; "" if none was found
	script      string // the file that it was found by
	setup       string // how its packages are installed
	framework   string
	gpus        string // how many it asks for, "" for none
	checkpoints string // folder that it saves to
}

// NewStarter writes a commented job file for the program in a folder. Name is that of the folder.
func NewStarter(folder fs.FS, name string) (Starter, error) {
	p := program{name: jobName(name)}

	files, err := fs.ReadDir(folder, ".")
	if err != nil {
		return Starter{}, fmt.Errorf("read the folder: %w", err)
	}

	var names []string
	for _, f := range files {
		if !f.IsDir() {
			names = append(names, f.Name())
		}
	}

	p.setup = setupFor(names)
	p.script = scriptOf(names)

	if p.script != "" {
		text, err := readScript(folder, p.script)
		if err != nil {
			return Starter{}, err
		}

		p.examine(text)
	}

	return Starter{Text: p.text(), Summary: p.summary()}, nil
}

// jobName makes a name of a job out of that of a folder.
func jobName(folder string) string {
	name := strings.Map(func(c rune) rune {
		switch {
		case c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || strings.ContainsRune("-_.", c):
			return c
		}

		return '-'
	}, strings.ToLower(folder))

	name = strings.Trim(name[:min(len(name), id.MaxName)], "-_.")
	if !id.Name(name) {
		return "train"
	}

	return name
}

// setupFor returns how the packages of a project are installed: by the first of the files that say so.
func setupFor(names []string) string {
	for _, way := range [][2]string{
		{"requirements.txt", "pip install -r requirements.txt"},
		{"pyproject.toml", "pip install ."},
		{"setup.py", "pip install ."},
	} {
		if slices.Contains(names, way[0]) {
			return way[1]
		}
	}

	return ""
}

// scriptNames are what programs that train are usually called, the likeliest first.
var scriptNames = []string{
	"train.py", "main.py", "run.py", "finetune.py", "fine_tune.py", "pretrain.py", "experiment.py", "train.sh", "run.sh",
	"main.go",
}

// scriptOf chooses the program of a folder: by its usual name, or the one whose name says that it trains, or the only
// one.
func scriptOf(names []string) string {
	for _, name := range scriptNames {
		if slices.Contains(names, name) {
			return name
		}
	}

	var programs []string
	for _, name := range names {
		ext := path.Ext(name)
		if ext != ".py" && ext != ".sh" || slices.Contains([]string{"setup.py", "conftest.py", "__init__.py"}, name) ||
			strings.HasPrefix(name, "test_") {
			continue
		}
		if strings.Contains(strings.ToLower(name), "train") {
			return name
		}

		programs = append(programs, name)
	}

	if len(programs) == 1 {
		return programs[0]
	}

	return ""
}

func readScript(folder fs.FS, name string) (string, error) {
	f, err := folder.Open(name)
	if err != nil {
		return "", fmt.Errorf("read %s: %w", name, err)
	}

	text, err := io.ReadAll(io.LimitReader(f, maxScript))
	if err := errors.Join(err, f.Close()); err != nil {
		return "", fmt.Errorf("read %s: %w", name, err)
	}

	return string(text), nil
}

// What the text of a program says about it.
var (
	imports = regexp.MustCompile(`(?m)^\s*(?:import|from)\s+(\w+)`)
	usesGPU = regexp.MustCompile(`\.cuda\(|["']cuda|["']gpu["']|nvidia-smi|CUDA_VISIBLE_DEVICES|` +
		`DistributedDataParallel`)
	distributed = regexp.MustCompile(`torch\.distributed|DistributedDataParallel|LOCAL_RANK`)
	deviceCount = regexp.MustCompile(`(?:devices|num_gpus|gpus|n_gpus)\s*=\s*([0-9]{1,2})\b`)
	savesTo     = regexp.MustCompile(`["'](?:\./)?(checkpoints?|ckpts?)["'/]`)
)

// frameworks are the frameworks by the package that a program imports, the most specific first.
var frameworks = [][2]string{
	{"lightning", "lightning"}, {"pytorch_lightning", "lightning"}, {"transformers", "huggingface"}, {"keras", "keras"},
	{"tensorflow", "tensorflow"}, {"jax", "jax"}, {"torch", "pytorch"},
}

// examine finds out what a program needs from its text.
func (p *program) examine(text string) {
	var packages []string
	for _, m := range imports.FindAllStringSubmatch(text, -1) {
		packages = append(packages, m[1])
	}

	for _, f := range frameworks {
		if slices.Contains(packages, f[0]) {
			p.framework = f[1]
			break
		}
	}

	if m := deviceCount.FindStringSubmatch(text); m != nil && p.framework != "" {
		if n, err := strconv.Atoi(m[1]); err == nil && n > 0 {
			p.gpus = m[1]
		}
	}

	if p.gpus == "" && usesGPU.MatchString(text) {
		p.gpus = "1"
	}

	if m := savesTo.FindStringSubmatch(text); m != nil {
		p.checkpoints = m[1]
	}

	switch path.Ext(p.script) {
	case ".py":
		p.run = "python3 " + p.script
		if p.gpus != "" && p.framework == "pytorch" && distributed.MatchString(text) {
			p.run = "torchrun --standalone --nproc-per-node=gpu " + p.script
		}
	case ".sh":
		p.run = "bash " + p.script
	case ".go":
		p.run = "go run " + p.script
	}
}

// summary says what the file does.
func (p *program) summary() string {
	if p.run == "" {
		return "no program was found here: write your command after run"
	}

	text := "runs " + p.run
	if n, err := strconv.Atoi(p.gpus); err == nil {
		text += " with " + humanize.Count(n, "GPU")
	} else {
		text += " without a GPU"
	}

	if p.setup != "" {
		text += ", after " + p.setup
	}

	return text
}

// text writes the job file: what was found as lines, what else there is as comments.
func (p *program) text() string {
	var out strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&out, format+"\n", args...) }
	either := func(is bool, text, otherwise string) {
		if !is {
			text = "# " + otherwise
		}

		line("%s", text)
	}

	line("# A job for Trainyard. Check it with: trainyard validate, and see where it would run with: " +
		"trainyard submit --dry-run.")
	line("# All fields: docs/reference/jobfile.md of Trainyard.")
	line("name: %s", p.name)
	line("workdir: .                  # uploaded before the job starts, without what .gitignore lists")
	line("")
	line("# Prepares a node; it runs once for the same commands and files.")
	either(p.setup != "", "setup: "+p.setup, "setup: pip install -r requirements.txt")
	line("")

	if p.run == "" {
		line("# No program was found in this folder: write the command that starts yours.")
		line("run: echo 'write the command of your job here'")
	} else {
		line("# The command, found by %s. bash -e runs it: the first command that fails ends the job.", p.script)
		line("run: %s", p.run)
	}

	line("")
	line("resources:")

	if p.gpus == "" {
		line("  # gpus: 1                 # 1..4 takes as many as are free")
	} else {
		line("  gpus: %-19s # %s; 1..4 takes as many as are free", p.gpus, "what "+p.script+" seems to use")
	}

	line("  # gpu: [A100:80GB, H100]  # acceptable models")
	line("  cpus: 2")
	line("  # memory: 32GB            # a run that uses more is stopped; unlimited if left out")
	line("")
	line("# expect: 2h                # how long it takes: fills gaps in the schedule; it is never stopped for it")
	line("# max_duration: 12h         # stopped after that")
	line("# objective: balanced       # time, cost or balanced")
	line("")
	line("# The folder that the program saves to and continues from. The job survives failures of nodes with it.")
	either(p.checkpoints != "", "checkpoint: {dir: "+p.checkpoints+"}", "checkpoint: {dir: ckpt}")
	line("# retry: 3                  # times a failed run is retried")
	line("")
	line("# Forecasts compare the job with past ones by these.")
	either(p.framework != "", "framework: "+p.framework, "framework: pytorch")
	line("# params: {lr: 0.1}")
	line("# env: {LR: 0.1}            # variables of the program; API keys are secrets: trainyard secrets set")
	line("# secrets: [WANDB_API_KEY]")

	return out.String()
}
