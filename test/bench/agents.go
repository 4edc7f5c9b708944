package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"trainyard/internal/clock"
	"trainyard/internal/fleet"
	"trainyard/test/bench/scale"
	"trainyard/test/bench/yard"
)

// agentsSection measures what many nodes that have nothing to do cost a server.
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

		idle, err := scale.Join(ctx, y, s.clock, agents, machine)
		defer idle.Stop()

		if err != nil {
			return err
		}

		out, err = s.watch(ctx, y, idle, agents, span)

		return err
	})

	return out, err
}

// machine is a node with eight GPUs.
func machine(n int) scale.Machine {
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

	return scale.Machine{Name: fmt.Sprintf("node-%04d", n), Inventory: inv}
}

// watch measures the server's processor time over a span in which all agents report.
func (s agentsSection) watch(
	ctx context.Context, y *yard.Yard, idle *scale.Fleet, agents int, span time.Duration,
) ([]figure, error) {
	settle := 2 * idle.Interval() // until all have sent their first reports
	if !clock.Sleep(ctx, settle) {
		return nil, context.Cause(ctx)
	}

	before, err := y.CPU()
	if err != nil {
		return nil, err
	}

	began, reports := s.clock.Now(), idle.Reports()

	if !clock.Sleep(ctx, span) {
		return nil, context.Cause(ctx)
	}

	after, err := y.CPU()
	if err != nil {
		return nil, err
	}

	took, heard := s.clock.Now().Sub(began), idle.Reports()-reports

	memory, err := y.Memory()
	if err != nil {
		return nil, err
	}

	ready, err := y.Metric(ctx, `trainyard_nodes{class="local",state="ready"}`)
	if err != nil {
		return nil, err
	}

	if !s.quick { // a small run is for tests: it says nothing about speed
		wanted := float64(agents) * took.Seconds() / idle.Interval().Seconds()
		if err := intended(agents, int(ready), wanted, heard, idle.Failures()); err != nil {
			return nil, err
		}
	}

	note := fmt.Sprintf(
		"of one core, over %.0f s; %d agents, a report every %s each (%d in all), each with its own TLS connection and "+
			"open stream, no jobs",
		took.Seconds(),
		agents,
		idle.Interval(),
		heard,
	)

	return []figure{
		{"agents_1000_cpu_pct", 100 * (after - before).Seconds() / took.Seconds(), "%", note},
		{"agents_1000_rss_mib", float64(memory) / (1 << 20), "MiB", "resident memory of the server then"},
	}, nil
}

// intended returns an error if the server had less to do than agents that all report in time would give it.
func intended(agents, ready int, wanted float64, heard, failures int64) error {
	if ready == agents && float64(heard) >= 0.9*wanted && failures == 0 {
		return nil
	}

	return fmt.Errorf(
		"%d of %d nodes are ready, %d of %.0f reports came and %d failed: this is not the intended load",
		ready,
		agents,
		heard,
		wanted,
		failures,
	)
}
