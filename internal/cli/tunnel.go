package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
	"trainyard/internal/cli/table"
	"trainyard/internal/id"
)

// interruptWait is how long a command in a job may take to end after Ctrl-C.
const interruptWait = 10 * time.Second

// enter starts a command in a job, or a shell if there is none, and connects it with this terminal to its end. It
// returns the error that carries its exit code.
func (a *app) enter(ctx context.Context, c *api.Client, j id.Job, start api.TunnelStart, terminal bool) error {
	if terminal {
		start.Terminal = &api.Terminal{Term: a.Getenv("TERM"), WindowSize: a.windowSize()}
	}

	t, err := c.OpenTunnel(ctx, j, start)
	if err != nil {
		return err
	}

	defer func() { _ = t.Close() }()

	restore := func() {}
	if terminal {
		restore, err = a.rawTerminal()
		if err != nil {
			return err
		}

		defer restore()

		stop := a.sendSizes(t)
		defer stop()
	}

	// Ctrl-C is for the command; it ends this one in turn.
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()

	if terminal {
		// The terminal does not begin a line at its left edge by itself while its keys are passed on.
		go a.noteRemarks(own, c, j, func(text string) {
			_, _ = fmt.Fprintf(a.Stderr, "\r\ntrainyard: job %s: %s\r\n", j, table.Plain(text))
		})
	}

	stop := context.AfterFunc(ctx, func() {
		wait, done := context.WithTimeout(own, interruptWait)
		defer done()

		if t.Control(own, api.TunnelControl{Signal: "INT"}) == nil {
			<-wait.Done()
		}

		cancel()
	})
	defer stop()

	end, err := converse(own, t, a.In, a.Stdout, a.Stderr)
	restore() // before anything is written

	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}

	if err == nil && end.Reason != "" {
		a.Note("the session in job %s was ended: %s", j, table.Plain(end.Reason))
	}

	return errors.Join(err, exit.With(end.Exit))
}

// converse sends input through a tunnel and writes what comes back, until the other side has ended. Nil for input sends
// none.
func converse(ctx context.Context, t *api.Tunnel, in io.Reader, out, errs io.Writer) (api.TunnelEnd, error) {
	if in != nil {
		// What cannot be sent is not needed any more: the other side says why. Reading from a terminal cannot be ended, so
		// nobody waits for this.
		go func() { _ = t.Copy(ctx, api.StreamIn, in) }()
	}

	for {
		m, err := t.Receive(ctx)
		if err != nil {
			return api.TunnelEnd{}, api.LostTunnel(err)
		}

		if m.Control != nil {
			if err := m.Control.Failure(); err != nil {
				return api.TunnelEnd{}, err
			}

			if m.Control.End != nil {
				return *m.Control.End, nil
			}

			continue
		}

		to := out
		if m.Stream == api.StreamErr {
			to = errs
		}

		if len(m.Data) == 0 { // the end of the stream, while the other direction may go on
			if half, ok := to.(interface{ CloseWrite() error }); ok {
				_ = half.CloseWrite() // whoever is connected may be gone
			}

			continue
		}

		if _, err := to.Write(m.Data); err != nil {
			return api.TunnelEnd{}, fmt.Errorf("write the output: %w", err)
		}
	}
}

// windowSize is that of the terminal, zero if it has none.
func (a *app) windowSize() api.WindowSize {
	f, ok := a.Stdout.(*os.File)
	if !ok {
		return api.WindowSize{}
	}

	columns, rows, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return api.WindowSize{}
	}

	return api.WindowSize{Columns: columns, Rows: rows}
}

// rawTerminal passes every key on as it is, until restore is called.
func (a *app) rawTerminal() (restore func(), err error) {
	f, ok := a.Stdin.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return func() {}, nil
	}

	before, err := term.MakeRaw(int(f.Fd()))
	if err != nil {
		return nil, fmt.Errorf("prepare the terminal: %w", err)
	}

	return sync.OnceFunc(func() { _ = term.Restore(int(f.Fd()), before) }), nil
}

// sendSizes tells the other side when the window of the terminal changes, until stop is called.
func (a *app) sendSizes(t *api.Tunnel) (stop func()) {
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, unix.SIGWINCH)

	go func() {
		for range changed {
			size := a.windowSize()
			if t.Control(context.Background(), api.TunnelControl{Size: &size}) != nil {
				return
			}
		}
	}()

	return func() {
		signal.Stop(changed)
		close(changed)
	}
}
