package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"trainyard/test/bench/scale"
)

// listsSection measures submissions alone and while four clients list jobs as fast as they can, and how many pages
// these get meanwhile.
type listsSection struct{ settings }

func (listsSection) Name() string { return "lists" }

const (
	listers    = 4
	submitters = 16 // that submit as fast as they can
	probeRate  = 20 // submissions in a second of the client whose latency is compared
	maxFlood   = 3_000
)

// Run measures latencies first: the submissions of the flood lengthen the queue.
func (s listsSection) Run(ctx context.Context) ([]figure, error) {
	y, err := s.at(ctx, defaultPolicy)
	if err != nil {
		return nil, err
	}

	alone, err := y.probe(ctx, 0)
	if err != nil {
		return nil, fmt.Errorf("submit alone: %w", err)
	}

	under, err := y.probe(ctx, listers)
	if err != nil {
		return nil, fmt.Errorf("submit while jobs are listed: %w", err)
	}

	aloneMS, underMS := milliseconds(percentile(alone.latencies, 50)), milliseconds(percentile(under.latencies, 50))
	out := []figure{
		{
			"list_pages_per_s", under.pages, "pages/s",
			fmt.Sprintf("%d clients list the first 50 jobs as fast as they can, beside the submissions", listers),
		},
		{"list_page_ms", milliseconds(percentile(under.lists, 50)), "ms", ""},
		{"list_page_p99_ms", milliseconds(percentile(under.lists, 99)), "ms", ""},
		{"list_cores", under.cores, "cores", "of the server then"},
		{"submit_ms", aloneMS, "ms", fmt.Sprintf("one client, %d submissions a second, nothing beside it", probeRate)},
		{"submit_p99_ms", milliseconds(percentile(alone.latencies, 99)), "ms", ""},
		{"submit_ms_under_lists", underMS, "ms", "the same while jobs are listed"},
		{"submit_p99_ms_under_lists", milliseconds(percentile(under.latencies, 99)), "ms", ""},
		{"submit_p50_ratio_under_lists", underMS / max(aloneMS, 0.001), "times", "submit_ms_under_lists / submit_ms"},
	}

	for _, beside := range []int{0, listers} {
		figures, err := y.flood(ctx, beside)
		out = append(out, figures...)

		if err != nil {
			return out, fmt.Errorf("submit with %d clients beside %d that list: %w", submitters, beside, err)
		}
	}

	return out, nil
}

// probed is what submissions came to, and what others did meanwhile.
type probed struct {
	latencies []time.Duration // of submissions
	lists     []time.Duration
	pages     float64 // lists a second
	cores     float64
}

// probe submits at a steady rate beside so many clients that list.
func (y *largeYard) probe(ctx context.Context, beside int) (probed, error) {
	submits, lists := scale.NewLatencies(y.clock), scale.NewLatencies(y.clock)

	submit, done, err := y.submitter(submits)
	if err != nil {
		return probed{}, err
	}

	defer done()

	tasks := []func(context.Context) error{func(ctx context.Context) error {
		return scale.Pace(ctx, y.clock, probeRate, submit)
	}}

	listing, closeAll, err := y.listers(beside, lists)
	if err != nil {
		return probed{}, err
	}

	defer closeAll()

	used, err := y.watch(ctx, func(ctx context.Context) error {
		return together(ctx, y.span(15*time.Second), append(tasks, listing...)...)
	})

	got := probed{latencies: submits.All(), lists: lists.All(), cores: used.cores()}
	got.pages = float64(len(got.lists)) / max(used.took, 1).Seconds()

	return got, err
}

// listers returns so many clients that list the first page of jobs until they are stopped.
func (y *largeYard) listers(n int, latencies *scale.Latencies) (
	tasks []func(context.Context) error, closeAll func(), err error,
) {
	var closes []func()

	closeAll = func() {
		for _, c := range closes {
			c()
		}
	}

	for range n {
		reader, err := y.Reader()
		if err != nil {
			closeAll()
			return nil, nil, err
		}

		closes = append(closes, reader.Close)
		list := get(reader, "/api/v1/jobs?limit=50")

		tasks = append(tasks, func(ctx context.Context) error { return again(ctx, latencies, list) })
	}

	return tasks, closeAll, nil
}

// again makes a call again and again until ctx ends.
func again(ctx context.Context, latencies *scale.Latencies, call func(context.Context) error) error {
	for ctx.Err() == nil {
		if err := latencies.Of(ctx, call); err != nil && ctx.Err() == nil {
			return err
		}
	}

	return nil
}

// flood submits with many clients as fast as they can, beside so many that list.
func (y *largeYard) flood(ctx context.Context, beside int) ([]figure, error) {
	lists, submits := scale.NewLatencies(y.clock), scale.NewLatencies(y.clock)

	listing, closeAll, err := y.listers(beside, lists)
	if err != nil {
		return nil, err
	}

	defer closeAll()

	calls := make([]func(context.Context) error, submitters)
	for i := range calls {
		submit, done, err := y.submitter(submits)
		if err != nil {
			return nil, err
		}

		defer done()

		calls[i] = submit
	}

	push := load{clients: submitters, span: y.span(10 * time.Second), calls: maxFlood}

	var rate float64

	// The clients that list go on until the others are done.
	listed, stop := context.WithCancel(ctx)
	finished := make(chan error, 1)

	go func() { finished <- gather(listed, listing) }()

	used, err := y.watch(ctx, func(ctx context.Context) error {
		_, rate, err = push.push(ctx, y.clock, func(i int) func(context.Context) error { return calls[i] })
		return err
	})

	stop()

	if err := errors.Join(err, <-finished); err != nil {
		return nil, err
	}

	suffix, note := "", "nothing beside them"
	if beside > 0 {
		suffix, note = "_under_lists", fmt.Sprintf("%d clients list jobs beside them", beside)
	}

	all := submits.All()

	return []figure{
		{
			"submit_16_per_s" + suffix, rate, "jobs/s",
			fmt.Sprintf("%d clients submit as fast as they can, with an idempotency key, %d jobs; %s", submitters,
				len(all), note),
		},
		{"submit_16_ms" + suffix, milliseconds(percentile(all, 50)), "ms", ""},
		{"submit_16_p99_ms" + suffix, milliseconds(percentile(all, 99)), "ms", ""},
		{"submit_16_cores" + suffix, used.cores(), "cores", "of the server"},
	}, nil
}
