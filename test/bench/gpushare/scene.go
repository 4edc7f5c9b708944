package main

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"trainyard/internal/agent/share"
	"trainyard/internal/clock"
)

//go:embed train.py
var trainer []byte

// way says how programs are on the GPU together.
type way int

const (
	sliced way = iota // by the driver's time-slicing
	shared            // by the broker
	mps               // by NVIDIA's daemon
)

// program is one of those that are on the GPU together. Its name is that of its job.
type program struct {
	name  string
	kind  string // see train.py
	terms string // of its job, as serve reads them
	env   []string
}

// scene is some programs that begin at the same moment.
type scene struct {
	name     string
	way      way
	programs []program
	// during is called when all have begun; nil for nothing.
	during func(ctx context.Context, st *stage) error
}

// outcome is what became of a scene.
type outcome struct {
	rates map[string][]float64 // steps a second of each program, by window
	codes map[string]int       // exit codes
	full  map[string]uint64    // bytes that a program could allocate
}

// stage is where a scene takes place.
type stage struct {
	bench   *bench
	scene   *scene
	folder  string
	windows int
	every   time.Duration // from the begin of one window to that of the next
	broker  *server
	players []*player
	begins  time.Time // the first window
}

// player is a running program.
type player struct {
	program program
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	ready   chan struct{}
	filled  chan struct{}
	ended   chan struct{}

	mu    sync.Mutex
	lines []string // what it printed that is not for us
	rates []float64
	full  uint64
	code  int
}

// patience is how long a program may take to be ready: torch.compile takes the longest.
const patience = 3 * time.Minute

// inTurns is how many times as many windows the scenes have that are played in turns.
const inTurns = 4

// lead is for how long programs work together before a window that comes after a rest.
const lead = time.Second

// play runs an act. If it has several scenes, these are played in turns: the programs of one work for a window while
// those of the others rest, so that what changes on the machine changes for all.
func (b *bench) play(ctx context.Context, act []scene) (outs []outcome, err error) {
	slot, count := b.window, b.windows
	if len(act) > 1 {
		slot, count = b.window+lead, inTurns*b.windows
	}

	length := time.Duration(count*len(act)) * slot
	ctx, cancel := context.WithTimeout(ctx, patience+2*length)
	defer cancel()

	folder, err := os.MkdirTemp("", "gpushare")
	if err != nil {
		return nil, err
	}

	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()

	var stages []*stage
	defer func() {
		for _, st := range stages {
			err = errors.Join(err, st.end())
		}
	}()

	for i := range act {
		st := &stage{
			bench: b, scene: &act[i], folder: filepath.Join(folder, strconv.Itoa(i)),
			windows: count, every: time.Duration(len(act)) * slot,
		}
		stages = append(stages, st)

		if err := st.open(ctx); err != nil {
			return nil, err
		}
	}

	for _, st := range stages {
		if err := st.ready(ctx); err != nil {
			return nil, err
		}
	}

	now := b.clk.Now()
	for i, st := range stages {
		if err := st.begin(now.Add(lead + time.Duration(i)*slot)); err != nil {
			return nil, err
		}
	}

	for _, st := range stages {
		out, err := st.play(ctx)
		if err != nil {
			return nil, err
		}

		outs = append(outs, out)
	}

	return outs, nil
}

// open starts what the scene needs, and its programs.
func (st *stage) open(ctx context.Context) (err error) {
	if err := os.Mkdir(st.folder, 0o700); err != nil {
		return err
	}

	var env []string

	switch st.scene.way {
	case shared:
		if st.broker, err = st.serve(ctx); err != nil {
			return err
		}
	case mps:
		if env, err = st.startMPS(ctx); err != nil {
			return err
		}
	case sliced:
	}

	for _, p := range st.scene.programs {
		player, err := st.start(ctx, p, env)
		if err != nil {
			return err
		}

		st.players = append(st.players, player)
	}

	return nil
}

// ready waits until all programs are ready.
func (st *stage) ready(ctx context.Context) error {
	for _, p := range st.players {
		select {
		case <-p.ready:
		case <-p.ended:
			return fmt.Errorf("%s ended before it was ready: %s", p.program.name, p.tail())
		case <-ctx.Done():
			return fmt.Errorf("%s was not ready in time: %s", p.program.name, p.tail())
		}
	}

	return nil
}

// begin says to all programs when their first window begins.
func (st *stage) begin(at time.Time) error {
	st.begins = at
	for _, p := range st.players {
		if _, err := fmt.Fprintf(p.stdin, "%.3f\n", float64(at.UnixMilli())/1000); err != nil {
			return err
		}
	}

	return nil
}

// play waits for the end of the scene, and does what is to be done during it.
func (st *stage) play(ctx context.Context) (outcome, error) {
	if st.scene.during != nil {
		if err := st.scene.during(ctx, st); err != nil {
			return outcome{}, err
		}
	}

	return st.outcome(ctx)
}

// inWindow waits until the middle of a window.
func (st *stage) inWindow(ctx context.Context, n int) error {
	at := st.begins.Add(time.Duration(n)*st.bench.window + st.bench.window/2)
	clock.Sleep(ctx, at.Sub(st.bench.clk.Now()))

	return ctx.Err()
}

// outcome waits for the programs.
func (st *stage) outcome(ctx context.Context) (outcome, error) {
	out := outcome{rates: map[string][]float64{}, codes: map[string]int{}, full: map[string]uint64{}}

	for _, p := range st.players {
		_ = p.stdin.Close() // one that has ended does not read it
		select {
		case <-p.ended:
		case <-ctx.Done():
			return out, fmt.Errorf("%s did not end: %s", p.program.name, p.tail())
		}

		out.rates[p.program.name], out.codes[p.program.name], out.full[p.program.name] = p.rates, p.code, p.full

		if p.code != 0 && p.program.kind != "fault" {
			return out, fmt.Errorf("%s failed: %s", p.program.name, p.tail())
		}
	}

	return out, nil
}

// end ends everything that is left.
func (st *stage) end() error {
	for _, p := range st.players {
		_ = p.cmd.Process.Kill() // it has mostly ended
		<-p.ended
	}

	var err error
	if st.scene.way == mps {
		err = st.stopMPS()
	}

	if st.broker != nil {
		err = errors.Join(err, st.broker.stop())
	}

	return err
}

// start starts a program.
func (st *stage) start(ctx context.Context, p program, env []string) (*player, error) {
	script := filepath.Join(st.folder, "train.py")
	if err := os.WriteFile(script, trainer, 0o600); err != nil {
		return nil, err
	}

	pl := &player{
		program: p, ready: make(chan struct{}), filled: make(chan struct{}), ended: make(chan struct{}),
		cmd: exec.CommandContext(ctx, st.bench.python, script, p.name, p.kind, strconv.Itoa(st.windows),
			seconds(st.bench.window), seconds(st.every), seconds(lead)),
	}

	pl.cmd.Env = append(append(os.Environ(), env...), p.env...)
	if st.scene.way == shared {
		pl.cmd.Env = append(pl.cmd.Env, "LD_PRELOAD="+st.bench.library, share.Variable+"="+filepath.Join(st.folder, p.name))
	}

	var err error
	if pl.stdin, err = pl.cmd.StdinPipe(); err != nil {
		return nil, err
	}

	out, err := pl.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}

	pl.cmd.Stderr = pl.cmd.Stdout
	if err := pl.cmd.Start(); err != nil {
		return nil, err
	}

	go pl.read(out)

	return pl, nil
}

func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) }

// read reads what a program prints, until it ends.
func (p *player) read(out io.Reader) {
	defer close(p.ended)

	lines := bufio.NewScanner(out)
	for lines.Scan() {
		word, rest, _ := strings.Cut(lines.Text(), " ")

		var values struct {
			Rate  float64 `json:"rate"`
			Bytes uint64  `json:"bytes"`
		}

		known := word == "READY" || word == "RESULT" || word == "FULL"
		if known && json.Unmarshal([]byte(rest), &values) != nil {
			known = false
		}

		p.mu.Lock()

		switch {
		case !known:
			p.lines = append(p.lines, lines.Text())
		case word == "READY":
			close(p.ready)
		case word == "RESULT":
			p.rates = append(p.rates, values.Rate)
		case word == "FULL":
			p.full = values.Bytes
			close(p.filled)
		}

		p.mu.Unlock()
	}

	_ = p.cmd.Wait() // the exit code says it
	p.code = p.cmd.ProcessState.ExitCode()
}

// tail returns the last lines that a program printed.
func (p *player) tail() string {
	p.mu.Lock()
	defer p.mu.Unlock()

	return strings.Join(p.lines[max(0, len(p.lines)-5):], " | ")
}

// server is a broker in a process of its own.
type server struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	out   *bufio.Reader
}

// serve starts a broker for the jobs of the scene.
func (st *stage) serve(ctx context.Context) (*server, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}

	args := []string{"serve", st.folder, st.bench.uuid}
	for _, p := range st.scene.programs {
		args = append(args, p.name+":"+p.terms)
	}

	s := &server{cmd: exec.CommandContext(ctx, self, args...)}
	s.cmd.Stderr = os.Stderr

	if s.stdin, err = s.cmd.StdinPipe(); err != nil {
		return nil, err
	}

	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}

	s.out = bufio.NewReader(out)
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}

	if line, err := s.out.ReadString('\n'); line != "serving\n" {
		return nil, errors.Join(fmt.Errorf("the broker said %q", line), err, s.kill())
	}

	return s, nil
}

func (s *server) stop() error {
	if err := s.stdin.Close(); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, s.out); err != nil {
		return err
	}

	return s.cmd.Wait()
}

// kill kills the broker; that it was killed is not an error.
func (s *server) kill() error {
	if err := s.cmd.Process.Kill(); err != nil {
		return err
	}

	_ = s.cmd.Wait()

	return nil
}

// startMPS starts NVIDIA's daemon and returns the environment of its clients.
func (st *stage) startMPS(ctx context.Context) ([]string, error) {
	env := []string{"CUDA_MPS_PIPE_DIRECTORY=" + st.folder, "CUDA_MPS_LOG_DIRECTORY=" + st.folder}
	cmd := exec.CommandContext(ctx, "nvidia-cuda-mps-control", "-d")
	cmd.Env = append(os.Environ(), env...)

	if text, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("start MPS: %w: %s", err, text)
	}

	return env, nil
}

func (st *stage) stopMPS() error {
	cmd := exec.Command("nvidia-cuda-mps-control") // also after the benchmark was interrupted
	cmd.Env = append(os.Environ(), "CUDA_MPS_PIPE_DIRECTORY="+st.folder)
	cmd.Stdin = strings.NewReader("quit\n")

	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("stop MPS: %w: %s", err, text)
	}

	return nil
}
