package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"trainyard/internal/store/storetest/pgtest"
	"trainyard/test/bench/history"
	"trainyard/test/bench/yard"
)

// restartSection measures how long a server that was killed takes from the
// start of its process until it is ready, with a long history and a long queue.
type restartSection struct{ settings }

func (restartSection) Name() string { return "restart" }

// Run measures on SQLite and on PostgreSQL.
func (s restartSection) Run(ctx context.Context) (out []figure, err error) {
	err = s.bench(ctx, func(_, binary string) error {
		sqlite, err := s.measure(ctx, "restart_s_1m", yard.Options{Binary: binary})
		if err != nil {
			return err
		}

		out = append(out, sqlite...)

		return s.postgres(ctx, &out, binary)
	})

	return out, err
}

func (s restartSection) postgres(ctx context.Context, out *[]figure, binary string) (err error) {
	server, err := pgtest.Start("", true)
	if err != nil {
		return err
	}

	defer func() { err = errors.Join(err, server.Stop()) }()

	url, err := server.NewDatabase("restart")
	if err != nil {
		return err
	}

	figures, err := s.measure(ctx, "restart_s_1m_postgres", yard.Options{Binary: binary, Store: url})
	*out = append(*out, figures...)

	return err
}

// measure fills a store and restarts a server on it three times.
func (s restartSection) measure(ctx context.Context, name string, o yard.Options) (out []figure, err error) {
	finished, queued := 1_000_000, 100_000
	if s.quick {
		finished, queued = 2_000, 200
	}

	y, err := yard.Start(ctx, o)
	if err != nil {
		return nil, err
	}

	defer func() { err = errors.Join(err, y.Stop()) }()

	if err := y.Halt(); err != nil {
		return nil, err
	}

	began := s.clock.Now()

	if err := history.Fill(ctx, s.clock, y.Database(), history.Size{Finished: finished, Queued: queued}); err != nil {
		return nil, fmt.Errorf("fill the store: %w", err)
	}

	_, _ = fmt.Fprintf(s.notes, "   %s: store filled in %s\n", name, s.clock.Now().Sub(began).Round(time.Second))
	var samples []time.Duration

	for range 3 {
		began := s.clock.Now()

		if err := y.Run(ctx); err != nil {
			return nil, err
		}

		samples = append(samples, s.clock.Now().Sub(began))

		waiting, err := y.Metric(ctx, "trainyard_queued_jobs")
		if err != nil {
			return nil, err
		}
		if int(waiting) != queued {
			return nil, fmt.Errorf("the yard has %.0f queued jobs, want %d", waiting, queued)
		}

		memory, err := y.Memory()
		if err != nil {
			return nil, err
		}

		_, _ = fmt.Fprintf(s.notes, "   %s: %s, %d MiB\n", name, samples[len(samples)-1].Round(time.Millisecond), memory>>20)

		if err := y.Kill(); err != nil {
			return nil, err
		}
	}

	return []figure{
		{
			name,
			percentile(samples, 50).Seconds(),
			"s",
			fmt.Sprintf(
				"%d finished and %d queued jobs; from the process's start until /readyz says yes; median of %d, after kill -9, "+
					"files in the page cache",
				finished,
				queued,
				len(samples),
			),
		},
	}, nil
}
