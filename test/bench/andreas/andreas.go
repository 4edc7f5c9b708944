// Package andreas measures the policy andreas on the ANDREAS workload beside the
// published rule and the first-principle rules that it was published with.
//
// It is called by the bench command. The workload is drawn anew from the published
// tables, so the figures are those of this generator and not of the papers. The
// instances, their costs and their lower bound serve test/bench/datacenter too.
package andreas

import (
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	policy "trainyard/internal/place/andreas"
	paper "trainyard/internal/place/andreas/published"
	"trainyard/internal/sim/trace"
	"trainyard/test/bench/target"
	"trainyard/test/bench/together"
)

// Options are those of every benchmark.
type Options = target.Options

// grid is what is varied.
type grid struct {
	nodes  []int
	loads  []float64
	prices []float64 // of lateness, in prices of energy
	seeds  int
	skip   int         // seeds before the first
	rounds map[int]int // of the published rule, by nodes
}

func gridOf(o Options) grid {
	if o.Quick {
		return grid{
			nodes:  []int{10},
			loads:  []float64{0.3, 1.05},
			prices: []float64{10},
			seeds:  2,
			skip:   o.Skip,
			rounds: map[int]int{10: 10},
		}
	}

	return grid{
		nodes: []int{
			10,
			30,
			60,
			100,
		},
		loads:  []float64{0.3, 0.45, 0.6, 0.8, 1.05},
		prices: []float64{1, 10, 100, 1000},
		seeds:  5,
		skip:   o.Skip,
		rounds: map[int]int{10: 200, 30: 40, 60: 10, 100: 5},
	}
}

// The policies, in the order of the table.
const (
	ours = iota
	published
	fifo
	edf
	ps
	policies
)

// unit is what one core does at a time: one draw of a workload under all policies
// and prices.
type unit struct {
	nodes int
	load  float64
	seed  int
	costs [][policies]Cost // by price
	bound []float64
}

// cell is one line of the table.
type cell struct {
	nodes int
	load  float64
	price float64
	costs [policies][]Cost
	bound []float64
}

// Run measures and prints the tables, first with free restarts and then with
// restarts that cost time. It returns the figures by key.
func Run(w io.Writer, o Options) (map[string]float64, error) {
	p := &Printer{W: w}
	figures := map[string]float64{}
	g := gridOf(o)

	p.Line(
		"ANDREAS workload: 10 jobs a node and one, exponential arrivals, deadlines equally between the fastest and the " +
			"slowest run,",
	)

	p.Line(
		"lateness equally between %s. Nodes: TESLA with 4 GPUs and TURING with 2, in turn; unused nodes cost nothing.",
		"k times an hour of one TURING and of two TESLAs",
	)

	p.Line(
		"Load: work on one TESLA each over the capacity of the cluster, with a TURING counting 0.43. Seeds %d to %d; ± is "+
			"half a 95 %% interval.",
		g.skip+1,
		g.skip+g.seeds,
	)

	p.Line(
		"The published rule draws %v orders at each event by number of nodes, where 1000 were published: with 10 nodes "+
			"1000 orders change its cost by 0 to 3 %%.",
		g.rounds,
	)

	p.Line(
		"Bound: each job alone, at once, on nodes shared in the cheapest way, changing its GPUs freely; no policy can be " +
			"below it.",
	)

	p.Line("* marks a difference that is no larger than chance (paired over seeds, 95 %%).")

	for _, restart := range []struct {
		start, save time.Duration
		suffix      string
	}{{0, 0, ""}, {60 * time.Second, 30 * time.Second, "_restart_cost"}} {
		cells, err := measure(g, restart.start, restart.save, max(o.Parallel, 1))
		if err != nil {
			return nil, err
		}

		p.Line("")
		p.Line("Start %s, save %s:", restart.start, restart.save)
		table(p, cells)
		sumUp(p, cells, restart.suffix, figures)
	}

	return figures, p.Err
}

// measure runs all units, the largest first, and sorts what they cost into cells.
func measure(g grid, start, save time.Duration, parallel int) ([]cell, error) {
	var units []unit
	for _, n := range slices.Backward(g.nodes) {
		for _, load := range slices.Backward(g.loads) {
			for seed := range g.seeds {
				units = append(units, unit{nodes: n, load: load, seed: g.skip + seed + 1})
			}
		}
	}

	err := together.Each(len(units), parallel, func(i int) error { return units[i].run(g, start, save) })
	if err != nil {
		return nil, err
	}

	var cells []cell
	for _, n := range g.nodes {
		for _, load := range g.loads {
			for k, price := range g.prices {
				c := cell{nodes: n, load: load, price: price}
				for _, u := range units {
					if u.nodes != n || u.load != load {
						continue
					}

					for p := range c.costs {
						c.costs[p] = append(c.costs[p], u.costs[k][p])
					}

					c.bound = append(c.bound, u.bound[k])
				}

				cells = append(cells, c)
			}
		}
	}

	return cells, nil
}

// run simulates one draw. The first-principle rules decide the same whatever
// lateness costs, so they run once, at the highest price, and their lateness is
// taken in proportion.
func (u *unit) run(g grid, start, save time.Duration) error {
	in := func(price float64) Instance {
		jobs := trace.Andreas(u.nodes, Lambda(u.load), price, uint64(u.seed))
		jobs.Start, jobs.Save = start, save
		return Instance{Jobs: jobs, Nodes: trace.AndreasNodes(u.nodes), Tariff: trace.AndreasTariff()}
	}

	u.costs, u.bound = make([][policies]Cost, len(g.prices)), make([]float64, len(g.prices))

	top := slices.Max(g.prices)
	for _, first := range []struct {
		rule int
		by   paper.Order
	}{{fifo, paper.FIFO}, {edf, paper.EDF}, {ps, paper.Priority}} {
		c, err := in(top).Run(paper.NewFirstPrinciple(first.by))
		if err != nil {
			return u.wrap(err)
		}

		for k, price := range g.prices {
			u.costs[k][first.rule] = Cost{Energy: c.Energy, Late: c.Late * price / top, Stops: c.Stops}
		}
	}

	rg := paper.Defaults()
	rg.Rounds, rg.Seed = g.rounds[u.nodes], uint64(u.seed)

	for k, price := range g.prices {
		var err error
		u.costs[k][ours], err = in(price).Run(policy.New(policy.Defaults()))
		if err != nil {
			return u.wrap(err)
		}

		u.costs[k][published], err = in(price).Run(paper.New(rg))
		if err != nil {
			return u.wrap(err)
		}

		u.bound[k], err = in(price).Bound()
		if err != nil {
			return u.wrap(err)
		}
	}

	return nil
}

func (u *unit) wrap(err error) error {
	return fmt.Errorf("%d nodes, load %g, seed %d: %w", u.nodes, u.load, u.seed, err)
}

func table(p *Printer, cells []cell) {
	p.Line(
		"%5s %5s %5s %10s | %18s %9s %9s %6s | %9s %9s | %10s %10s %10s | %9s %9s %9s %9s",
		"nodes",
		"load",
		"k",
		"bound",
		"andreas",
		"energy",
		"lateness",
		"stops",
		"published",
		"lateness",
		"fifo",
		"edf",
		"ps",
		"vs publ.",
		"vs fifo",
		"vs edf",
		"vs ps",
	)

	for _, c := range cells {
		us := Average(c.costs[ours])
		rg := Average(c.costs[published])
		_, half := Mean(Totals(c.costs[ours]))
		bound, _ := Mean(c.bound)

		against := make([]any, 0, policies)
		for _, r := range []int{published, fifo, edf, ps} {
			percent, sure := Versus(Totals(c.costs[ours]), Totals(c.costs[r]))
			mark := " "
			if !sure {
				mark = "*"
			}

			against = append(against, fmt.Sprintf("%+.1f%%%s", percent, mark))
		}

		line := fmt.Sprintf("%5d %5.2f %5.0f %10.2f | %9.2f ± %6.2f %9.2f %9.2f %6.2f | %9.2f %9.2f | %10.2f %10.2f %10.2f |",
			c.nodes, c.load, c.price, bound, us.Total(), half, us.Energy, us.Late, us.Stops, rg.Total(), rg.Late,
			Average(c.costs[fifo]).Total(), Average(c.costs[edf]).Total(), Average(c.costs[ps]).Total())
		p.Line("%s %9s %9s %9s %9s", append([]any{line}, against...)...)
	}
}

// sumUp finds the worst cells.
func sumUp(p *Printer, cells []cell, suffix string, figures map[string]float64) {
	first := math.Inf(-1)
	rg := math.Inf(-1)
	saving := math.Inf(1)
	reach := math.Inf(1)

	surely := 0
	for _, c := range cells {
		mine := Totals(c.costs[ours])
		for _, r := range []int{published, fifo, edf, ps} {
			percent, sure := Versus(mine, Totals(c.costs[r]))
			if percent > 0 && sure {
				surely++
			}

			if r == published {
				rg = math.Max(rg, percent)
			} else {
				first = math.Max(first, percent)
			}
		}

		if c.load >= 0.6 && c.price == 10 {
			percent, _ := Versus(mine, Totals(c.costs[fifo]))
			most, _ := Versus(c.bound, Totals(c.costs[fifo]))
			p.Line(
				"%d nodes, load %g, k 10: %.1f %% saved against fifo; the bound allows at most %.1f %%",
				c.nodes,
				c.load,
				-percent,
				-most,
			)

			saving, reach = math.Min(saving, -percent), math.Min(reach, -most)
		}
	}

	figures["worst_cell_vs_baselines_pct"+suffix] = first
	figures["worst_cell_vs_published_pct"+suffix] = rg
	figures["min_saving_vs_fifo_pct_load06_k10"+suffix] = saving
	figures["bound_min_saving_vs_fifo_pct_load06_k10"+suffix] = reach
	figures["cells_surely_worse"+suffix] = float64(surely)

	p.Line(
		"Worst cell: %+.1f %% against the first-principle rules, %+.1f %% against the published rule; comparisons lost "+
			"beyond chance: %d.",
		first,
		rg,
		surely,
	)
}
