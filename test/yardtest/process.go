package yardtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Process is a program that was started, with its output in a file.
type Process struct {
	cmd  *exec.Cmd
	log  string
	gone chan struct{}
}

// Start starts a program in a process group of its own, so that a Ctrl-C on
// the terminal reaches the test first, and lets the kernel end it with the
// test. Its output is added to the file log.
func Start(cmd *exec.Cmd, log string) (*Process, error) {
	out, err := os.OpenFile(log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log of a process: %w", err)
	}

	defer func() { _ = out.Close() }() // the process holds its own descriptor

	if cmd.Stdout == nil {
		cmd.Stdout = out
	}

	if cmd.Stderr == nil {
		cmd.Stderr = out
	}

	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}

	cmd.SysProcAttr.Setpgid, cmd.SysProcAttr.Pdeathsig = true, syscall.SIGKILL
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", filepath.Base(cmd.Path), err)
	}

	p := &Process{cmd: cmd, log: log, gone: make(chan struct{})}
	go func() {
		defer close(p.gone)

		_ = cmd.Wait() // its state says how it ended
	}()

	return p, nil
}

// PID is the process's number.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Gone is closed when the process has ended.
func (p *Process) Gone() <-chan struct{} { return p.gone }

// Signal sends a signal to the process; one that has ended gets none.
func (p *Process) Signal(sig syscall.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s: %w", filepath.Base(p.cmd.Path), err)
	}

	return nil
}

// Kill ends the process as a power cut would, and waits until it is gone.
func (p *Process) Kill() error {
	err := p.Signal(syscall.SIGKILL)
	<-p.gone
	return err
}

// Wait waits for the end of the process and returns its exit code. It fails if
// that takes longer than patience.
func (p *Process) Wait(patience time.Duration) (int, error) {
	select {
	case <-p.gone:
		return p.cmd.ProcessState.ExitCode(), nil
	case <-time.After(patience):
		return 0, fmt.Errorf("%s has not ended after %s: %s", strings.Join(p.cmd.Args, " "), patience, Tail(p.log, 10))
	}
}

// Stop asks the process to end with SIGTERM and returns its exit code.
func (p *Process) Stop(patience time.Duration) (int, error) {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return 0, err
	}

	return p.Wait(patience)
}

// NewFolder makes a folder for a yard. It is not the test's own temporary
// folder, because that goes even if the test fails.
func NewFolder(prefix string) (string, error) {
	folder, err := os.MkdirTemp("", prefix)
	if err != nil {
		return "", fmt.Errorf("make a folder for a yard: %w", err)
	}

	return folder, nil
}

// Tail returns the last lines of a file, for messages.
func Tail(path string, lines int) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}

	all := strings.Split(strings.TrimRight(string(text), "\n"), "\n")

	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// Found is a process that belongs to a folder.
type Found struct {
	PID     int
	Command string
}

// Processes lists the processes whose command line or environment names the
// folder, or that work in it, other than this one: servers, agents, supervisors and programs.
func Processes(folder string) ([]Found, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("look for processes: %w", err)
	}

	var found []Found

	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}

		if Names(pid, folder) {
			line, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
			found = append(found, Found{pid, strings.ReplaceAll(strings.TrimRight(string(line), "\x00"), "\x00", " ")})
		}
	}

	return found, nil
}

// Names reports whether the command line or the environment of a process names the folder, or its working directory is
// there: a program can clear its environment. A process that has ended, or is not ours to look at, names nothing.
func Names(pid int, folder string) bool {
	for _, file := range []string{"cmdline", "environ"} {
		text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), file))
		if err == nil && strings.Contains(string(text), folder) {
			return true
		}
	}

	dir, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "cwd"))

	return err == nil && strings.Contains(dir, folder)
}

// KillAll kills every process that belongs to the folder until none is left,
// as the death of a machine would.
func KillAll(folder string) error {
	for range 200 {
		found, err := Processes(folder)
		if err != nil || len(found) == 0 {
			return err
		}

		for _, p := range found {
			if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("kill %s: %w", p.Command, err)
			}
		}

		time.Sleep(5 * time.Millisecond)
	}

	return fmt.Errorf("processes of %s do not end", folder)
}

// FreeAddress returns a loopback address that nobody listened on just now.
func FreeAddress(ctx context.Context) (string, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}

	return l.Addr().String(), l.Close()
}

// Build compiles commands of this module, by their paths below the test's own
// folder or module, into a folder.
func Build(folder string, packages ...string) error {
	return build(folder+string(filepath.Separator), "-s -w", packages...)
}

// BuildVersion builds the program as a file, as that of a version.
func BuildVersion(file, version string) error {
	return build(file, "-s -w -X main.version="+version, "trainyard/cmd/trainyard")
}

func build(to, flags string, packages ...string) error {
	args := append([]string{"build", "-trimpath", "-ldflags", flags, "-o", to}, packages...)
	cmd := exec.CommandContext(context.Background(), "go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w: %s", err, out)
	}

	return nil
}
