package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent/sampler"
)

// children starts processes and records the end of every child, including orphaned descendants that
// the kernel has given to this process.
type children struct {
	mu      sync.Mutex
	waiting map[int]chan syscall.WaitStatus
	changed chan struct{} // signals that a child has ended; buffer of one
	spent   sampler.Spent // by children that have ended
}

// newChildren makes this process the reaper of all its descendants and reaps until ctx is
// cancelled.
func newChildren(ctx context.Context) (*children, error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("become the child subreaper: %w", err)
	}

	c := &children{waiting: map[int]chan syscall.WaitStatus{}, changed: make(chan struct{}, 1)}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)

	go func() {
		defer signal.Stop(ended)

		for {
			select {
			case <-ended:
				c.reap()

				select {
				case c.changed <- struct{}{}:
				default:
				}
			case <-ctx.Done():
				return
			}
		}
	}()

	return c, nil
}

// start starts a process. Its exit status is sent on the channel.
func (c *children) start(path string, args []string, attr *syscall.ProcAttr) (int, <-chan syscall.WaitStatus, error) {
	c.mu.Lock() // a child that exits at once must not be reaped before it is recorded
	defer c.mu.Unlock()

	pid, err := syscall.ForkExec(path, args, attr)
	if err != nil {
		return 0, nil, err
	}

	exit := make(chan syscall.WaitStatus, 1)
	c.waiting[pid] = exit

	return pid, exit, nil
}

// command runs a program to its end and returns what it wrote.
func (c *children) command(ctx context.Context, path string, args ...string) (stdout, stderr []byte, err error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, nil, err
	}

	defer func() { _ = null.Close() }()

	attr := &syscall.ProcAttr{Dir: "/", Env: os.Environ(), Files: []uintptr{null.Fd()}}
	var written [2][]byte
	var reading sync.WaitGroup
	var writers []*os.File

	for i := range written {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll(writers)
			return nil, nil, err
		}

		writers = append(writers, w)
		attr.Files = append(attr.Files, w.Fd())
		reading.Go(func() {
			written[i], _ = io.ReadAll(r) // it ends with the program
			_ = r.Close()
		})
	}

	pid, exit, err := c.start(path, append([]string{path}, args...), attr)
	closeAll(writers)

	if err != nil {
		return nil, nil, err
	}

	stop := context.AfterFunc(ctx, func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	status := <-exit
	stop()
	reading.Wait()

	if !status.Exited() || status.ExitStatus() != 0 {
		_, _, words := exitOf(status)
		err = errors.New(words)
	}

	return written[0], written[1], err
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// takeSpent returns what the children have used that ended since it was last called.
func (c *children) takeSpent() sampler.Spent {
	c.mu.Lock()
	defer c.mu.Unlock()

	spent := c.spent
	c.spent = sampler.Spent{}

	return spent
}

// reap records all children that have ended, and reports whether none is left. As this process is
// the reaper of all its descendants, that means that no descendant is left.
func (c *children) reap() bool {
	c.mu.Lock()
	defer c.mu.Unlock()

	for {
		var status syscall.WaitStatus
		var used syscall.Rusage
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, &used)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil:
			return true // ECHILD is the only other error
		case pid == 0:
			return false
		}

		c.spent.Add(&used)

		if exit, ok := c.waiting[pid]; ok {
			delete(c.waiting, pid)
			exit <- status
		}
	}
}
