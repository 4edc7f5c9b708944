package runtime

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent/runtime/process"
	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/agent/runtime/subprocess"
	"trainyard/internal/agent/sandbox"
	"trainyard/internal/api"
	"trainyard/internal/clock"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/logs"
)

// TestMain makes the test binary its own supervisor and watcher, as main does, and the program of some tests.
func TestMain(m *testing.M) {
	if status, is := subprocess.Run(os.Args, os.Stderr); is {
		os.Exit(status)
	}

	if len(os.Args) == 3 && os.Args[1] == "play" {
		os.Exit(play(os.Args[2]))
	}

	os.Exit(m.Run())
}

// yard is a Runtime under test.
type yard struct {
	*Runtime
	t    testing.TB
	opts Options
	next uint64
}

// newYard opens a Runtime on a new data directory. At the end of the test everything that is left
// is killed.
func newYard(t testing.TB, change ...func(*Options)) *yard {
	t.Helper()
	opts := Options{Dir: t.TempDir(), Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Clock: clock.Wall{}}
	for _, c := range change {
		c(&opts)
	}

	y := &yard{t: t, opts: opts}
	y.open()

	t.Cleanup(func() {
		for _, s := range y.List() {
			if s.State != job.RunEnded {
				if err := y.Stop(s.Run, s.Rank, job.StopKill); err != nil {
					t.Error(err)
				}

				y.await(s.Run, job.RunEnded)
			}

			if err := y.Forget(s.Run, s.Rank); err != nil {
				t.Error(err)
			}
		}

		if err := y.Close(); err != nil {
			t.Error(err)
		}
	})

	return y
}

// open makes the Runtime and adopts what is there.
func (y *yard) open() {
	y.t.Helper()
	r, err := New(y.opts)
	if err != nil {
		y.t.Fatal(err)
	}

	y.Runtime = r
	if _, err := r.Adopt(); err != nil {
		y.t.Fatal(err)
	}
}

// reopen does what a restart of the agent does.
func (y *yard) reopen() {
	y.t.Helper()

	if err := y.Close(); err != nil {
		y.t.Fatal(err)
	}

	y.open()
}

// spec is a new run of a new job with one rank.
func (y *yard) spec(l api.Launch) rundir.Spec {
	y.next++
	j := id.NewJob(y.next)

	if l.Grace == 0 {
		l.Grace = job.Duration(time.Minute)
	}

	s := rundir.Spec{Run: id.NewRun(j, 1), Job: j, Epoch: 1, Launch: l}
	if y.opts.Users != nil {
		if l.Owner == "" {
			s.Launch.Owner, s.Launch.OwnerNumber = "ada", 1
		}

		dirs, _ := pipes.Load(y.t.Name())
		s.Visible, _ = dirs.([]string)
	}

	return s
}

// start starts a new run and returns its id.
func (y *yard) start(l api.Launch) id.Run {
	y.t.Helper()
	s := y.spec(l)
	if err := y.Start(y.t.Context(), s); err != nil {
		y.t.Fatal(err)
	}

	return s.Run
}

// script starts a run of this command.
func (y *yard) script(command string) id.Run {
	y.t.Helper()
	return y.start(api.Launch{Command: command})
}

// await waits until a run is in a state, or has ended.
func (y *yard) await(run id.Run, want job.RunState) rundir.Status {
	y.t.Helper()
	patience, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()

	for {
		changed := y.Watch()
		s, ok := y.Status(run, 0)
		if !ok {
			y.t.Fatalf("run %s is not known", run)
		}

		if s.State == want {
			return s
		}

		if s.State == job.RunEnded {
			y.t.Fatalf("run %s has ended, want %s: %+v", run, want, s)
		}

		select {
		case <-changed:
		case <-patience.Done():
			y.t.Fatalf("run %s is still %s, want %s", run, s.State, want)
		}
	}
}

// end waits for the end of a run.
func (y *yard) end(run id.Run) rundir.Status {
	y.t.Helper()
	return y.await(run, job.RunEnded)
}

// output returns what a run has written, by stream. The log must be whole.
func (y *yard) output(run id.Run) map[logs.Stream]string {
	y.t.Helper()
	f, _, err := y.OpenLog(run, 0, 0)
	if err != nil {
		y.t.Fatal(err)
	}

	defer func() { _ = f.Close() }()

	out := map[logs.Stream]string{}

	d := logs.NewDecoder(f)
	for {
		fr, err := d.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if s, _ := y.Status(run, 0); errors.Is(err, io.ErrUnexpectedEOF) && s.State != job.RunEnded {
			return out // more is on its way
		}

		if err != nil {
			y.t.Fatalf("log of %s: %v", run, err)
		}

		out[fr.Stream] += string(fr.Data)
	}
}

// follow waits until a running program's standard output begins with want.
func (y *yard) follow(run id.Run, want string) {
	y.t.Helper()

	for !strings.HasPrefix(y.output(run)[logs.Stdout], want) {
		if s, _ := y.Status(run, 0); s.State == job.RunEnded {
			y.t.Fatalf("run %s ended without writing %q: %+v", run, want, s)
		}

		if !clock.Sleep(y.t.Context(), time.Millisecond) {
			y.t.Fatal("the test was ended")
		}
	}
}

// runDir is the directory of a run with one rank.
func (y *yard) runDir(run id.Run) string {
	return filepath.Join(y.dir, rundir.RunsDir, rundir.RankName(run, 0))
}

// pipes are the directories with the pipes of each test, which programs that run as other users are shown.
var pipes sync.Map

// pipe makes a named pipe, by which scripts and tests wait for each other.
func pipe(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "pipe")
	if err := errors.Join(unix.Mkfifo(path, 0o600), os.Chmod(path, 0o666)); err != nil {
		t.Fatal(err)
	}

	dirs, _ := pipes.LoadOrStore(t.Name(), []string(nil))
	known, _ := dirs.([]string)
	pipes.Store(t.Name(), append(known, dir))
	t.Cleanup(func() { pipes.Delete(t.Name()) })

	return path
}

// inBothModes runs a test with programs that run as the agent does and with programs that run as users of their own.
func inBothModes(t *testing.T, test func(t *testing.T, mode func(*Options))) {
	t.Helper()
	t.Run("as the agent", func(t *testing.T) {
		t.Parallel()
		test(t, func(*Options) {})
	})

	t.Run("as users", func(t *testing.T) {
		t.Parallel()
		test(t, isolated(t))
	})
}

// isolated lets programs run as users of their own.
func isolated(t testing.TB) func(*Options) {
	t.Helper()

	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("needs root to run programs as other users")
		}

		t.Skip("needs root to run programs as other users")
	}

	return func(o *Options) { o.Users = &sandbox.Users{First: 310000, Last: 319999} }
}

// receive waits until a script has written to a pipe.
func receive(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	return strings.TrimSpace(string(data))
}

// release lets a script go on that reads from a pipe.
func release(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}

	if _, err := f.WriteString("go\n"); err != nil {
		t.Error(err)
	}

	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// alive reports whether a process is running. A zombie is not.
func alive(t *testing.T, pid string) bool {
	t.Helper()
	n, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatalf("%q is no process id", pid)
	}

	p, ok := process.Read(n)

	return ok && !p.Dead
}

// count is the number of lines in a file, 0 if it is not there.
func count(t *testing.T, path string) int {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}

	return bytes.Count(data, []byte("\n"))
}

// lacking skips a test whose requirement is missing; in CI the requirement must be met.
func lacking(t *testing.T, why string) {
	t.Helper()

	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}

	t.Skip(why)
}

// check compares the parts of a status that a test is about.
func check(t *testing.T, got rundir.Status, code int, signal string, cause job.Cause, signalled bool, reason string) {
	t.Helper()
	text := func(code int, signal string, cause job.Cause, signalled bool) string {
		return fmt.Sprintf("exit code %d, signal %q, cause %q, signalled %v", code, signal, cause, signalled)
	}
	g, w := text(got.ExitCode, got.Signal, got.Cause, got.Signalled), text(code, signal, cause, signalled)
	if g != w {
		t.Errorf("got  %s (%s)\nwant %s", g, got.Reason, w)
	}

	if !strings.Contains(got.Reason, reason) {
		t.Errorf("reason = %q, want %q in it", got.Reason, reason)
	}

	if got.Ended.IsZero() || got.PID != 0 {
		t.Errorf("an ended rank has no end or still a process: %+v", got)
	}
}
