package harvest

import (
	"fmt"
	"sync"
	"time"

	"trainyard/internal/sim"
)

// plan is which simulations are run.
type plan struct {
	runs  []*run
	loads []load
	sizes []int // jobs at once
}

func newPlan(s *scene) *plan {
	p := &plan{loads: loads(), sizes: []int{10, 20, 30}}
	for _, l := range p.loads {
		for _, n := range p.sizes {
			for _, dedicated := range []bool{false, true} {
				p.add(run{load: l, parallel: n, dedicated: dedicated, lost: lost})

				if l.objective == "throughput" { // equal shares look at none
					p.add(run{load: l, parallel: n, equal: true, dedicated: dedicated, lost: lost})
				}

				if l.name == "hpo" && n != 20 {
					p.add(run{load: l, parallel: n, dedicated: dedicated, lost: published})

					for k := 1; k < len(s.idle); k++ {
						p.add(run{load: l, parallel: n, dedicated: dedicated, lost: lost, sample: k})
					}
				}
			}
		}
	}

	return p
}

// published is what losing a node costs in the published replay, here on top of the
// start that follows.
const published = 12 * time.Second

func (p *plan) add(r run) { p.runs = append(p.runs, &r) }

// simulate runs everything, so many at once.
func (p *plan) simulate(s *scene, parallel int) {
	var wg sync.WaitGroup
	next := make(chan *run)
	for range parallel {
		wg.Go(func() {
			for r := range next {
				r.do(s)
			}
		})
	}

	for _, r := range p.runs {
		next <- r
	}

	close(next)
	wg.Wait()
}

// find returns the result of a run.
func (p *plan) find(want run) *sim.Result {
	for _, r := range p.runs {
		if r.load.name == want.load.name && r.parallel == want.parallel && r.equal == want.equal &&
			r.dedicated == want.dedicated && r.lost == want.lost && r.sample == want.sample {
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

	w.line(
		"jobs\tat once\tpolicy\tsamples\tof dedicated\tbound\tnodes " +
			"used\tstarting\tlost\tstarts\tresizes\tended\tfairness\tmean h\tp99 h",
	)

	for _, l := range p.loads {
		for _, n := range p.sizes {
			for _, equal := range []bool{false, true} {
				if r := (run{load: l, parallel: n, equal: equal, lost: lost}); p.find(r) != nil {
					p.row(w, s, r, out)
				}
			}
		}
	}

	w.line(
		"\nwith %s of work lost with each reclaimed node, on top of the start, as the published cost of shrinking:",
		published,
	)

	for _, n := range p.sizes {
		if n != 20 {
			p.row(w, s, run{load: p.loads[0], parallel: n, lost: published}, out)
		}
	}

	if len(s.idle) > 1 {
		w.line(
			"\nover %d samples of nodes that have none in common (mean ± half of the 95 %% confidence interval):",
			len(s.idle),
		)

		for _, n := range []int{10, 30} {
			var list []float64
			for k := range s.idle {
				list = append(list, p.share(run{load: p.loads[0], parallel: n, lost: lost, sample: k}))
			}

			mean, half := meanCI(list)
			out[fmt.Sprintf("share_hpo_%d_mean", n)], out[fmt.Sprintf("share_hpo_%d_ci", n)] = mean, half
			w.line("hpo, %d at once: %.4f ± %.4f", n, mean, half)
		}
	}

	return out
}

// share is what a run did of what the same does on nodes that stay.
func (p *plan) share(r run) float64 {
	own := r
	own.dedicated = true
	return p.find(r).Work / p.find(own).Work
}

// row prints a line of the table and takes down its figures.
func (p *plan) row(w *printer, s *scene, r run, out map[string]float64) {
	res := p.find(r)
	own := r
	own.dedicated = true

	name, key := "harvest", "share"
	if r.equal {
		name, key = "equal share", "equal_share"
	}

	key = fmt.Sprintf("%s_%s_%d", key, r.load.name, r.parallel)
	if r.lost == published {
		key += "_lost12"
	}

	out[key] = p.share(r)
	bound := ""

	if r.load.name == "hpo" && !r.equal && r.lost == lost {
		b := s.idle[0].best(r.parallel) / p.find(own).Work
		out[fmt.Sprintf("bound_hpo_%d", r.parallel)] = b
		bound = fmt.Sprintf("%.4f", b)
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
