package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/clock"
	"trainyard/test/bench/yard"
)

// startSection measures the time from before a submission until the job's first
// line runs, with a server and an agent on this machine.
type startSection struct{ settings }

func (startSection) Name() string { return "start" }

// Run measures by the API, as Slurm's REST is, and by the command line, as
// sbatch is: that one starts a process for each submission.
func (s startSection) Run(ctx context.Context) (out []figure, err error) {
	err = s.bench(ctx, func(dir, binary string) error {
		if err := s.measure(ctx, &out, dir, binary, "none"); err != nil || os.Geteuid() != 0 {
			return err
		}

		// Jobs that run as users of their own have a /tmp of their own, so the bell is elsewhere.
		seen, err := os.MkdirTemp("/run", "trainyard-bench-")
		if err != nil {
			return err
		}

		defer func() { _ = os.RemoveAll(seen) }()

		if err := os.Chmod(seen, 0o755); err != nil { //nolint:gosec // the jobs' users pass through it
			return err
		}

		return s.measure(ctx, &out, seen, binary, "users")
	})

	return out, err
}

// measure measures with jobs that are isolated in one way.
func (s startSection) measure(ctx context.Context, out *[]figure, dir, binary, isolation string) (err error) {
	y, err := yard.Start(ctx, yard.Options{Binary: binary})
	if err != nil {
		return err
	}

	defer func() { err = errors.Join(err, y.Stop()) }()

	if err := y.RunAgent(ctx, isolation); err != nil {
		return err
	}

	ring, err := newBell(s.clock, dir)
	if err != nil {
		return err
	}

	defer func() { err = errors.Join(err, ring.close()) }()

	return s.ways(ctx, out, y, binary, ring, isolation == "users")
}

func (s startSection) ways(
	ctx context.Context, out *[]figure, y *yard.Yard, binary string, ring *bell, isolated bool,
) error {
	client, err := y.Client()
	if err != nil {
		return err
	}

	defer client.Close()

	file := fmt.Sprintf("run: %q\n", ring.line())
	byAPI := func(ctx context.Context) error {
		_, err := client.Submit(ctx, api.SubmitRequest{File: file}, "")
		return err
	}

	path := filepath.Join(filepath.Dir(ring.path), "job.yaml")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		return fmt.Errorf("write the job file: %w", err)
	}

	byCLI := func(ctx context.Context) error {
		cmd := exec.CommandContext(ctx, binary, "submit", "--detach", "--quiet", path)
		cmd.Env = y.Environment()
		if text, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("run trainyard submit: %w: %.300s", err, text)
		}

		return nil
	}

	ways := []struct {
		prefix, note string
		submit       func(context.Context) error
	}{{"start", "by the API", byAPI}, {"cli_start", "by trainyard submit -d, a process for each job", byCLI}}
	if isolated {
		ways = ways[:1]
		ways[0].prefix, ways[0].note = "start_isolated", "by the API; jobs run as users of their own"
	}

	for _, way := range ways {
		samples, err := s.starts(ctx, ring, way.submit)
		if err != nil {
			return fmt.Errorf("start %s: %w", way.note, err)
		}

		note := fmt.Sprintf("%s; %d jobs, one at a time", way.note, len(samples))
		*out = append(*out,
			figure{way.prefix + "_ms_p50", milliseconds(percentile(samples, 50)), "ms", note},
			figure{way.prefix + "_ms_p99", milliseconds(percentile(samples, 99)), "ms", ""})
	}

	return y.AwaitIdle(ctx)
}

// starts takes the latencies of one way, with the pauses that Slurm gets. The
// first job is not counted: it opens connections and makes folders.
func (s startSection) starts(
	ctx context.Context,
	ring *bell,
	submit func(context.Context) error,
) ([]time.Duration, error) {
	jobs, pause := 120, time.Second
	if s.quick {
		jobs, pause = 5, 50*time.Millisecond
	}

	chance := rand.New(rand.NewPCG(1, 2))

	samples := make([]time.Duration, 0, jobs+1)
	for len(samples) <= jobs {
		took, err := ring.latency(ctx, 2*time.Minute, submit)
		if err != nil {
			return nil, err
		}

		samples = append(samples, took)

		if !clock.Sleep(ctx, time.Duration(chance.Int64N(int64(pause)))) {
			return nil, context.Cause(ctx)
		}
	}

	return samples[1:], nil
}
