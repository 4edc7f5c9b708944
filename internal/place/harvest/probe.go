package harvest

import (
	"math"
	"slices"
	"time"

	"trainyard/internal/job"
	"trainyard/internal/scaling"
)

// curve is the speed of a job on a kind, with guesses where nothing was measured.
type curve struct {
	known *job.Curve
	base  float64 // rate on one GPU, for comparison
	each  float64 // guessed rate per GPU where nothing is known
	most  int     // number of GPUs beyond which it is not tried

	learned *scaling.Model // what was observed of a job without declared rates; nil if nothing was
	model   string
	tflops  float64
}

// scalingExponent is the assumed exponent with which the speed of an unmeasured job grows with the
// number of GPUs. It is a little less than 1, so that such a job does not take nodes from one that
// is known to scale fully.
const scalingExponent = 0.9

// curveOf returns the curve of a job on a kind. The number of GPUs is bounded by what was measured.
// A job of unknown speed starts at its minimum and doubles what it has tried; so does a job that is
// probed beyond its measurements. The progress that it then reports becomes part of its measured
// curve.
func (r *round) curveOf(b *bidder, k *kind) curve {
	o := b.item.Outlook
	g := &k.sample.Node.Inventory.GPUs[0]
	c := curve{known: o.Speed.On(g.Model, g.Memory), base: baseOf(o.Speed)}
	if c.base == 0 {
		c.base = r.typicalRate
	}

	if m := o.Learned; m != nil && o.DeclaredSpeed() == nil {
		c.learned, c.model = m, g.Model
		c.tflops, _ = g.TFLOPS()
		c.base = m.Rate(c.model, c.tflops, 1, 1)
	}

	switch {
	case c.learned != nil:
		c.known, c.most, b.guessedFrom = nil, min(r.maxTrial(b), c.learned.MaxGPUs()), 1
	case c.known.MaxRate() <= 0:
		c.known, c.each, c.most, b.guessedFrom = nil, c.base, r.maxTrial(b), 1
	case r.policy.Probe && r.observed(b):
		c.most = 2 * c.known.MaxGPUs()
		b.guessedFrom = c.known.MaxGPUs() + 1
	default:
		c.most = c.known.MaxGPUs()
	}

	return c
}

// observe is how long a job must run at a size before another size is tried.
const observe = 5 * time.Minute

// observed reports whether a job has not run yet, or has run for at least observe at its size.
func (r *round) observed(b *bidder) bool {
	return b.running == nil || !b.running.Began.IsZero() && r.view.Now.Sub(b.running.Began) >= observe
}

// maxTrial returns how many GPUs a job of unknown speed may try: its minimum at first, and then
// twice the number at which it was observed for long enough.
func (r *round) maxTrial(b *bidder) int {
	n := &b.item.Shape.Need
	least, had := n.Nodes*max(n.GPUs, 1), b.item.Outlook.Ran
	switch {
	case b.running == nil:
	case r.observed(b):
		had = max(had, b.running.GPUs)
	default:
		return max(least, had, b.running.GPUs)
	}

	return max(least, 2*had)
}

// typicalBase returns the median of the known rates on one GPU, 1 if none is known. It is the
// assumed rate of a job of unknown speed.
func (r *round) typicalBase() float64 {
	var list []float64
	for j := range r.jobs {
		if v := baseOf(r.jobs[j].item.Outlook.Speed); v > 0 {
			list = append(list, v)
		}
	}

	if len(list) == 0 {
		return 1
	}

	slices.Sort(list)

	return list[len(list)/2]
}

// baseOf returns the rate on one GPU of the first kind that was measured, 0 if none was.
func baseOf(s *job.Speed) float64 {
	for _, name := range s.Kinds() {
		c := s.On(name, 0)
		if least := c.MinGPUs(); least > 0 && c.Rate(least, 1) > 0 {
			return c.Rate(least, 1) / float64(least)
		}
	}

	return 0
}

// rate returns the units per second on a number of GPUs, 0 for sizes that must not be tried.
func (c *curve) rate(gpus, nodes int) float64 {
	switch {
	case gpus > c.most:
		return 0
	case c.learned != nil:
		return c.learned.Rate(c.model, c.tflops, gpus, nodes)
	case c.known == nil:
		return c.each * math.Pow(float64(gpus), scalingExponent)
	case gpus < c.known.MinGPUs():
		return 0
	}

	rate := c.known.Rate(gpus, nodes)
	if most := c.known.MaxGPUs(); gpus > most {
		rate *= math.Pow(float64(gpus)/float64(most), scalingExponent)
	}

	return rate
}
