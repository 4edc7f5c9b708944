package main

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"trainyard/internal/clock"
)

func TestPushStopsAtTheNumberOfCalls(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	n, rate, err := load{
		clients: 4,
		span:    time.Hour,
		calls:   100,
	}.push(
		t.Context(),
		clock.Wall{},
		func(int) func(context.Context) error {
			return func(context.Context) error {
				calls.Add(1)
				return nil
			}
		},
	)

	if err != nil || n != 100 || calls.Load() != 100 {
		t.Errorf("push = %d calls, %v; %d were made, want 100", n, err, calls.Load())
	}

	if rate <= 0 {
		t.Errorf("rate = %v, want more than 0", rate)
	}
}

func TestPushReportsAFailedCallAndNoRate(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	n, rate, err := load{
		clients: 3,
		span:    time.Hour,
		calls:   100,
	}.push(
		t.Context(),
		clock.Wall{},
		func(i int) func(context.Context) error {
			return func(ctx context.Context) error {
				if i == 0 {
					return refused
				}

				<-ctx.Done() // one failure ends the others

				return ctx.Err()
			}
		},
	)

	if !errors.Is(err, refused) || n != 0 || rate != 0 {
		t.Errorf("push = %d, %v, %v; want 0, 0, %v", n, rate, err, refused)
	}
}

func TestPercentile(t *testing.T) {
	t.Parallel()
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(100 - i)
	}

	tests := []struct {
		name    string
		samples []time.Duration
		p       float64
		want    time.Duration
	}{
		{"no samples", nil, 50, 0},
		{"one sample is every percentile", []time.Duration{7}, 99, 7},
		{"median of an even number is the lower middle", []time.Duration{4, 1, 3, 2}, 50, 2},
		{"99 of 100", hundred, 99, 99},
		{"the last percentile is the largest", hundred, 100, 100},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			if got := percentile(tt.samples, tt.p); got != tt.want {
				t.Errorf("percentile(%v) = %d, want %d", tt.p, got, tt.want)
			}
		})
	}
}

func TestBell(t *testing.T) {
	t.Parallel()
	ring, err := newBell(clock.Wall{}, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}

	shell := func(line string) func(context.Context) error {
		return func(ctx context.Context) error { return exec.CommandContext(ctx, "/bin/sh", "-c", line).Run() }
	}
	for range 3 { // every job rings once, and the next one does not hear the last
		took, err := ring.latency(t.Context(), time.Minute, shell(ring.line()))
		if err != nil || took <= 0 {
			t.Fatalf("latency = %s, %v", took, err)
		}
	}

	if _, err := ring.latency(t.Context(), time.Millisecond, shell("true")); err == nil ||
		!strings.Contains(err.Error(), "did not start") {
		t.Errorf("a job that never rings: error %v", err)
	}

	refused := errors.New("refused")
	if _, err := ring.latency(
		t.Context(),
		time.Minute,
		func(context.Context) error { return refused },
	); !errors.Is(err, refused) {
		t.Errorf("a refused submission: error %v, want %v", err, refused)
	}

	ctx, cancel := context.WithCancel(t.Context())
	if _, err := ring.latency(ctx, time.Minute, func(context.Context) error {
		cancel()
		return nil
	}); !errors.Is(err, context.Canceled) {
		t.Errorf("an interrupt: error %v, want %v", err, context.Canceled)
	}

	if err := ring.close(); err != nil {
		t.Error(err)
	}
}
