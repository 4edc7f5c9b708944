// Package daemon starts the servers that a measurement needs and makes sure
// that they end with it.
//
// Every daemon runs in the foreground in a process group of its own, so that a Ctrl-C on
// the terminal reaches the benchmark first and the daemons are stopped in
// order; if the benchmark is killed outright, the kernel tells them to end. It never
// touches a process that it did not start. The opponents' packages and the sections
// of the benchmark call it.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"trainyard/internal/clock"
)

// grace is what a daemon gets between SIGTERM and SIGKILL.
const grace = 5 * time.Second

// Group is a set of daemons that belong together. The zero value is ready,
// with logs in Dir.
type Group struct {
	// Dir is where each daemon's output goes, as NAME.out.
	Dir     string
	running []*process
}

type process struct {
	name string
	cmd  *exec.Cmd
	gone chan struct{}
	err  error // set before gone is closed
}

// Start starts cmd, with its output in a file of the group's folder.
func (g *Group) Start(name string, cmd *exec.Cmd) error {
	out, err := os.Create(g.logPath(name))
	if err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}

	defer func() { _ = out.Close() }() // the daemon holds its own descriptor

	cmd.Stdout, cmd.Stderr = out, out
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}

	cmd.SysProcAttr.Setpgid = true
	cmd.SysProcAttr.Pdeathsig = syscall.SIGTERM
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}

	p := &process{name: name, cmd: cmd, gone: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.gone)
	}()

	g.running = append(g.running, p)

	return nil
}

// Await asks ready again and again until it answers nil, and fails early when one of
// the daemons has ended, with the end of its output.
func (g *Group) Await(ctx context.Context, patience time.Duration, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()

	for {
		if err := g.ended(); err != nil {
			return err
		}

		err := ready(ctx)
		if err == nil {
			return nil
		}
		if !clock.Sleep(ctx, 20*time.Millisecond) {
			return fmt.Errorf("not ready after %s: %w", patience, err)
		}
	}
}

// ended returns an error if a daemon is no longer running.
func (g *Group) ended() error {
	for _, p := range g.running {
		select {
		case <-p.gone:
			return fmt.Errorf("%s ended early (%w): %s", p.name, p.err, g.tail(p.name))
		default:
		}
	}

	return nil
}

// PID returns the process id of a daemon that was started under this name, 0 if there is none.
func (g *Group) PID(name string) int {
	if i := g.index(name); i >= 0 {
		return g.running[i].cmd.Process.Pid
	}

	return 0
}

// Output returns what a daemon has written so far.
func (g *Group) Output(name string) (string, error) {
	text, err := os.ReadFile(g.logPath(name))
	if err != nil {
		return "", fmt.Errorf("read the output of %s: %w", name, err)
	}

	return string(text), nil
}

// Kill ends one daemon with SIGKILL, as a crash would, and waits until it is gone.
func (g *Group) Kill(name string) error {
	i := g.index(name)
	if i < 0 {
		return fmt.Errorf("kill %s: it was not started", name)
	}

	p := g.running[i]
	g.running = slices.Delete(g.running, i, i+1)

	if err := syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("kill %s: %w", name, err)
	}

	<-p.gone

	return nil
}

func (g *Group) index(name string) int {
	return slices.IndexFunc(g.running, func(p *process) bool { return p.name == name })
}

// Stop ends the daemons, the last started first, each with its whole process group.
func (g *Group) Stop() error {
	var failures error
	for _, p := range slices.Backward(g.running) {
		if err := p.stop(); err != nil {
			failures = errors.Join(failures, fmt.Errorf("stop %s: %w", p.name, err))
		}
	}

	g.running = nil

	return failures
}

func (p *process) stop() error {
	group := -p.cmd.Process.Pid
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if err := syscall.Kill(group, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}

		// Not the caller's context: stopping goes on after an interrupt.
		limit, cancel := context.WithTimeout(context.Background(), grace)
		select {
		case <-p.gone:
			cancel()

			// What the daemon itself left behind in its group.
			if err := syscall.Kill(group, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return err
			}

			return nil
		case <-limit.Done():
			cancel()
		}
	}

	return errors.New("still there after SIGKILL")
}

func (g *Group) logPath(name string) string { return filepath.Join(g.Dir, name+".out") }

// tail returns the last lines of a daemon's output.
func (g *Group) tail(name string) string {
	text, err := os.ReadFile(g.logPath(name))
	if err != nil {
		return err.Error()
	}

	lines := strings.Split(strings.TrimSpace(string(text)), "\n")

	return strings.Join(lines[max(0, len(lines)-5):], " | ")
}

// FreePorts returns n different loopback ports that nobody listened on just now.
func FreePorts(ctx context.Context, n int) ([]int, error) {
	ports := make([]int, 0, n)

	for range n {
		// All are held until the end, so that none is given out twice.
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}

		defer func() { _ = l.Close() }()

		addr, ok := l.Addr().(*net.TCPAddr)
		if !ok {
			return nil, fmt.Errorf("find a free port: unexpected address %s", l.Addr())
		}

		ports = append(ports, addr.Port)
	}

	return ports, nil
}
