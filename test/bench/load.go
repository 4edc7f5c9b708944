package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"trainyard/internal/clock"
	"trainyard/internal/quantile"
)

// load says how hard and how long to push.
type load struct {
	clients int
	span    time.Duration // no call begins later than this
	calls   int           // nor after this many, over all clients
}

// push lets each client call its own function again and again, and returns how many
// calls were answered and how many per second. A single failed call ends the
// measurement: a rate with failures in it means nothing.
func (l load) push(
	ctx context.Context,
	clk clock.Clock,
	client func(i int) func(context.Context) error,
) (int, float64, error) {
	calls := make([]func(context.Context) error, l.clients)
	for i := range calls {
		calls[i] = client(i)
	}

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	var begun, done atomic.Int64
	var group sync.WaitGroup

	start := clk.Now()
	for _, call := range calls {
		group.Go(func() {
			for ctx.Err() == nil && clk.Now().Sub(start) < l.span && begun.Add(1) <= int64(l.calls) {
				if err := call(ctx); err != nil {
					cancel(err)
					return
				}

				done.Add(1)
			}
		})
	}

	group.Wait()
	took := clk.Now().Sub(start)

	if ctx.Err() != nil {
		return 0, 0, fmt.Errorf("after %d calls: %w", done.Load(), context.Cause(ctx))
	}

	return int(done.Load()), float64(done.Load()) / took.Seconds(), nil
}

// percentile returns the smallest sample that is not below p percent of them.
func percentile(samples []time.Duration, p float64) time.Duration {
	return quantile.NearestRank(slices.Sorted(slices.Values(samples)), p/100)
}

// bell tells when a job's first line runs: the job opens a named pipe and
// writes one line into it (Line), which costs the job no process of its own, and the
// reading end sees it on the same monotonic clock that took the time
// of the submission.
type bell struct {
	path  string
	pipe  *os.File
	clock clock.Clock
}

func newBell(clk clock.Clock, dir string) (*bell, error) {
	path := filepath.Join(dir, "bell")
	//nolint:gosec // jobs of other users write to it
	if err := errors.Join(syscall.Mkfifo(path, 0o600), os.Chmod(path, 0o666)); err != nil {
		return nil, fmt.Errorf("make the pipe %s: %w", path, err)
	}

	// Opened for both, so that the pipe neither blocks here nor ends when a job closes it.
	pipe, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open the pipe %s: %w", path, err)
	}

	return &bell{path: path, pipe: pipe, clock: clk}, nil
}

// line is the shell command that rings.
func (b *bell) line() string { return "echo >" + b.path }

// latency calls submit and returns the time from before the call until the job rang.
func (b *bell) latency(
	ctx context.Context,
	patience time.Duration,
	submit func(context.Context) error,
) (time.Duration, error) {
	start := b.clock.Now()
	if err := b.pipe.SetReadDeadline(start.Add(patience)); err != nil {
		return 0, fmt.Errorf("limit the wait for a job: %w", err)
	}

	stop := context.AfterFunc(ctx, func() { _ = b.pipe.SetReadDeadline(start) })
	defer stop()

	rang := make(chan error, 1)
	var at time.Time
	go func() {
		_, err := io.ReadFull(b.pipe, make([]byte, 1))
		at = b.clock.Now()
		rang <- err
	}()

	if err := submit(ctx); err != nil {
		_ = b.pipe.SetReadDeadline(start)
		<-rang
		return 0, err
	}

	if err := <-rang; err != nil {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}

		return 0, fmt.Errorf("the job did not start within %s: %w", patience, err)
	}

	return at.Sub(start), nil
}

func (b *bell) close() error {
	return errors.Join(b.pipe.Close(), os.Remove(b.path))
}
