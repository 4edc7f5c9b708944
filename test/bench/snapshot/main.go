// Command snapshot measures how long the state of a training takes to be saved and restored without its help: suspended
// in place, and dumped with CRIU, ended, and continued in new namespaces. It fails if a loss differs from that of the
// same training that nobody touched. It needs root, CRIU and PyTorch, and uses a GPU if there is one.
package main

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent/sandbox"
	"trainyard/internal/agent/snapshot"
)

//go:embed training.py
var training string

func main() {
	if len(os.Args) == 2 && os.Args[1] == sandbox.InitCommand {
		os.Exit(sandbox.Init(os.Stderr))
	}

	if err := measure(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench-snapshot:", err)
		os.Exit(1)
	}
}

// bench is what all measurements have in common.
type bench struct {
	python, criu, dir string
	steps             int
	gpu               bool
}

// figures are those of one training.
type figures struct {
	GiB float64 `json:"gib"` // filled by the training
	// UsedMiB is the memory of the GPU in use: by the training, while it was suspended, after it was dumped.
	UsedMiB    [3]int  `json:"used_mib"`
	Suspend    float64 `json:"suspend_s"`
	Resume     float64 `json:"resume_s"`
	Dump       float64 `json:"dump_s"`
	ImageMiB   int64   `json:"image_mib"`
	Restore    float64 `json:"restore_s"`    // until the program runs
	FirstStep  float64 `json:"first_step_s"` // from the beginning of the restore to the end of the next step
	DumpedAt   int     `json:"dumped_at"`    // last step before the dump
	Steps      int     `json:"steps"`
	EqualSteps int     `json:"equal_steps"` // those whose loss is the same bit for bit
}

func measure(ctx context.Context, out io.Writer) error {
	python := flag.String("python", "python3", "interpreter with PyTorch")
	criu := flag.String("criu", "criu", "CRIU")
	dir := flag.String("dir", os.TempDir(), "directory for images")
	steps := flag.Int("steps", 400, "steps of a training")
	sizes := flag.String("gib", "1", "memory that a training fills, several with commas")
	path := flag.String("out", "", "file for the figures")
	flag.Parse()

	found, err := exec.LookPath(*python)
	if err != nil {
		return err
	}

	b := bench{python: found, steps: *steps}
	if b.criu, err = filepath.Abs(*criu); err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp(*dir, "bench-snapshot-"); err != nil {
		return err
	}

	defer func() { _ = os.RemoveAll(b.dir) }()

	_, err = exec.LookPath("nvidia-smi")
	b.gpu = err == nil

	var all []figures
	for word := range strings.SplitSeq(*sizes, ",") {
		gib, err := strconv.ParseFloat(word, 64)
		if err != nil {
			return err
		}

		f, err := b.one(ctx, gib)
		if err != nil {
			return fmt.Errorf("training with %s GiB: %w", word, err)
		}

		all = append(all, f)
		text, err := json.Marshal(f)
		if err != nil {
			return err
		}

		_, _ = fmt.Fprintf(out, "%s\n", text)
	}

	if *path == "" {
		return nil
	}

	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}

	return os.WriteFile(*path, append(text, '\n'), 0o600)
}

// one measures one training.
func (b bench) one(ctx context.Context, gib float64) (figures, error) {
	f := figures{GiB: gib, Steps: b.steps}
	plain, err := b.begin(gib, snapshot.Start)
	if err != nil {
		return f, err
	}

	want, err := plain.rest()
	if err != nil {
		return f, err
	}

	image := filepath.Join(b.dir, "image")
	got, err := b.interrupted(ctx, &f, image)
	if err != nil {
		return f, err
	}

	f.EqualSteps = -1 // the last line is the sum of the weights
	for i := range min(len(want), len(got)) {
		if want[i] == got[i] {
			f.EqualSteps++
		}
	}

	if f.EqualSteps != b.steps || len(want) != len(got) {
		return f, fmt.Errorf("%d of %d steps are equal, and %d of %d lines are there", f.EqualSteps, b.steps, len(got),
			len(want))
	}

	return f, os.RemoveAll(image)
}

// interrupted suspends and resumes a training, dumps and restores it, and returns all its lines.
func (b bench) interrupted(ctx context.Context, f *figures, image string) ([]string, error) {
	first, err := b.begin(f.GiB, snapshot.Start)
	if err != nil {
		return nil, err
	}

	lines, err := first.read(b.steps / 4)
	if err != nil {
		return nil, err
	}

	f.UsedMiB[0] = b.used(ctx)
	if err := b.suspend(ctx, f, first); err != nil {
		return nil, err
	}

	more, err := first.read(b.steps / 4)
	lines = append(lines, more...)
	if err != nil {
		return nil, err
	}

	begin := time.Now()
	if err := first.Dump(ctx, image, snapshot.Kept{Dir: b.dir}, snapshot.Meta{Taken: begin}); err != nil {
		return nil, err
	}

	f.Dump = time.Since(begin).Seconds()
	<-first.Ended()
	for line := range first.lines {
		lines = append(lines, line)
	}

	f.DumpedAt = len(lines)
	f.UsedMiB[2] = b.used(ctx)
	if f.ImageMiB, err = size(image); err != nil {
		return nil, err
	}

	begin = time.Now()
	second, err := b.begin(f.GiB, func(s snapshot.Setting, p snapshot.Program) (*snapshot.Space, error) {
		return snapshot.Restore(ctx, s, p, image)
	})
	if err != nil {
		return nil, err
	}

	f.Restore = time.Since(begin).Seconds()
	more, err = second.read(1)
	f.FirstStep = time.Since(begin).Seconds()
	if err != nil {
		return nil, err
	}

	rest, err := second.rest()

	return append(append(lines, more...), rest...), err
}

func (b bench) suspend(ctx context.Context, f *figures, p *player) error {
	var cuda *snapshot.CUDA
	if b.gpu {
		cuda = &snapshot.CUDA{Python: b.python}
	}

	begin := time.Now()
	if err := snapshot.Suspend(ctx, cuda, p.Processes); err != nil {
		return err
	}

	f.Suspend = time.Since(begin).Seconds()
	f.UsedMiB[1] = b.used(ctx)

	begin = time.Now()
	err := snapshot.Resume(ctx, cuda, p.Processes)
	f.Resume = time.Since(begin).Seconds()

	return err
}

// player is a training in a space, and its lines.
type player struct {
	*snapshot.Space
	lines  chan string
	stderr *os.File
}

// begin starts or restores a training.
func (b bench) begin(
	gib float64, how func(snapshot.Setting, snapshot.Program) (*snapshot.Space, error),
) (*player, error) {
	run, err := os.MkdirTemp(b.dir, "run-")
	if err != nil {
		return nil, err
	}

	outR, outW, err := os.Pipe()
	if err != nil {
		return nil, err
	}

	// A pipe, like the standard error of every rank; what is in it is read when the program has failed.
	errR, errW, err := os.Pipe()
	if err != nil {
		return nil, err
	}

	at := filepath.Join(snapshot.Root, "run")
	space, err := how(snapshot.Setting{
		Setting: sandbox.Setting{Exe: "/proc/self/exe", Start: start, Stdout: outW, Stderr: errW},
		CUDA:    snapshot.CUDA{Python: b.python}, GPU: b.gpu,
	}, snapshot.Program{CRIU: b.criu, Program: sandbox.Program{
		Path: b.python,
		Args: []string{b.python, "-c", training, strconv.Itoa(b.steps), strconv.FormatFloat(gib, 'g', -1, 64)},
		Env:  append(os.Environ(), "CUBLAS_WORKSPACE_CONFIG=:4096:8"), Dir: at,
		View: sandbox.View{Mounts: []sandbox.Mount{{From: run, To: at}}},
	}})
	if err := errors.Join(err, outW.Close(), errW.Close()); err != nil {
		return nil, err
	}

	p := &player{Space: space, lines: make(chan string, b.steps+1), stderr: errR}
	go func() {
		defer close(p.lines)
		for r := bufio.NewScanner(outR); r.Scan(); {
			p.lines <- r.Text()
		}
	}()

	return p, nil
}

// start starts a process and waits for its end.
func start(path string, args []string, attr *syscall.ProcAttr) (int, <-chan syscall.WaitStatus, error) {
	pid, err := syscall.ForkExec(path, args, attr)
	if err != nil {
		return 0, nil, err
	}

	exit := make(chan syscall.WaitStatus, 1)
	go func() {
		var status syscall.WaitStatus
		for {
			if _, err := syscall.Wait4(pid, &status, 0, nil); !errors.Is(err, syscall.EINTR) {
				break
			}
		}

		exit <- status
	}()

	return pid, exit, nil
}

// patience is far more than a step of a training takes.
const patience = 3 * time.Minute

// read returns the next n lines.
func (p *player) read(n int) ([]string, error) {
	var got []string
	late := time.After(patience)
	for len(got) < n {
		select {
		case line, ok := <-p.lines:
			if !ok {
				return got, p.failed(fmt.Sprintf("ended after %d more lines", len(got)))
			}

			got = append(got, line)
		case <-late:
			return got, p.failed(fmt.Sprintf("wrote only %d of %d lines", len(got), n))
		}
	}

	return got, nil
}

// rest returns the lines up to the end, which must be a good one.
func (p *player) rest() ([]string, error) {
	var got []string
	for line := range p.lines {
		got = append(got, line)
	}

	if status := <-p.Ended(); !status.Exited() || status.ExitStatus() != 0 {
		return got, p.failed(fmt.Sprintf("ended with status %#x", uint32(status)))
	}

	return got, nil
}

// failed ends the training and returns an error with its last words.
func (p *player) failed(what string) error {
	kill := unix.Kill(p.PID, unix.SIGKILL)
	if errors.Is(kill, unix.ESRCH) {
		kill = nil
	}

	text, err := io.ReadAll(p.stderr)

	return errors.Join(fmt.Errorf("the training %s: %s", what, text), kill, err)
}

// used returns how many MiB of the GPU are in use, 0 without a GPU.
func (b bench) used(ctx context.Context) int {
	out, err := exec.CommandContext(ctx, "nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits").Output()
	if err != nil {
		return 0
	}

	n, _ := strconv.Atoi(strings.TrimSpace(string(out)))

	return n
}

// size returns how many MiB the files in a directory have.
func size(dir string) (int64, error) {
	var sum int64
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}

		info, err := d.Info()
		if err == nil {
			sum += info.Size()
		}

		return err
	})

	return sum >> 20, err
}
