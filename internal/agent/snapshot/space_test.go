package snapshot_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent/sandbox"
	"trainyard/internal/agent/snapshot"
	"trainyard/internal/clock"
	"trainyard/internal/executable"
)

// TestMain makes the test binary the first process of the spaces under test, as main does.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == sandbox.InitCommand {
		os.Exit(sandbox.Init(os.Stderr))
	}

	os.Exit(m.Run())
}

// lacking skips a test whose requirement is missing; in CI the requirement must be met.
func lacking(t *testing.T, why string) {
	t.Helper()

	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}

	t.Skip(why)
}

// script runs one of the set-up scripts and returns the first line that it prints.
func script(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), filepath.Join("..", "..", "..", "scripts", name), "--check").Output()
	if err != nil {
		lacking(t, name+" --check failed: run make setup")
	}

	line, _, _ := strings.Cut(string(out), "\n")

	return line
}

// criu returns the CRIU of the tests.
func criu(t *testing.T) string {
	t.Helper()

	if os.Geteuid() != 0 {
		lacking(t, "saving a process needs root")
	}

	return script(t, "setup-criu.sh")
}

// stage is a run directory and what is needed to make spaces that show it.
type stage struct {
	t    *testing.T
	dir  string // the run directory
	criu string
}

func newStage(t *testing.T, criu string) *stage {
	t.Helper()
	s := &stage{t: t, dir: t.TempDir(), criu: criu}
	if err := os.Mkdir(filepath.Join(s.dir, "work"), 0o700); err != nil {
		t.Fatal(err)
	}

	return s
}

// act is a program that runs in a space, and its output.
type act struct {
	*snapshot.Space
	t      *testing.T
	lines  chan string
	reader sync.WaitGroup
}

func (s *stage) kept() snapshot.Kept {
	return snapshot.Kept{Dir: s.dir, Names: []string{"work", "absent"}}
}

func (s *stage) program(args ...string) snapshot.Program {
	return snapshot.Program{CRIU: s.criu, Program: sandbox.Program{
		Path: args[0], Args: args, Env: []string{"PATH=/usr/bin:/bin", "PYTHONUNBUFFERED=1", "OMP_NUM_THREADS=2"},
		Dir: filepath.Join(snapshot.Root, "run", "work"), View: s.view(),
	}}
}

func (s *stage) view() sandbox.View {
	return sandbox.View{Mounts: []sandbox.Mount{{From: s.dir, To: filepath.Join(snapshot.Root, "run")}}}
}

// play runs make with a new pair of pipes, and reads what the program writes.
func (s *stage) play(begin func(snapshot.Setting) (*snapshot.Space, error)) *act {
	s.t.Helper()
	a, err := s.try(begin)
	if err != nil {
		s.t.Fatal(err)
	}

	return a
}

func (s *stage) try(begin func(snapshot.Setting) (*snapshot.Space, error)) (*act, error) {
	s.t.Helper()
	outR, outW, err := os.Pipe()
	if err != nil {
		s.t.Fatal(err)
	}

	errR, errW, err := os.Pipe()
	if err != nil {
		s.t.Fatal(err)
	}

	space, err := begin(snapshot.Setting{Setting: sandbox.Setting{
		Exe: "/proc/self/exe", Start: startProcess, Stdout: outW, Stderr: errW,
	}})
	for _, f := range []*os.File{outW, errW} {
		if cerr := f.Close(); cerr != nil {
			s.t.Error(cerr)
		}
	}

	if err != nil {
		return nil, err
	}

	a := &act{Space: space, t: s.t, lines: make(chan string, 10000)}
	a.reader.Go(func() {
		defer close(a.lines)
		for r := bufio.NewScanner(outR); r.Scan(); {
			a.lines <- r.Text()
		}
	})
	a.reader.Go(func() {
		text, _ := io.ReadAll(errR)
		if len(bytes.TrimSpace(text)) > 0 {
			s.t.Logf("standard error: %s", text)
		}
	})

	s.t.Cleanup(func() {
		_ = unix.Kill(space.PID, unix.SIGKILL)
		a.reader.Wait()
		_ = space.Close()
	})

	return a, nil
}

// startProcess starts a process and waits for it.
func startProcess(path string, args []string, attr *syscall.ProcAttr) (int, <-chan syscall.WaitStatus, error) {
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

// until reads lines up to one with this beginning.
func (a *act) until(begin string) []string {
	a.t.Helper()
	var got []string
	patience := time.After(5 * time.Minute)
	for {
		select {
		case line, ok := <-a.lines:
			if !ok {
				a.t.Fatalf("the program ended without writing %q; it wrote %q", begin, got)
			}

			got = append(got, line)
			if strings.HasPrefix(line, begin) {
				return got
			}
		case <-patience:
			a.t.Fatalf("the program did not write %q; it wrote %q", begin, got)
		}
	}
}

// rest reads what is left to the end of the program, which must succeed.
func (a *act) rest() []string {
	a.t.Helper()
	var got []string
	for line := range a.lines {
		got = append(got, line)
	}

	if status := <-a.Ended(); !status.Exited() || status.ExitStatus() != 0 {
		a.t.Fatalf("the program ended with status %#x after writing %q", uint32(status), got)
	}

	return got
}

// drained reads what a dumped program wrote before it was stopped.
func (a *act) drained() []string {
	a.t.Helper()
	var got []string
	for line := range a.lines {
		got = append(got, line)
	}

	if status := <-a.Ended(); !status.Signaled() || status.Signal() != unix.SIGKILL {
		a.t.Errorf("a dumped program ended with status %#x", uint32(status))
	}

	return got
}

// counter counts, and at 40 it waits until it finds a file with the name go. It has a thread, a child, and files: one
// that it appends to, one that is removed, and a link.
const counter = `
import hashlib, os, subprocess, threading, time
log = open("log.txt", "a")
gone = open("gone.txt", "w+"); gone.write("kept"); gone.flush(); os.remove("gone.txt")
os.symlink("log.txt", "link")
child = subprocess.Popen(["sleep", "1000"])
lock = threading.Lock(); lock.acquire()
thread = threading.Thread(target=lock.acquire); thread.start()
state = b""
for i in range(1, 81):
    state = hashlib.sha256(state + bytes([i])).digest()
    log.write(f"{i}\n"); log.flush()
    print(i, state.hex()[:16], os.getpid(), os.getcwd(), child.poll())
    while i == 40 and not os.path.exists("go"):
        time.sleep(0.01)
gone.seek(0); print("end", gone.read(), os.readlink("link"), len(open("log.txt").readlines()), child.poll())
lock.release(); thread.join(); child.kill(); child.wait()
`

func TestADumpedProgramContinuesWhereItWas(t *testing.T) {
	t.Parallel()
	s := newStage(t, criu(t))
	program := s.program("/usr/bin/python3", "-c", counter)

	plain := s.play(func(set snapshot.Setting) (*snapshot.Space, error) { return snapshot.Start(set, program) })
	plain.until("40 ")
	s.write("go")
	plainRest := plain.rest()

	s = newStage(t, s.criu)
	program = s.program("/usr/bin/python3", "-c", counter)
	first := s.play(func(set snapshot.Setting) (*snapshot.Space, error) { return snapshot.Start(set, program) })
	first.until("40 ")
	image := filepath.Join(t.TempDir(), "snapshot-1")
	s.dump(first, image)

	// Twice, the second time from a dump of the restored program, and each time in another run directory.
	second := s.restored(program, image)
	again := filepath.Join(t.TempDir(), "snapshot-2")
	second.stage.dump(second.act, again)

	third := second.stage.restored(second.program, again)
	third.stage.write("go")

	if got := third.rest(); strings.Join(got, "\n") != strings.Join(plainRest, "\n") {
		t.Errorf("the restored program wrote\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(plainRest, "\n"))
	}
}

// restored is a program that continues in another run directory.
type restored struct {
	*act
	stage   *stage
	program snapshot.Program
}

func (s *stage) restored(program snapshot.Program, image string) restored {
	s.t.Helper()
	next := newStage(s.t, s.criu)
	program.View = next.view()
	if err := snapshot.Unpack(image, next.kept()); err != nil {
		s.t.Fatal(err)
	}

	a := next.play(func(set snapshot.Setting) (*snapshot.Space, error) {
		return snapshot.Restore(s.t.Context(), set, program, image)
	})

	return restored{a, next, program}
}

// dump dumps a program, which must end.
func (s *stage) dump(a *act, image string) {
	s.t.Helper()
	if err := a.Dump(s.t.Context(), image, s.kept(), snapshot.Meta{Taken: time.Unix(1, 0)}); err != nil {
		s.t.Fatal(err)
	}

	if lines := a.drained(); len(lines) > 0 {
		s.t.Errorf("a stopped program wrote %q", lines)
	}
}

func (s *stage) write(name string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, "work", name), nil, 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// training trains a small network, and in the middle waits for the file go.
const training = `
import os, time, torch
torch.manual_seed(7)
net = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
for step in range(1, 61):
    x = torch.randn(128, 16)
    loss = ((net(x) - x.sum(1, keepdim=True)) ** 2).mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    print(step, loss.item().hex())
    while step == 30 and not os.path.exists("go"):
        time.sleep(0.01)
print("weights", sum(p.double().sum() for p in net.parameters()).item().hex())
`

func TestATrainingContinuesWithTheSameLosses(t *testing.T) {
	t.Parallel()
	s := newStage(t, criu(t))
	python := script(t, "setup-train.sh")

	program := s.program(python, "-c", training)
	s.write("go")
	plain := s.play(func(set snapshot.Setting) (*snapshot.Space, error) { return snapshot.Start(set, program) }).rest()

	s = newStage(t, s.criu)
	program = s.program(python, "-c", training)
	first := s.play(func(set snapshot.Setting) (*snapshot.Space, error) { return snapshot.Start(set, program) })
	lines := first.until("30 ")
	image := filepath.Join(t.TempDir(), "snapshot-1")
	s.dump(first, image)

	second := s.restored(program, image)
	second.stage.write("go")
	lines = append(lines, second.rest()...)

	if strings.Join(lines, "\n") != strings.Join(plain, "\n") {
		t.Errorf("losses and weights are\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(plain, "\n"))
	}
}

func TestAProgramGoesOnIfItCannotBeDumped(t *testing.T) {
	t.Parallel()
	criu(t)

	broken := filepath.Join(t.TempDir(), "criu")
	if err := executable.Write(broken, []byte("#!/bin/sh\nexit 7\n"), 0o700); err != nil {
		t.Fatal(err)
	}

	s := newStage(t, broken)
	program := s.program("/usr/bin/python3", "-c", counter)
	a := s.play(func(set snapshot.Setting) (*snapshot.Space, error) { return snapshot.Start(set, program) })
	a.until("40 ")

	into := t.TempDir()
	err := a.Dump(t.Context(), filepath.Join(into, "snapshot-1"), s.kept(), snapshot.Meta{})
	if err == nil || !strings.Contains(err.Error(), "exit code 7") {
		t.Errorf("the dump failed with %v", err)
	}

	if left, err := os.ReadDir(into); err != nil || len(left) > 0 {
		t.Errorf("a failed dump left %v, %v", left, err)
	}

	s.write("go")

	if got := a.rest(); !strings.HasPrefix(got[len(got)-1], "end kept") {
		t.Errorf("the program wrote %q", got)
	}
}

func TestAProgramGoesOnIfItsDumpCannotBeKept(t *testing.T) {
	t.Parallel()
	s := newStage(t, criu(t))
	program := s.program("/usr/bin/python3", "-c", counter)
	a := s.play(func(set snapshot.Setting) (*snapshot.Space, error) { return snapshot.Start(set, program) })
	a.until("40 ")

	// CRIU has saved and stopped the processes when it turns out that the name is taken.
	image := filepath.Join(t.TempDir(), "snapshot-1")
	if err := os.MkdirAll(filepath.Join(image, "taken"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := a.Dump(t.Context(), image, s.kept(), snapshot.Meta{}); err == nil {
		t.Error("the dump replaced another one")
	}

	s.write("go")

	if got := a.rest(); !strings.HasPrefix(got[len(got)-1], "end kept") {
		t.Errorf("the program wrote %q", got)
	}
}

func TestASnapshotThatIsDamagedIsNotRestored(t *testing.T) {
	t.Parallel()
	s := newStage(t, criu(t))
	program := s.program("/usr/bin/python3", "-c", counter)
	a := s.play(func(set snapshot.Setting) (*snapshot.Space, error) { return snapshot.Start(set, program) })
	a.until("40 ")
	image := filepath.Join(t.TempDir(), "snapshot-1")
	s.dump(a, image)

	pages, err := filepath.Glob(filepath.Join(image, "criu", "core-*.img"))
	if err != nil || len(pages) == 0 {
		t.Fatal(pages, err)
	}
	if err := os.Truncate(pages[0], 100); err != nil {
		t.Fatal(err)
	}

	_, err = s.try(func(set snapshot.Setting) (*snapshot.Space, error) {
		return snapshot.Restore(t.Context(), set, program, image)
	})
	if err == nil || !strings.Contains(err.Error(), "criu restore") {
		t.Errorf("a damaged snapshot was restored, or the error is unclear: %v", err)
	}
}

func TestTheEndOfAProgramIsReportedAsItWas(t *testing.T) {
	t.Parallel()
	criu(t)

	for command, want := range map[string]string{
		"exit 3":          "exit 3",
		"kill -SEGV $$":   "signal segmentation fault",
		"sleep 1000 & :":  "exit 0",
		"/does/not/exist": "exit 127",
	} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, "criu")
			a := s.play(func(set snapshot.Setting) (*snapshot.Space, error) {
				return snapshot.Start(set, s.program("/bin/sh", "-c", command))
			})

			status := <-a.Ended()
			got := fmt.Sprint("exit ", status.ExitStatus())
			if status.Signaled() {
				got = fmt.Sprint("signal ", status.Signal())
			}

			if got != want {
				t.Errorf("the end is %s, want %s", got, want)
			}
		})
	}
}

func TestASuspendedProgramStandsStill(t *testing.T) {
	t.Parallel()
	criu(t)

	s := newStage(t, "criu")
	a := s.play(func(set snapshot.Setting) (*snapshot.Space, error) {
		return snapshot.Start(set, s.program("/bin/sh", "-c", "(while :; do echo child; sleep 0.01; done) & "+
			"while :; do echo parent; sleep 0.01; done"))
	})
	a.until("child")

	if err := snapshot.Suspend(t.Context(), nil, a.Processes); err != nil {
		t.Fatal(err)
	}

	// One whose signal is pending has not been seen to stop yet, but runs no more code of its own.
	limit, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()

	for {
		found := states(t, a)
		if strings.Trim(found, "TDZ") == "" && len(found) >= 2 {
			break
		}
		if !clock.Sleep(limit, time.Millisecond) {
			t.Fatalf("the states of the processes of a suspended program are %q", found)
		}
	}

	if err := snapshot.Resume(t.Context(), nil, a.Processes); err != nil {
		t.Fatal(err)
	}

	for len(a.lines) > 0 {
		<-a.lines
	}

	a.until("parent")
	a.until("child")
}

// states returns the states of the processes of a program.
func states(t *testing.T, a *act) string {
	t.Helper()
	procs, err := a.Processes()
	if err != nil {
		t.Fatal(err)
	}

	all := ""
	for _, p := range procs {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID))
		if err != nil {
			continue
		}

		_, rest, _ := strings.Cut(string(data), ") ")
		all += rest[:1]
	}

	return all
}

func TestNoProcessOfASpaceOutlivesIt(t *testing.T) {
	t.Parallel()
	criu(t)

	s := newStage(t, "criu")
	a := s.play(func(set snapshot.Setting) (*snapshot.Space, error) {
		return snapshot.Start(set, s.program("/bin/sh", "-c", "setsid sleep 1000 & echo started; wait"))
	})
	a.until("started")

	procs, err := a.Processes()
	if err != nil || len(procs) == 0 {
		t.Fatal(procs, err)
	}

	if err := unix.Kill(a.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}

	<-a.Ended()

	for _, p := range procs {
		if !p.AwaitExit(patient(t)) {
			t.Errorf("process %d is still there", p.PID)
		}
	}
}

func patient(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)

	return ctx
}
