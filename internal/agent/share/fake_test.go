package share_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent/share"
	"trainyard/internal/agent/share/sharetest"
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

		if err := sharetest.Build(context.Background(), dir, ""); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}

		built = dir

		return m.Run()
	}())
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
	*sharetest.GPU

	t       *testing.T
	folders string
	built   string
	tuning  share.Tuning

	mu      sync.Mutex
	broker  *share.Broker
	denials []share.Denial
	lost    []string
}

const contextBytes = sharetest.ContextBytes

// tuning has short turns, so that there are many of them in a short time.
func tuning() share.Tuning {
	t := share.DefaultTuning()
	t.Quantum = 60 * time.Millisecond

	return t
}

func newGPU(t *testing.T, capacity uint64, tune ...func(*share.Tuning)) *gpu {
	t.Helper()

	// The folder of a run may have a longer path than that of a socket.
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 120))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}

	g := &gpu{GPU: sharetest.New(t, capacity, built), t: t, folders: dir, built: built, tuning: tuning()}
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
		ID: id, Folder: filepath.Join(g.folders, id), UUID: sharetest.UUID, Terms: terms, Cap: limit, UID: -1, GID: -1,
	}
}

func (g *gpu) add(id string, terms share.Terms, limit uint64) {
	g.t.Helper()

	if err := g.broker.Add(g.job(id, terms, limit)); err != nil {
		g.t.Fatal(err)
	}
}

// socket returns the address of the socket in the folder of a job.
func (g *gpu) socket(job string) *net.UnixAddr {
	g.t.Helper()

	dir, err := os.OpenFile(filepath.Join(g.folders, job), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _ = dir.Close() })

	return &net.UnixAddr{Name: fmt.Sprintf("/proc/self/fd/%d/socket", dir.Fd()), Net: "unixpacket"}
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
	cmd.Env = append(os.Environ(), "TSAN_OPTIONS=halt_on_error=1")
	for name, value := range g.Env() {
		cmd.Env = append(cmd.Env, name+"="+value)
	}

	if job != "" {
		cmd.Env = append(cmd.Env,
			"LD_PRELOAD="+filepath.Join(g.built, sharetest.Library), share.Variable+"="+filepath.Join(g.folders, job))
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

// sound kills the program, which must not have failed by itself.
func (p *program) sound() {
	p.t.Helper()

	if err := p.cmd.Process.Kill(); err != nil {
		p.t.Fatal(err)
	}

	for p.lines.Scan() {
		if strings.HasPrefix(p.lines.Text(), "error") {
			p.t.Error(p.lines.Text())
		}
	}

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

func (g *gpu) uses() map[string]share.Use {
	g.t.Helper()

	uses, err := g.broker.Uses()
	if err != nil {
		g.t.Fatal(err)
	}

	return uses
}

// reports returns which jobs did not answer, and which did again.
func (g *gpu) reports() []string {
	g.mu.Lock()
	defer g.mu.Unlock()

	return slices.Clone(g.lost)
}

// processes waits until as many processes of a job have connected.
func (g *gpu) processes(job string, n int) {
	g.t.Helper()
	eventually(g.t, fmt.Sprintf("%d processes of job %s", n, job), func() bool { return g.uses()[job].Processes == n })
}

// work returns what the GPU has done for each job.
func (g *gpu) work(programs map[string][]*program) map[string]time.Duration {
	g.t.Helper()

	clocks := g.Busy()
	done := map[string]time.Duration{}

	for job, all := range programs {
		for _, p := range all {
			done[job] += clocks[p.cmd.Process.Pid]
		}
	}

	return done
}

// shares measures which part of the GPU's work each job got while all of them ran, until it is good enough, from the
// time in which each of them was granted the GPU a number of times to eight times that. The ends of the measurement
// lie within turns; they matter less the longer it is, and a share that is wrong stays wrong.
func (g *gpu) shares(
	grants int, programs map[string][]*program, good func(map[string]float64) bool,
) map[string]float64 {
	g.t.Helper()

	turns := func(before map[string]share.Use, n int) {
		g.t.Helper()

		for job := range programs {
			eventually(g.t, "turns of each job", func() bool { return g.uses()[job].Grants >= before[job].Grants+n })
		}
	}

	turns(g.uses(), 1)

	before, start := g.work(programs), g.uses()
	parts := map[string]float64{}

	for n := grants; n <= 8*grants; n *= 2 {
		turns(start, n)

		after, sum := g.work(programs), time.Duration(0)
		for job := range programs {
			sum += after[job] - before[job]
		}

		for job := range programs {
			parts[job] = float64(after[job]-before[job]) / float64(sum)
		}

		g.t.Logf("%d turns: %.3v", n, parts)

		if good(parts) {
			break
		}
	}

	return parts
}

// within reports whether shares are right, with three points of room.
func within(got, want map[string]float64) bool {
	for job, part := range want {
		if math.Abs(got[job]-part) > 0.03 {
			return false
		}
	}

	return true
}

// wantShares measures shares and compares them with what they must be.
func (g *gpu) wantShares(programs map[string][]*program, want map[string]float64) {
	g.t.Helper()

	got := g.shares(8, programs, func(parts map[string]float64) bool { return within(parts, want) })
	if !within(got, want) {
		g.t.Errorf("got %.3v of the GPU, want %.3v", got, want)
	}
}

// stop stops a program at some moment, though not one at which it has the lock of the fake GPU: a real one has none.
func (g *gpu) stop(p *program) {
	g.t.Helper()

	eventually(g.t, "the program is stopped without the lock of the fake GPU", func() bool {
		p.signal(syscall.SIGSTOP)
		eventually(g.t, "the program is stopped", p.stopped)

		if _, err := os.Stat(fmt.Sprintf("/proc/%d/task/%d", p.cmd.Process.Pid, g.LockOwner())); err != nil {
			return true
		}

		p.signal(syscall.SIGCONT)

		return false
	})
}

// ended reports whether a program has ended that nobody has waited for.
func (p *program) ended() bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))

	return err != nil || strings.Contains(string(stat), ") Z ")
}

// stopped reports whether all threads of a program are stopped.
func (p *program) stopped() bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}

	for _, path := range threads {
		stat, err := os.ReadFile(path)
		if _, state, _ := strings.Cut(string(stat), ") "); err == nil && !strings.HasPrefix(state, "T") {
			return false
		}
	}

	return len(threads) > 0
}
