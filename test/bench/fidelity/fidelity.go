// Package fidelity measures how far the simulator is from the real thing: the same streams of jobs on a real
// yard, whose server, agents and programs are processes of this machine, and in the simulator.
//
// Both sides have the same job files, nodes, prices, policies and arrival times. What the simulator is told
// beyond that comes from a probe before the streams: how long a start takes, how fast a training is on this
// machine, and how long a machine of the cloud takes to boot. Nothing of a stream itself is used. No job writes
// checkpoints, so no policy moves one. The benchmark asserts nothing.
package fidelity

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"sync"
	"time"

	"trainyard/internal/place"
	"trainyard/internal/place/catalogue"
	"trainyard/test/bench/target"
	"trainyard/test/yardtest"
)

// policies are those that are compared. The values of time of rules are those of streams in which an hour stands
// for a day.
var policies = []string{"fifo", "rules:time=3000:balanced=120:cost=3", "andreas", "harvest"}

// limit bounds one stream under one policy; it is far longer than any takes.
const limit = 10 * time.Minute

// cell is one stream under one policy, on both sides.
type cell struct {
	stream, policy  string
	live, simulated *outcome
}

// Run measures the deviations and prints them.
func Run(w io.Writer, o target.Options) (map[string]float64, error) {
	folder, err := yardtest.NewFolder("fidelity-")
	if err != nil {
		return nil, err
	}

	defer func() { _ = os.RemoveAll(folder) }()

	if err := yardtest.Build(folder, "trainyard/cmd/trainyard"); err != nil {
		return nil, err
	}

	ctx := context.Background()
	binary := filepath.Join(folder, "trainyard")

	p, err := measureProbe(ctx, binary, folder)
	if err != nil {
		return nil, fmt.Errorf("probe: %w", err)
	}

	if _, err := fmt.Fprintf(w,
		"probe: a job takes %.2f s beyond its work, a training %.2f s more to start and then %.1f steps/s, "+
			"a machine boots in %.1f s\n\n",
		p.overhead.Seconds(), p.startup.Seconds(), p.stepsRate, p.boot.Seconds()); err != nil {
		return nil, err
	}

	names := policies
	if o.Quick {
		names = policies[:1]
	}

	var cells []cell
	for _, s := range streams(o.Quick) {
		more, err := runStream(ctx, binary, folder, &s, names, p)
		if err != nil {
			return nil, err
		}

		cells = append(cells, more...)
	}

	return report(w, cells)
}

// runStream runs a stream under all policies: those of programs that sleep side by side, those of programs
// that compute one after the other.
func runStream(ctx context.Context, binary, folder string, s *stream, names []string, p *probe) ([]cell, error) {
	cells := make([]cell, len(names))
	errs := make([]error, len(names))
	atOnce := make(chan struct{}, len(names))
	if s.trains {
		atOnce = make(chan struct{}, 1)
	}

	var all sync.WaitGroup
	for i, text := range names {
		all.Go(func() {
			atOnce <- struct{}{}
			defer func() { <-atOnce }()

			cells[i], errs[i] = runCell(ctx, binary, folder, s, text, p)
		})
	}

	all.Wait()

	return cells, errors.Join(errs...)
}

// runCell runs a stream under one policy on both sides.
func runCell(ctx context.Context, binary, folder string, s *stream, text string, p *probe) (cell, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()

	policy, err := catalogue.All(nil).Make(text)
	if err != nil {
		return cell{}, err
	}

	c := cell{stream: s.name, policy: policy().Name()}

	c.live, err = runLive(ctx, binary, folder, text, s, p)
	if err != nil {
		return c, fmt.Errorf("%s under %s: %w", s.name, c.policy, err)
	}

	c.simulated, err = simulate(func() place.Policy { return policy() }, s, p)
	if err != nil {
		return c, fmt.Errorf("%s under %s, simulated: %w", s.name, c.policy, err)
	}

	return c, nil
}

// deviation is by how much the simulator is off, in percent of what really happened.
func deviation(live, simulated, least float64) float64 {
	if live == simulated {
		return 0
	}

	return 100 * (simulated - live) / max(live, least)
}

// minLateness is the lateness, as a share of the time that all jobs took, below which its deviation is counted
// as a share of that: of a stream in which almost nothing is late the ratio says nothing.
const minLateness = 0.05

// report prints the table and returns the figures.
func report(w io.Writer, cells []cell) (map[string]float64, error) {
	figures := map[string]float64{}
	worst := func(key string, dev float64) {
		figures[key] = math.Max(figures[key], math.Abs(dev))
	}

	if _, err := fmt.Fprintf(w, "%-9s %-8s %18s %8s %18s %8s %16s %8s %16s %8s %16s %8s %7s %7s\n", "stream", "policy",
		"cost live/sim", "dev", "energy live/sim", "dev", "mean completion", "dev", "p95 completion", "dev",
		"lateness", "dev", "nodes", "stops"); err != nil {
		return nil, err
	}

	for _, c := range cells {
		l, s := c.live, c.simulated
		cost := deviation(l.cost, s.cost, 0)
		energy := deviation(l.energyCost, s.energyCost, 0)
		mean := deviation(l.completion, s.completion, 0)
		p95 := deviation(l.p95, s.p95, 0)
		late := deviation(l.lateness, s.lateness, minLateness*l.completion*float64(jobsOf(c.stream)))

		worst("worst_cost_dev_pct", cost)
		worst("worst_energy_dev_pct", energy)
		worst("worst_completion_dev_pct", mean)
		worst("worst_p95_dev_pct", p95)
		worst("worst_lateness_dev_pct", late)

		name := c.stream + "_" + c.policy
		figures[name+"_cost_dev_pct"], figures[name+"_completion_dev_pct"] = cost, mean
		figures[name+"_lateness_dev_pct"] = late

		if _, err := fmt.Fprintf(w,
			"%-9s %-8s %9.3f/%8.3f %7.1f%% %9.3f/%8.3f %7.1f%% %7.2f/%7.2fs %7.1f%% %7.2f/%7.2fs %7.1f%% "+
				"%7.1f/%7.1fs %7.1f%% %3d/%3d %3d/%3d\n",
			c.stream, c.policy, l.cost, s.cost, cost, l.energyCost, s.energyCost, energy, l.completion, s.completion, mean,
			l.p95, s.p95, p95, l.lateness, s.lateness, late, l.nodes, s.nodes, l.stops, s.stops); err != nil {
			return nil, err
		}
	}

	_, err := fmt.Fprintf(w,
		"\nworst: cost %.1f %%, energy %.1f %%, mean completion %.1f %%, p95 %.1f %%, lateness %.1f %%\n",
		figures["worst_cost_dev_pct"], figures["worst_energy_dev_pct"], figures["worst_completion_dev_pct"],
		figures["worst_p95_dev_pct"], figures["worst_lateness_dev_pct"])

	return figures, err
}

// jobsOf is how many jobs a stream has.
func jobsOf(name string) int {
	for _, s := range streams(false) {
		if s.name == name {
			return len(s.tasks)
		}
	}

	return 0
}
