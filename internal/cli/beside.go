package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/cli/table"
	"trainyard/internal/clock"
	"trainyard/internal/fault"
	"trainyard/internal/id"
)

const (
	// besideTail is how much of the output of a server in a job is kept, for when it does not start.
	besideTail = 8 << 10
	// besideLook is how often is looked whether it has started, and besideWait for how long at most.
	besideLook = 300 * time.Millisecond
	besideWait = 2 * time.Minute
	// notFound is the exit code of a shell for a command that is not there.
	notFound = 127
)

// beside is a server that was started beside the program of a job, such as TensorBoard. It ends with its connection.
type beside struct {
	output *tail
	cancel context.CancelFunc
	over   chan struct{} // closed when it has ended
	exit   int           // valid then
	err    error         // likewise: why the connection to it was lost
}

// startBeside starts a shell script with arguments beside the program of a job.
func startBeside(
	ctx context.Context, c *api.Client, j id.Job, rank int, script string, args ...string,
) (*beside, error) {
	command := append([]string{"sh", "-c", script, "sh"}, args...)

	t, err := c.OpenTunnel(ctx, j, api.TunnelStart{Kind: api.TunnelExec, Rank: rank, Command: command})
	if err != nil {
		return nil, err
	}

	own, cancel := context.WithCancel(ctx)
	b := &beside{output: &tail{}, cancel: cancel, over: make(chan struct{})}

	go func() {
		defer close(b.over)
		defer func() { _ = t.Close() }()

		var end api.TunnelEnd
		end, b.err = converse(own, t, nil, b.output, b.output)
		b.exit = end.Exit
	}()

	return b, nil
}

// stop ends the server and waits until it is cut off.
func (b *beside) stop() {
	b.cancel()
	<-b.over
}

// await waits until found reports the port of the server.
func (b *beside) await(ctx context.Context, what string, found func() (int, error)) (int, error) {
	bounded, cancel := context.WithTimeout(ctx, besideWait)
	defer cancel()

	for {
		port, err := found()
		if err != nil || port > 0 {
			return port, err
		}

		switch clock.Wait(bounded, besideLook, b.over) {
		case clock.Woken:
			return 0, b.failure(what)
		case clock.Ended:
			if ctx.Err() != nil {
				return 0, ctx.Err()
			}

			return 0, fault.New(fault.Unavailable, "not_started", "%s has not started within %v; its last output:\n%s", what,
				besideWait, b.output)
		case clock.Passed:
		}
	}
}

// failure says why the server has ended.
func (b *beside) failure(what string) error {
	switch {
	case b.err != nil:
		return b.err
	case b.exit == notFound:
		return fault.New(fault.Conflict, "program_not_found", "%s was not found in the environment of the job", what).
			WithRemedy("install it in setup, or with: trainyard exec JOB -- pip install %s", strings.ToLower(what))
	}

	return fault.New(fault.Conflict, "not_started", "%s has ended with exit code %d; its last output:\n%s", what, b.exit,
		b.output)
}

// forwardTo forwards a port of this machine to a server beside a job until Ctrl-C, or until one of them has ended.
func (b *beside) forwardTo(ctx context.Context, f *forwarder, what string, p portPair) error {
	own, end := context.WithCancelCause(ctx)
	defer end(nil)

	go func() {
		select {
		case <-b.over:
			if ctx.Err() == nil { // Ctrl-C ends the server, too
				end(b.failure(what))
			}
		case <-own.Done():
		}
	}()

	return f.run(own, []portPair{p})
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(data []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()

	t.text = append(t.text, data...)
	if extra := len(t.text) - besideTail; extra > 0 {
		t.text = append([]byte(nil), t.text[extra:]...)
	}

	return len(data), nil
}

// String returns what can be shown.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()

	lines := strings.Split(strings.TrimSpace(string(t.text)), "\n")
	for i := range lines {
		lines[i] = "  " + table.Plain(strings.TrimRight(lines[i], "\r"))
	}

	return strings.Join(lines, "\n")
}

// capture runs a command in a job and returns what it has printed; nothing if it has failed.
func capture(ctx context.Context, c *api.Client, j id.Job, rank int, command ...string) ([]byte, error) {
	t, err := c.OpenTunnel(ctx, j, api.TunnelStart{Kind: api.TunnelExec, Rank: rank, Command: command})
	if err != nil {
		return nil, err
	}

	defer func() { _ = t.Close() }()

	var out bytes.Buffer

	end, err := converse(ctx, t, nil, &out, io.Discard)
	if err != nil || end.Exit != 0 {
		return nil, err
	}

	return out.Bytes(), nil
}

// listens reports whether a rank of a job listens on a port.
func listens(ctx context.Context, c *api.Client, j id.Job, rank, port int) (bool, error) {
	t, err := c.OpenTunnel(ctx, j, api.TunnelStart{Kind: api.TunnelPort, Rank: rank, Port: port})

	var refused *fault.Error
	switch {
	case err == nil:
		return true, t.Close()
	case errors.As(err, &refused) && refused.Code == "port_closed":
		return false, nil
	}

	return false, fmt.Errorf("look for the port of the job: %w", err)
}
