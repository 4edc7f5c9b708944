package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"trainyard/internal/clock"
	"trainyard/test/bench/history"
	"trainyard/test/bench/scale"
	"trainyard/test/bench/scene"
	"trainyard/test/bench/yard"
)

// scaleSections are the sections of the suite scale: what a yard costs whose store holds a million ended jobs, whose
// queue is long and whose nodes are full. They share one yard, in this order.
func scaleSections(s settings) []section {
	return []section{
		freeSection{s}, // first: it has a yard of its own for FIFO, and leaves that of the default policy
		readsSection{s},
		reportsSection{s},
		feedsSection{s},
		togetherSection{s},
		backupSection{s},
		listsSection{s}, // last on this yard: it lengthens the queue
		agentsSection{s},
		shortSection{s},
		hyperqueueSection{s},
	}
}

// largeYard is a server on a store with a long history, with agents whose GPUs are all held.
type largeYard struct {
	*yard.Yard
	settings

	policy string
	size   history.Size
	stored history.Stored
	fleet  *scale.Fleet
	idle   float64 // cores that the server uses when nobody asks anything

	clients int // that submit; their keys differ by it
}

// largeYards has the large yard that is open. There is one at a time.
type largeYards struct {
	cache string // folder of filled stores; "" for that in the user's cache
	open  *largeYard
}

// stop ends the yard that is open.
func (l *largeYards) stop() error {
	y := l.open
	if y == nil {
		return nil
	}

	l.open = nil

	return y.stop()
}

// at returns the large yard with a policy, and starts it if it is not the one that is open.
func (s settings) at(ctx context.Context, policy string) (*largeYard, error) {
	if y := s.large.open; y != nil && y.policy == policy {
		return y, nil
	}

	if err := s.large.stop(); err != nil {
		return nil, err
	}

	y := &largeYard{settings: s, policy: policy, size: history.Size{Finished: 1_000_000, Queued: 20_000}}
	agents := 1000

	if s.quick {
		y.size = history.Size{Finished: 2_000, Queued: 200}
		agents = 10
	}

	if err := y.start(ctx, agents); err != nil {
		return nil, errors.Join(fmt.Errorf("start a large yard: %w", err), y.stop())
	}

	s.large.open = y

	return y, nil
}

func (y *largeYard) start(ctx context.Context, agents int) error {
	binary, err := y.build.binary(ctx)
	if err != nil {
		return err
	}

	y.stored, err = y.history(ctx)
	if err != nil {
		return err
	}

	began := y.clock.Now()

	y.Yard, err = yard.Start(ctx, yard.Options{Binary: binary, From: y.stored.Path, Args: []string{"--policy", y.policy}})
	if err != nil {
		return err
	}

	queued, err := y.Metric(ctx, "trainyard_queued_jobs")
	if err != nil {
		return err
	}
	if int(queued) != y.size.Queued {
		return fmt.Errorf("the yard has %.0f queued jobs, want %d", queued, y.size.Queued)
	}

	y.fleet, err = scale.Join(ctx, y.Yard, y.clock, agents, machines(agents))
	if err == nil {
		err = y.fleet.Settle(ctx, y.span(3*time.Second))
	}

	if err != nil {
		return err
	}

	_, _ = fmt.Fprintf(y.notes, "   policy %s: %d agents hold %d runs, after %s\n", y.policy, agents, y.fleet.Running(),
		y.clock.Now().Sub(began).Round(time.Second))

	return y.measureIdle(ctx)
}

// history returns the store that the yard begins with.
func (y *largeYard) history(ctx context.Context) (history.Stored, error) {
	cache := history.Cache{Dir: y.large.cache, Clock: y.clock, Notes: y.notes}

	if cache.Dir == "" {
		var err error
		if cache.Dir, err = history.DefaultDir(); err != nil {
			return history.Stored{}, err
		}
	}

	return cache.Store(ctx, y.size)
}

// span shortens a time if the benchmark is only tried.
func (y *largeYard) span(full time.Duration) time.Duration {
	if y.quick {
		return full / 20
	}

	return full
}

// machines returns the nodes of a scene, of several kinds, on which nothing keeps users apart that would cost anything.
func machines(agents int) func(n int) scale.Machine {
	nodes := scene.New(time.Time{}).Nodes(agents)

	return func(n int) scale.Machine {
		inventory := nodes[n].Inventory
		inventory.MixUsers = true

		return scale.Machine{Name: string(nodes[n].ID), Inventory: inventory}
	}
}

// measureIdle measures what the server uses when nobody asks anything: the agents report, and that is all.
func (y *largeYard) measureIdle(ctx context.Context) error {
	used, err := y.watch(ctx, func(ctx context.Context) error {
		clock.Sleep(ctx, y.span(10*time.Second))
		return context.Cause(ctx)
	})
	y.idle = used.cores()

	return err
}

func (y *largeYard) stop() error {
	if y.fleet != nil {
		y.fleet.Stop()
	}

	if y.Yard == nil {
		return nil
	}

	return y.Stop()
}

// usage is what the server used in a span.
type usage struct {
	took time.Duration
	cpu  time.Duration
}

func (u usage) cores() float64 { return u.cpu.Seconds() / max(u.took, 1).Seconds() }

// watch measures what the server uses while work is done, and notices agents that have stopped.
func (y *largeYard) watch(ctx context.Context, work func(context.Context) error) (usage, error) {
	before, err := y.CPU()
	if err != nil {
		return usage{}, err
	}

	began := y.clock.Now()
	if err := work(ctx); err != nil {
		return usage{}, err
	}

	took := y.clock.Now().Sub(began)

	after, err := y.CPU()
	if err != nil {
		return usage{}, err
	}

	return usage{took: took, cpu: after - before}, y.fleet.Err()
}

// asked is what one client's calls came to, one after the other.
type asked struct {
	latencies []time.Duration
	cpu       time.Duration // of the server for each call, without what it uses anyway
}

// ask makes one call after the other for a span, and at least a few times.
func (y *largeYard) ask(ctx context.Context, span time.Duration, call func(context.Context) error) (asked, error) {
	const atLeast, atMost = 3, 500

	if err := call(ctx); err != nil { // connections and caches are no part of it
		return asked{}, err
	}

	latencies := scale.NewLatencies(y.clock)

	used, err := y.watch(ctx, func(ctx context.Context) error {
		began := y.clock.Now()

		for n := 0; n < atLeast || n < atMost && y.clock.Now().Sub(began) < span; n++ {
			if err := latencies.Of(ctx, call); err != nil {
				return err
			}
		}

		return nil
	})
	if err != nil {
		return asked{}, err
	}

	got := asked{latencies: latencies.All()}
	own := used.cpu - time.Duration(y.idle*float64(used.took))
	got.cpu = max(0, own) / time.Duration(len(got.latencies))

	return got, nil
}

// figures are the latency and the server's processor time of calls, under a name.
func (a asked) figures(name, note string) []figure {
	return []figure{
		{name + "_ms", milliseconds(percentile(a.latencies, 50)), "ms", fmt.Sprintf("%s; %d calls", note, len(a.latencies))},
		{name + "_p99_ms", milliseconds(percentile(a.latencies, 99)), "ms", ""},
		{name + "_cpu_ms", milliseconds(a.cpu), "ms", ""},
	}
}

// question is something that a client asks again and again.
type question struct {
	name string
	note string
	call func(context.Context) error
}

// askAll asks one question after the other.
func (y *largeYard) askAll(ctx context.Context, span time.Duration, questions []question) ([]figure, error) {
	var out []figure
	for _, q := range questions {
		got, err := y.ask(ctx, y.span(span), q.call)
		if err != nil {
			return out, fmt.Errorf("%s: %w", q.name, err)
		}

		out = append(out, got.figures(q.name, q.note)...)
	}

	return out, nil
}

// together runs tasks at the same time for a span. Each returns nil when it is stopped; the first that fails ends the
// others.
func together(ctx context.Context, span time.Duration, tasks ...func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, span)
	defer cancel()

	if err := gather(limited, tasks); err != nil {
		return err
	}

	return context.Cause(ctx) // an interrupt of the whole benchmark
}

// gather runs tasks at the same time until all have returned. The first that fails ends the others.
func gather(ctx context.Context, tasks []func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	ended := make(chan error, len(tasks))

	for _, task := range tasks {
		go func() { ended <- task(ctx) }()
	}

	var failures error

	for range tasks {
		if err := <-ended; err != nil {
			failures = errors.Join(failures, err)
			cancel()
		}
	}

	return failures
}
