package share_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"trainyard/internal/agent/share"
	"trainyard/internal/clock"
)

// built is the folder with the library, the fake driver and the test programs.
var built string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "gpushare")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = os.RemoveAll(dir) }()

		if err := build(context.Background(), dir, ""); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}

		built = dir

		return m.Run()
	}())
}

// build builds the library, the fake driver and the test programs.
func build(ctx context.Context, dir, sanitize string) error {
	cmd := exec.CommandContext(ctx, "../../../native/gpushare/build.sh", dir, "fake")
	cmd.Env = append(os.Environ(), "SANITIZE="+sanitize)

	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("build the library and the fake driver: %w\n%s", err, out)
	}

	return nil
}

// patience is for what must happen at some time; no test waits that long if all is well.
const patience = 2 * time.Minute

// eventually waits until a condition is true.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()

	for end := time.Now().Add(patience); !condition(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

const mib = 1 << 20

// gpu is a fake GPU with a broker.
type gpu struct {
	t       *testing.T
	path    string
	folders string
	built   string
	tuning  share.Tuning

	mu      sync.Mutex
	broker  *share.Broker
	denials []share.Denial
	lost    []string
}

const (
	contextBytes = 512 * mib
	uuid         = "GPU-fake"
)

// tuning has short turns, so that there are many of them in a short time.
func tuning() share.Tuning {
	t := share.DefaultTuning()
	t.Quantum = 60 * time.Millisecond

	return t
}

func newGPU(t *testing.T, capacity uint64, tune ...func(*share.Tuning)) *gpu {
	t.Helper()

	dir, err := os.MkdirTemp("", "gpu") //nolint:usetesting // paths of sockets must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })

	content := make([]byte, 4096+64*128)
	binary.LittleEndian.PutUint64(content, capacity)
	binary.LittleEndian.PutUint64(content[8:], contextBytes)

	g := &gpu{t: t, path: filepath.Join(dir, "gpu"), folders: dir, built: built, tuning: tuning()}
	if err := os.WriteFile(g.path, content, 0o600); err != nil {
		t.Fatal(err)
	}

	for _, f := range tune {
		f(&g.tuning)
	}

	g.start()
	t.Cleanup(func() { _ = g.broker.Close() })

	return g
}

// start starts a broker.
func (g *gpu) start() {
	g.broker = share.New(share.Options{
		Clock: clock.NewSteady(), Log: slog.New(slog.DiscardHandler), Tuning: g.tuning,
		Denied: func(d share.Denial) {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.denials = append(g.denials, d)
		},
		Unresponsive: func(job string, lost bool) {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.lost = append(g.lost, fmt.Sprintf("%s %t", job, lost))
		},
	})
}

func (g *gpu) job(id string, terms share.Terms, limit uint64) share.Job {
	return share.Job{
		ID: id, Folder: filepath.Join(g.folders, id), UUID: uuid, Terms: terms, Cap: limit, UID: -1, GID: -1,
	}
}

func (g *gpu) add(id string, terms share.Terms, limit uint64) {
	g.t.Helper()

	if err := g.broker.Add(g.job(id, terms, limit)); err != nil {
		g.t.Fatal(err)
	}
}

// program is a process of a job.
type program struct {
	t     *testing.T
	cmd   *exec.Cmd
	input io.Closer
	lines *bufio.Scanner
}

// run starts the test program as a process of a job, or without any if the name is "".
func (g *gpu) run(job string, args ...string) *program {
	g.t.Helper()
	return g.runAs("trainer", job, args...)
}

func (g *gpu) runAs(name, job string, args ...string) *program {
	g.t.Helper()

	cmd := exec.CommandContext(g.t.Context(), filepath.Join(g.built, name), args...)
	cmd.Env = append(os.Environ(), "FAKE_GPU="+g.path, "LD_LIBRARY_PATH="+g.built)
	if job != "" {
		cmd.Env = append(cmd.Env,
			"LD_PRELOAD="+filepath.Join(g.built, "libtrainyard-gpu.so"), share.Variable+"="+filepath.Join(g.folders, job))
	}

	cmd.Stderr = os.Stderr

	input, err := cmd.StdinPipe()
	if err != nil {
		g.t.Fatal(err)
	}

	output, err := cmd.StdoutPipe()
	if err != nil {
		g.t.Fatal(err)
	}

	if err := cmd.Start(); err != nil {
		g.t.Fatal(err)
	}

	p := &program{t: g.t, cmd: cmd, input: input, lines: bufio.NewScanner(output)}
	g.t.Cleanup(p.kill)

	return p
}

func (p *program) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

func (p *program) signal(s syscall.Signal) {
	p.t.Helper()

	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// line returns the next line of the output that begins like this.
func (p *program) line(prefix string) string {
	p.t.Helper()

	for p.lines.Scan() {
		if strings.HasPrefix(p.lines.Text(), "error") {
			p.t.Fatal(p.lines.Text())
		}

		if strings.HasPrefix(p.lines.Text(), prefix) {
			return p.lines.Text()
		}
	}

	p.t.Fatalf("the program ended without a line %q", prefix)

	return ""
}

// end waits for the end of the program, which must be a good one.
func (p *program) end() {
	p.t.Helper()
	p.line("done")

	if err := p.cmd.Wait(); err != nil {
		p.t.Fatal(err)
	}
}

// busy returns the busy clocks of the GPU, by process.
func (g *gpu) busy() map[int]time.Duration {
	g.t.Helper()

	content, err := os.ReadFile(g.path)
	if err != nil {
		g.t.Fatal(err)
	}

	clocks := map[int]time.Duration{}
	for i := range 64 {
		at := content[4096+i*128:]
		if pid := binary.LittleEndian.Uint64(at); pid != 0 {
			clocks[int(pid)] = time.Duration(math.Float64frombits(binary.LittleEndian.Uint64(at[8:])))
		}
	}

	return clocks
}

func (g *gpu) uses() map[string]share.Use {
	g.t.Helper()

	uses, err := g.broker.Uses()
	if err != nil {
		g.t.Fatal(err)
	}

	return uses
}

// processes waits until as many processes of a job have connected.
func (g *gpu) processes(job string, n int) {
	g.t.Helper()
	eventually(g.t, fmt.Sprintf("%d processes of job %s", n, job), func() bool { return g.uses()[job].Processes == n })
}

// shares measures which part of the GPU's work each program got while every job was granted the GPU a number of times.
func (g *gpu) shares(grants int, programs map[string]*program) map[string]float64 {
	g.t.Helper()

	for job := range programs {
		eventually(g.t, "a first turn of each job", func() bool { return g.uses()[job].Grants > 1 })
	}

	before, start := g.busy(), g.uses()

	for job := range programs {
		eventually(g.t, "turns of each job", func() bool { return g.uses()[job].Grants >= start[job].Grants+grants })
	}

	after := g.busy()
	sum := time.Duration(0)
	got := map[string]time.Duration{}

	for job, p := range programs {
		got[job] = after[p.cmd.Process.Pid] - before[p.cmd.Process.Pid]
		sum += got[job]
	}

	parts := map[string]float64{}
	for job := range programs {
		parts[job] = float64(got[job]) / float64(sum)
	}

	return parts
}

// wantShares compares shares, with three points of room.
func wantShares(t *testing.T, got, want map[string]float64) {
	t.Helper()

	for job, part := range want {
		if math.Abs(got[job]-part) > 0.03 {
			t.Errorf("job %s got %.1f %% of the GPU, want %.1f %%", job, 100*got[job], 100*part)
		}
	}

	t.Logf("got %.3v, want %.3v", got, want)
}
