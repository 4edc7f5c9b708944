package main

import (
	"context"
	"fmt"
	"time"

	"trainyard/internal/api"
	"trainyard/test/bench/scale"
	"trainyard/test/bench/scene"
)

// freeSection measures how long a node that has become free waits for its next run, while jobs end and arrive: with
// the default policy, and with FIFO beside it.
type freeSection struct{ settings }

func (freeSection) Name() string { return "free" }

// churn is how many jobs end and how many arrive in a second.
const churn = 20

// Run measures each policy on a yard of its own.
func (s freeSection) Run(ctx context.Context) ([]figure, error) {
	var out []figure

	// The default policy last: the sections that follow go on with its yard.
	for _, c := range []contender{contenders()[1], contenders()[0]} {
		y, err := s.at(ctx, c.name)
		if err != nil {
			return out, err
		}

		figures, err := y.measureFree(ctx, c)
		out = append(out, figures...)

		if err != nil {
			return out, fmt.Errorf("free nodes with policy %s: %w", c.name, err)
		}
	}

	return out, nil
}

// measureFree lets jobs end and arrive for a minute.
func (y *largeYard) measureFree(ctx context.Context, c contender) ([]figure, error) {
	arrivals := scale.NewLatencies(y.clock)

	submit, done, err := y.submitter(arrivals)
	if err != nil {
		return nil, err
	}

	defer done()

	rounds, err := y.rounds(ctx)
	if err != nil {
		return nil, err
	}

	y.fleet.Waits() // those from before do not count

	used, err := y.watch(ctx, func(ctx context.Context) error {
		return together(ctx, y.span(60*time.Second), y.endJobs(churn), func(ctx context.Context) error {
			return scale.Pace(ctx, y.clock, churn, submit)
		})
	})
	if err != nil {
		return nil, err
	}

	after, err := y.rounds(ctx)
	if err != nil {
		return nil, err
	}

	memory, err := y.Memory()
	if err != nil {
		return nil, err
	}

	waits := y.fleet.Waits()
	made := max(1, after.count-rounds.count)
	note := fmt.Sprintf(
		"policy %s; %d jobs end and %d arrive in a second; from the report of the end until the next run is assigned to the "+
			"node, %d nodes; the higher percentiles have GPUs in them that wait for larger jobs; %d reports failed",
		y.policy, churn, churn, len(waits), y.fleet.Failures(),
	)

	return []figure{
		{"free_to_start_ms_p50" + c.suffix, milliseconds(percentile(waits, 50)), "ms", note},
		{"free_to_start_ms_p90" + c.suffix, milliseconds(percentile(waits, 90)), "ms", ""},
		{"free_to_start_ms_p99" + c.suffix, milliseconds(percentile(waits, 99)), "ms", ""},
		{"busy_round_ms" + c.suffix, 1000 * (after.seconds - rounds.seconds) / made, "ms", "mean of the rounds of that time"},
		{"busy_rounds_per_s" + c.suffix, made / used.took.Seconds(), "rounds/s", ""},
		{"busy_submit_ms" + c.suffix, milliseconds(percentile(arrivals.All(), 50)), "ms", "of the jobs that arrived"},
		{"busy_submit_p99_ms" + c.suffix, milliseconds(percentile(arrivals.All(), 99)), "ms", ""},
		{"busy_cores" + c.suffix, used.cores(), "cores", "of the server"},
		{"busy_rss_mib" + c.suffix, float64(memory) / (1 << 20), "MiB", "resident memory of the server then"},
	}, nil
}

// endJobs lets so many jobs end in a second.
func (y *largeYard) endJobs(perSecond float64) func(context.Context) error {
	return func(ctx context.Context) error {
		return scale.Pace(ctx, y.clock, perSecond, func(context.Context) error {
			y.fleet.EndOne()
			return y.fleet.Err()
		})
	}
}

// submitter returns a call that submits one job with an idempotency key, as every client of ours does, and how to
// close its client.
func (y *largeYard) submitter(latencies *scale.Latencies) (submit func(context.Context) error, done func(), err error) {
	client, err := y.Client()
	if err != nil {
		return nil, nil, err
	}

	y.clients++
	number, files, n := y.clients, scene.New(y.stored.At), 0

	return func(ctx context.Context) error {
		n++
		request := api.SubmitRequest{File: files.File(n)}
		key := fmt.Sprintf("client-%d-job-%d", number, n)

		return latencies.Of(ctx, func(ctx context.Context) error {
			_, err := client.Submit(ctx, request, key)
			return err
		})
	}, client.Close, nil
}

// counted is how many rounds there were, and how long they took together.
type counted struct{ count, seconds float64 }

func (y *largeYard) rounds(ctx context.Context) (counted, error) {
	count, err := y.Metric(ctx, "trainyard_round_seconds_count")
	if err != nil {
		return counted{}, err
	}

	seconds, err := y.Metric(ctx, "trainyard_round_seconds_sum")

	return counted{count: count, seconds: seconds}, err
}
