package harvest

import (
	"fmt"
	"slices"

	"trainyard/internal/sim"
	"trainyard/internal/sim/trace"
	"trainyard/test/bench/together"
)

// plan is which simulations are run.
type plan struct {
	runs  []*run
	loads []load
	sizes []int // jobs at once
	fixed map[division]assignment
}

// division is a question about fixed assignments, assignment the answer.
type division struct {
	load     string
	parallel int
	sample   int
}

type assignment struct {
	parts   []int
	samples float64
}

func newPlan(s *scene) *plan {
	p := &plan{loads: loads(), sizes: []int{10, 20, 30}, fixed: map[division]assignment{}}
	for _, l := range p.loads {
		for _, n := range p.sizes {
			for _, c := range []costs{product, travel} {
				p.add(run{load: l, parallel: n, costs: c})

				if l.objective == "throughput" { // equal shares look at none
					p.add(run{load: l, parallel: n, equal: true, costs: c})
				}

				for k := 1; k < len(s.idle) && l.name == "hpo" && n != 20; k++ {
					p.add(run{load: l, parallel: n, costs: c, sample: k})
				}
			}

			if l.name == "hpo" {
				p.add(run{load: l, parallel: n, costs: shared})
				p.add(run{load: l, parallel: n, equal: true, costs: shared})
				p.add(run{load: l, parallel: n, costs: shrink})
			}
		}
	}

	return p
}

func (p *plan) add(r run) { p.runs = append(p.runs, &r) }

// divide finds the best fixed assignment for every run, once for all that differ in policy, objective or costs alone.
func (p *plan) divide(s *scene) error {
	for _, r := range p.runs {
		key := r.division()
		if _, known := p.fixed[key]; known {
			continue
		}

		jobs, err := trace.Collect(r.load.jobs(trace.FreeTrainOptions{Jobs: s.jobs, Seed: 1}))
		if err != nil {
			return fmt.Errorf("make the jobs of %s: %w", r.load.name, err)
		}

		in := s.idle[r.sample]
		parts, samples := newFixed(jobs, in.length).best(in.equivalent(), r.parallel)
		p.fixed[key] = assignment{parts, samples}
	}

	return nil
}

// division says which fixed assignment a run is held against. The two objectives on the mix are about the same jobs.
func (r *run) division() division {
	name := r.load.name
	if name == "mix_speedup" {
		name = "mix"
	}

	return division{name, r.parallel, r.sample}
}

// simulate runs everything, so many at once.
func (p *plan) simulate(s *scene, parallel int) error {
	return together.Each(len(p.runs), parallel, func(i int) error { return p.runs[i].do(s) })
}

// find returns the result of a run.
func (p *plan) find(want run) *sim.Result {
	for _, r := range p.runs {
		if r.load.name == want.load.name && r.parallel == want.parallel && r.equal == want.equal &&
			r.costs == want.costs && r.sample == want.sample {
			return r.result
		}
	}

	return nil
}

// report prints the tables and returns the figures.
func (p *plan) report(w *printer, s *scene) map[string]float64 {
	out := map[string]float64{}
	in := s.idle[0]
	w.line("idle nodes on average %d; the pool changes %d times", in.equivalent(), in.events())

	for _, l := range p.loads[:2] {
		for _, n := range p.sizes {
			a := p.fixed[division{l.name, n, 0}]
			out[fmt.Sprintf("fixed_samples_%s_%d", l.name, n)] = a.samples
			w.line("best fixed assignment of %s, %d at once: %.4g samples on parts of %d to %d nodes", l.name, n, a.samples,
				slices.Min(a.parts), slices.Max(a.parts))
		}
	}

	for _, c := range []costs{product, shared, travel, shrink} {
		w.line("\nlosses %s:", c.words)

		w.line(
			"jobs\tat once\tpolicy\tsamples\tof fixed\tbound\tnodes " +
				"used\tstarting\tlost\tstarts\tresizes\tended\tfairness\tmean h\tp99 h",
		)

		for _, l := range p.loads {
			for _, n := range p.sizes {
				for _, equal := range []bool{false, true} {
					if r := (run{load: l, parallel: n, equal: equal, costs: c}); p.find(r) != nil {
						p.row(w, s, r, out)
					}
				}
			}
		}
	}

	if len(s.idle) > 1 {
		p.intervals(w, s, out)
	}

	return out
}

// intervals says how much the shares depend on the sample of nodes.
func (p *plan) intervals(w *printer, s *scene, out map[string]float64) {
	w.line(
		"\nover %d samples of nodes that have none in common (mean ± half of the 95 %% confidence interval):",
		len(s.idle),
	)

	for _, c := range []costs{product, travel} {
		for _, n := range []int{10, 30} {
			var list []float64
			for k := range s.idle {
				list = append(list, p.share(run{load: p.loads[0], parallel: n, costs: c, sample: k}))
			}

			mean, half := meanCI(list)
			key := fmt.Sprintf("share_hpo_%d%s", n, c.suffix)
			out[key+"_mean"], out[key+"_ci"] = mean, half
			w.line("hpo, %d at once, losses %s: %.4f ± %.4f", n, c.words, mean, half)
		}
	}
}

// share is what a run did of what the best fixed assignment of the same jobs does on nodes that stay.
func (p *plan) share(r run) float64 { return p.find(r).Work / p.fixed[r.division()].samples }

// row prints a line of the table and takes down its figures.
func (p *plan) row(w *printer, s *scene, r run, out map[string]float64) {
	res := p.find(r)

	name, key := "harvest", "share"
	if r.equal {
		name, key = "equal share", "equal_share"
	}

	out[fmt.Sprintf("%s_%s_%d%s", key, r.load.name, r.parallel, r.costs.suffix)] = p.share(r)
	bound := ""

	if r.load.name == "hpo" && !r.equal { // the same for all costs
		key := fmt.Sprintf("bound_hpo_%d", r.parallel)
		if _, known := out[key]; !known {
			out[key] = s.idle[0].best(r.parallel) / p.fixed[r.division()].samples
		}

		bound = fmt.Sprintf("%.4f", out[key])
	}

	w.line(
		"%s\t%d\t%s\t%.4g\t%.4f\t%s\t%.1f %%\t%.2f %%\t%.2f %%\t%d\t%d\t%d\t%.3f\t%.2f\t%.2f",
		r.load.name,
		r.parallel,
		name,
		res.Work,
		p.share(r),
		bound,
		100*res.Utilisation,
		100*res.StartTime/res.GPUSeconds,
		100*res.LostWork/(res.Work+res.LostWork),
		res.Runs,
		res.Rescales,
		res.Succeeded,
		res.Fairness,
		res.Completion.Mean/3600,
		res.Completion.P99/3600,
	)
}
