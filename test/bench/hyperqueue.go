package main

import (
	"context"
	_ "embed" // the program
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

//go:embed hyperqueue.py
var hyperqueueProgram string

// hyperqueueSection measures the opponent of short jobs, where it is installed.
type hyperqueueSection struct{ settings }

func (hyperqueueSection) Name() string { return "hyperqueue" }

// Run lets HyperQueue run as many jobs as we do, one task each.
func (s hyperqueueSection) Run(ctx context.Context) (out []figure, err error) {
	if s.hyperqueue == "" {
		_, _ = fmt.Fprintln(s.notes, "   HyperQueue is not installed (scripts/setup-hyperqueue.sh): left out")
		return nil, nil
	}

	jobs, rounds := 1000, s.rounds()
	if s.quick {
		jobs = 20
	}

	best := figure{
		name: "hyperqueue_jobs_per_s", unit: "jobs/s",
		note: fmt.Sprintf("%d separate jobs of one task, `true`, one client, one worker; best of %d rounds", jobs, rounds),
	}

	for range rounds {
		rate, err := s.rate(ctx, jobs)
		if err != nil {
			return nil, err
		}

		best.value = max(best.value, rate)
	}

	return []figure{best}, nil
}

// rate measures one round on a server of its own.
func (s hyperqueueSection) rate(ctx context.Context, jobs int) (rate float64, err error) {
	dir, err := os.MkdirTemp("", "trainyard-bench-hq-")
	if err != nil {
		return 0, fmt.Errorf("make a folder: %w", err)
	}

	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()

	var wrong strings.Builder

	cmd := exec.CommandContext(ctx, s.hyperqueue, "-c", hyperqueueProgram, strconv.Itoa(jobs), dir)
	cmd.Stderr = &wrong

	text, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("hyperqueue.py: %w: %.500s", err, wrong.String())
	}

	// Its server prints where it is before that.
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")

	rate, err = strconv.ParseFloat(lines[len(lines)-1], 64)
	if err != nil {
		return 0, fmt.Errorf("hyperqueue.py answered %.100q: %w", text, err)
	}

	return rate, nil
}
