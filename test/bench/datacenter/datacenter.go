// Package datacenter measures the policy andreas on the datacenter workload, where
// more GPUs make a job little faster: the published rule gives them to jobs that are
// late, and loses to the first-principle rules that it was published with.
//
// It is called by the bench command, and takes instances and statistics from
// test/bench/andreas.
package datacenter

import (
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"trainyard/internal/place"
	policy "trainyard/internal/place/andreas"
	paper "trainyard/internal/place/andreas/published"
	"trainyard/internal/sim/trace"
	"trainyard/test/bench/andreas"
	"trainyard/test/bench/target"
	"trainyard/test/bench/together"
)

// Options are those of every benchmark.
type Options = target.Options

const nodes = 10

// known are the figures that the public program gave on instances of the same law,
// mean of two seeds (four at 100,000): what its rule costs more than fifo, edf and ps.
var known = map[int][3]float64{
	200000: {-22.7, -22.7, -22.7},
	100000: {28.9, 29.6, 28.5},
	50000:  {53.0, 106, 150},
	30000:  {49.3, 75.5, 95.7},
}

// variant is what the public program with one change cost on such instances, mean
// of the seeds, beside ps: a job that is late takes the cheapest GPUs.
var variant = map[int][2]float64{ // with chance in the order, and ps
	200000: {(9523 + 10931) / 2, (12268 + 14626) / 2},
	100000: {(13605 + 11613 + 14269 + 12190) / 4, (23779 + 22600 + 20664 + 23299) / 4},
	50000:  {(34058 + 34955) / 2, (101733 + 80039) / 2},
	30000:  {(47638 + 51073) / 2, (179391 + 154805) / 2},
}

// rule is a policy under test.
type rule struct {
	name string
	of   func(seed int) place.Policy
}

func rules(rounds int) []rule {
	return []rule{
		{"andreas", func(int) place.Policy { return policy.New(policy.Defaults()) }},
		{"published", func(seed int) place.Policy {
			o := paper.Defaults()
			o.Rounds, o.Seed = rounds, uint64(seed)
			return paper.New(o)
		}},
		{"fifo", func(int) place.Policy { return paper.NewFirstPrinciple(paper.FIFO) }},
		{"edf", func(int) place.Policy { return paper.NewFirstPrinciple(paper.EDF) }},
		{"ps", func(int) place.Policy { return paper.NewFirstPrinciple(paper.Priority) }},
	}
}

// Run measures and prints the table. It returns the figures by key.
func Run(w io.Writer, o Options) (map[string]float64, error) {
	lambdas := []int{30000, 50000, 100000, 200000}
	seeds := 8

	rounds := 100
	if o.Quick {
		lambdas, seeds, rounds = lambdas[:1], 2, 5
	}

	p := &andreas.Printer{W: w}
	p.Line(
		"Datacenter workload: %d nodes of 8 GPUs, K80 and M60 in turn; 101 jobs of AlexNet on 1 to 8 GPUs of one node; "+
			"exponential arrivals with a",
		nodes,
	)

	p.Line(
		"mean time of lambda/%d seconds; deadlines equally between the fastest and the slowest run; lateness 0.0063 to "+
			"0.0111 a second.",
		nodes,
	)

	p.Line(
		"The published rule draws %d orders at each event, where 1000 were published. Seeds 1 to %d; ± is half a 95 %% "+
			"interval;",
		rounds,
		seeds,
	)

	p.Line("* marks a difference that is no larger than chance (paired over seeds, 95 %%). Bound: as in bench-andreas.")
	figures := map[string]float64{}

	for _, restart := range []struct {
		start, save time.Duration
		suffix      string
	}{{0, 0, ""}, {60 * time.Second, 30 * time.Second, "_restart_cost"}} {
		p.Line("")
		p.Line("Start %s, save %s:", restart.start, restart.save)

		p.Line(
			"%7s %9s | %20s %9s %9s %6s | %9s %9s %9s %9s | %9s %9s %9s %9s",
			"lambda",
			"bound",
			"andreas",
			"rent",
			"lateness",
			"stops",
			"published",
			"fifo",
			"edf",
			"ps",
			"vs publ.",
			"vs fifo",
			"vs edf",
			"vs ps",
		)

		worst, rg := math.Inf(-1), math.Inf(-1)
		for _, lambda := range lambdas {
			c, err := measure(lambda, seeds, rounds, restart.start, restart.save, max(o.Parallel, 1))
			if err != nil {
				return nil, err
			}

			best, publ := c.print(p, lambda)
			worst, rg = math.Max(worst, best), math.Max(rg, publ)
		}

		figures["worst_cell_vs_best_baseline_pct"+restart.suffix] = worst
		figures["worst_cell_vs_published_pct"+restart.suffix] = rg
		p.Line("Worst cell: %+.1f %% against the best first-principle rule, %+.1f %% against the published rule.", worst, rg)
	}

	p.Line("")
	p.Line("What the public program gave on instances of the same law (free restarts, k 10, few seeds):")

	for _, lambda := range lambdas {
		k, v := known[lambda], variant[lambda]
		p.Line(
			"%7d: its rule %+.1f / %+.1f / %+.1f %% against fifo / edf / ps; with the cheapest GPUs for late jobs %+.1f %% "+
				"against ps",
			lambda,
			k[0],
			k[1],
			k[2],
			(v[0]/v[1]-1)*100,
		)
	}

	return figures, p.Err
}

// cell has what a workload cost, by rule and seed.
type cell struct {
	costs [][]andreas.Cost
	bound []float64
}

func measure(lambda, seeds, rounds int, start, save time.Duration, parallel int) (*cell, error) {
	list := rules(rounds)
	c := &cell{costs: make([][]andreas.Cost, len(list)), bound: make([]float64, seeds)}
	for r := range list {
		c.costs[r] = make([]andreas.Cost, seeds)
	}

	err := together.Each(seeds*len(list), parallel, func(i int) error {
		r, seed := i%len(list), i/len(list)
		jobs := trace.Datacenter(nodes, time.Duration(lambda)*time.Second, uint64(seed+1))
		jobs.Start, jobs.Save = start, save
		in := andreas.Instance{Jobs: jobs, Nodes: trace.DatacenterNodes(nodes), Tariff: trace.DatacenterTariff()}

		var err error
		if r == 0 {
			c.bound[seed], err = in.Bound()
			if err != nil {
				return err
			}
		}

		c.costs[r][seed], err = in.Run(list[r].of(seed + 1))
		if err != nil {
			return fmt.Errorf("lambda %d, seed %d: %w", lambda, seed+1, err)
		}

		return nil
	})

	return c, err
}

// print writes the cell's line, and returns by how many per cent ours costs more
// than the best of the first-principle rules and than the published rule.
func (c *cell) print(p *andreas.Printer, lambda int) (best, published float64) {
	ours := andreas.Totals(c.costs[0])
	us := andreas.Average(c.costs[0])
	_, half := andreas.Mean(ours)
	bound, _ := andreas.Mean(c.bound)
	line := fmt.Sprintf(
		"%7d %9.0f | %9.0f ± %8.0f %9.0f %9.0f %6.2f |",
		lambda,
		bound,
		us.Total(),
		half,
		us.Energy,
		us.Late,
		us.Stops,
	)

	var against []float64
	for _, costs := range c.costs[1:] {
		percent, _ := andreas.Versus(ours, andreas.Totals(costs))
		against = append(against, percent)
		line += fmt.Sprintf(" %9.0f", andreas.Average(costs).Total())
	}

	line += " |"
	for i, percent := range against {
		mark := " "
		if _, sure := andreas.Versus(ours, andreas.Totals(c.costs[i+1])); !sure {
			mark = "*"
		}

		line += fmt.Sprintf(" %+8.1f%%%s", percent, mark)
	}

	p.Line("%s", line)

	return slices.Max(against[1:]), against[0]
}
