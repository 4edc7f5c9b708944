package match

import (
	"math"
	"slices"

	"trainyard/internal/forecast/history"
)

const (
	minJobs   = 8  // past jobs of a kind needed for tuning
	maxProbes = 16 // past jobs that are predicted for tuning
)

// kindOf returns the kind of a job; jobs of one kind share a kernel.
func kindOf(f *history.Features) string {
	return history.Kind(f) + " " + history.Normalize(f.Metric)
}

// tuneKernels selects a kernel for each kind of job by leave-one-group-out validation: past jobs are predicted as if
// they
// were running, without those of their group.
func (p *Pool) tuneKernels() map[string]kernel {
	kinds := map[string][]*template{}
	for i := range p.all {
		kind := kindOf(&p.all[i].past.Features)
		kinds[kind] = append(kinds[kind], &p.all[i])
	}

	best := make(map[string]kernel, len(kinds))
	for kind, list := range kinds {
		best[kind] = defaultKernel
		if len(list) >= minJobs {
			best[kind] = p.bestKernel(list)
		}
	}

	return best
}

// bestKernel returns the kernel with the least validation error on past jobs of a kind.
func (p *Pool) bestKernel(list []*template) kernel {
	best, least := defaultKernel, math.Inf(1)

	for _, w := range kernels {
		var errs []float64
		for k := range min(maxProbes, len(list)) {
			h := list[k*len(list)/min(maxProbes, len(list))]
			for _, part := range [3]float64{0.25, 0.5, 0.75} {
				if e, ok := p.probe(h, part, w); ok {
					errs = append(errs, e)
				}
			}
		}

		// The score is the median plus half of the 80 % quantile, because people notice both typical
		// and large errors.
		if len(errs) < minJobs {
			continue
		}

		slices.Sort(errs)
		if e := errs[len(errs)/2] + 0.5*errs[len(errs)*4/5]; e < least {
			best, least = w, e
		}
	}

	return best
}

// probe predicts a past job at a fraction of its work, and returns the absolute log error.
func (p *Pool) probe(h *template, part float64, w kernel) (float64, bool) {
	c := h.past.Curve
	n := 0
	for n < len(c.X) && n < len(c.Y) && c.X[n] <= part*h.end {
		n++
	}

	if n < 3 {
		return 0, false
	}

	c.X, c.Y = c.X[:n], c.Y[:n]
	m, err := p.predict(&Query{Curve: &c, Features: h.past.Features, Job: h.past.Job, Group: h.past.Group}, w)
	if err != nil || m.Fails() {
		return 0, false
	}

	return math.Abs(math.Log(m.End / h.end)), true
}
