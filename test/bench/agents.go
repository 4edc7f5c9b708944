package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/clock"
	"trainyard/internal/fleet"
	"trainyard/test/bench/yard"
)

// agentsSection measures what many nodes that have nothing to do cost a server.
// The agents are simulated in this process, and each has what a real one has:
// a certificate and a TLS connection of its own, the stream of assignments open
// on it, and a report as often as the server asks for one.
type agentsSection struct{ settings }

func (agentsSection) Name() string { return "agents" }

// Run measures.
func (s agentsSection) Run(ctx context.Context) (out []figure, err error) {
	agents, span := 1000, 60*time.Second
	if s.quick {
		agents, span = 20, 2*time.Second
	}

	err = s.bench(ctx, func(_, binary string) (err error) {
		options := yard.Options{Binary: binary}
		if s.quick {
			options.Args = []string{"--report-every", "200ms"}
		}

		y, err := yard.Start(ctx, options)
		if err != nil {
			return err
		}

		defer func() { err = errors.Join(err, y.Stop()) }()

		crowd := &crowd{yard: y}
		working, cancel := context.WithCancelCause(ctx)
		defer crowd.group.Wait()
		defer cancel(nil)

		if err := crowd.join(working, agents, cancel); err != nil {
			return err
		}

		out, err = s.watch(working, crowd, agents, span)

		return err
	})

	return out, err
}

// crowd is many agents of one yard.
type crowd struct {
	yard    *yard.Yard
	group   sync.WaitGroup
	every   atomic.Int64 // nanoseconds between reports, as the server said last
	streams atomic.Int64 // open
	reports atomic.Int64 // answered
}

// joiners is how many agents join at a time.
const joiners = 16

// join makes all agents nodes and lets them work until ctx ends. An agent that fails ends the measurement.
func (c *crowd) join(ctx context.Context, agents int, fail context.CancelCauseFunc) error {
	token, err := c.yard.JoinToken(ctx, agents)
	if err != nil {
		return err
	}

	names := make(chan int)

	var joining sync.WaitGroup
	for range joiners {
		joining.Go(func() {
			for n := range names {
				client, err := c.yard.Join(ctx, token, api.JoinRequest{Name: fmt.Sprintf("node-%04d", n), Inventory: inventory(n)})
				if err != nil {
					fail(fmt.Errorf("agent %d: %w", n, err))
					continue
				}

				c.group.Go(func() { c.follow(ctx, client, fail) })
				c.group.Go(func() { c.report(ctx, client, n, agents, fail) })
			}
		})
	}

	for n := range agents {
		if ctx.Err() != nil {
			break
		}

		names <- n
	}

	close(names)
	joining.Wait()
	for c.streams.Load() < int64(agents) && clock.Sleep(ctx, 20*time.Millisecond) {
	}

	return context.Cause(ctx)
}

func inventory(n int) fleet.Inventory {
	inv := fleet.Inventory{
		Address: fmt.Sprintf("10.0.%d.%d", n>>8, n&255),
		OS:      "Debian 12",
		Arch:    "amd64",
		Version: "bench",
		CPUs:    128_000,
		Memory:  1 << 40,
		Disk:    4 << 40,
	}

	for g := range 8 {
		inv.GPUs = append(
			inv.GPUs,
			fleet.GPU{
				Index:  g,
				UUID:   fmt.Sprintf("GPU-%04d-%d", n, g),
				Model:  "NVIDIA A100-SXM4-80GB",
				Memory: 80 << 30,
				Fake:   true,
			},
		)
	}

	return inv
}

// follow keeps the stream of assignments open.
func (c *crowd) follow(ctx context.Context, client *api.Client, fail context.CancelCauseFunc) {
	first := true
	err := client.Assignments(ctx, func(api.Assignments) error {
		if first {
			first = false
			c.streams.Add(1)
		}

		return nil
	})

	if ctx.Err() == nil {
		fail(fmt.Errorf("a stream of assignments ended: %w", errors.Join(err, errors.New("the server closed it"))))
	}
}

// report reports again and again. The first reports are spread over one
// interval, as those of machines that were started at different times are.
func (c *crowd) report(ctx context.Context, client *api.Client, n, agents int, fail context.CancelCauseFunc) {
	defer client.Close()

	inv := inventory(n)
	r := api.Report{Capability: api.Capability, Boot: "bench", Inventory: &inv}
	for r.Seq = 1; ; r.Seq++ {
		reply, err := client.Report(ctx, r)

		if ctx.Err() != nil {
			return
		}

		if err != nil {
			fail(fmt.Errorf("a report failed: %w", err))
			return
		}

		c.reports.Add(1)
		c.every.Store(int64(reply.Interval))

		wait := time.Duration(reply.Interval)
		if r.Seq == 1 {
			wait = wait * time.Duration(n) / time.Duration(agents)
		}

		r.Inventory = nil

		if !clock.Sleep(ctx, wait) {
			return
		}
	}
}

// watch measures the server's processor time over a span in which all agents report.
func (s agentsSection) watch(ctx context.Context, c *crowd, agents int, span time.Duration) ([]figure, error) {
	settle := 2 * time.Duration(c.every.Load()) // until all have sent their first reports
	if !clock.Sleep(ctx, settle) {
		return nil, context.Cause(ctx)
	}

	before, err := c.yard.CPU()
	if err != nil {
		return nil, err
	}

	began, reports := s.clock.Now(), c.reports.Load()

	if !clock.Sleep(ctx, span) {
		return nil, context.Cause(ctx)
	}

	after, err := c.yard.CPU()
	if err != nil {
		return nil, err
	}

	took, heard := s.clock.Now().Sub(began), c.reports.Load()-reports

	memory, err := c.yard.Memory()
	if err != nil {
		return nil, err
	}

	ready, err := c.yard.Metric(ctx, `trainyard_nodes{class="local",state="ready"}`)
	if err != nil {
		return nil, err
	}

	wanted := float64(agents) * took.Seconds() / time.Duration(c.every.Load()).Seconds()
	if int(ready) != agents || float64(heard) < 0.9*wanted {
		return nil, fmt.Errorf(
			"%.0f of %d nodes are ready and %d of %.0f reports came: this is not the intended load",
			ready,
			agents,
			heard,
			wanted,
		)
	}

	note := fmt.Sprintf(
		"of one core, over %.0f s; %d agents, a report every %s each (%d in all), each with its own TLS connection and "+
			"open stream, no jobs",
		took.Seconds(),
		agents,
		time.Duration(c.every.Load()),
		heard,
	)

	return []figure{
		{"agents_1000_cpu_pct", 100 * (after - before).Seconds() / took.Seconds(), "%", note},
		{"agents_1000_rss_mib", float64(memory) / (1 << 20), "MiB", "resident memory of the server then"},
	}, nil
}
