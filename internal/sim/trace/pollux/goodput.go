// Package pollux turns the measurements that were published with Pollux and Sia
// into the speeds of jobs.
//
// Goodput is how fast training really comes on: steps a second, times what a step
// with this batch is worth in steps of the base batch. A batch of m times the base
// brings gain = (v + s) / (v/m + s) base steps, where s and v are the square and
// the variance of the gradient that were measured in that epoch. Both come from
// the published measurements, as in the simulator of Pollux; what is derived here:
//
//   - The work of a job is the progress that every training has reached at its last
//     epoch, which is that of the base batch or a little less.
//   - A job that chooses its batch chooses the best by what was measured. The agent
//     of Pollux chooses by a model fitted to what it saw so far; so does Agent here.
//   - On a number of GPUs a job is as fast as on the fewest nodes, or the fewest
//     beyond one, that were measured with it. The simulator interpolates other
//     placements in three dimensions.
//
// The reader of such workloads in trace uses it. It knows no jobs and no times of
// submission.
package pollux

import (
	"math"
	"slices"

	"trainyard/internal/job"
	"trainyard/internal/sim"
)

// Until returns the progress at which an epoch begins.
func (p *Profile) Until(epoch int) float64 {
	if epoch == 0 {
		return 0
	}

	least := math.Inf(1)
	for _, t := range p.trained {
		least = min(least, t.progress[epoch-1])
	}

	return least
}

// Work is the progress at which the job is done.
func (p *Profile) Work() float64 { return p.Until(p.Epochs) }

// base and most are the ends of the batch sizes that were trained with.
func (p *Profile) base() float64 { return p.trained[0].batch }
func (p *Profile) most() float64 { return p.trained[len(p.trained)-1].batch }

// epochAt returns the epoch in which so much progress lies.
func (p *Profile) epochAt(progress float64) int {
	epoch := 0
	for epoch+1 < p.Epochs && progress >= p.Until(epoch+1) {
		epoch++
	}

	return epoch
}

// gain returns what a step with a batch is worth in an epoch, in base steps.
func (p *Profile) gain(batch float64, epoch int) float64 {
	sqr, variance := p.gradient(batch, epoch)
	scale := batch / p.base()

	return (variance + sqr) / (variance/scale + sqr)
}

// gradient returns the square and the variance of the gradient with a batch in an epoch. Between
// batches that were trained with, they are interpolated.
func (p *Profile) gradient(batch float64, epoch int) (sqr, variance float64) {
	i := slices.IndexFunc(p.trained, func(t training) bool { return t.batch >= batch })
	if i < 0 {
		i = len(p.trained) - 1
	}

	hi := &p.trained[i]
	sqr, variance = hi.sqr[epoch], hi.variance[epoch]

	if i > 0 && batch < hi.batch {
		lo := &p.trained[i-1]
		share := (batch - lo.batch) / (hi.batch - lo.batch)
		sqr = lo.sqr[epoch] + (sqr-lo.sqr[epoch])*share
		variance = lo.variance[epoch] + (variance-lo.variance[epoch])*share
	}

	return sqr, variance
}

// Rates returns the goodput on every number of GPUs of every kind in an epoch,
// with a fixed batch, or with the best if it is 0.
func (p *Profile) Rates(epoch, batch int) []job.Rate {
	var rates []job.Rate
	for _, k := range p.kinds {
		last := [2]int{} // GPUs of the last rate on one node, and on several

		for _, sh := range k.shapes {
			several := 0
			if sh.nodes > 1 {
				several = 1
			}

			if sh.gpus == last[several] || sh.nodes < (sh.gpus+k.perNode-1)/k.perNode {
				continue // fewer nodes were measured too, or cannot be
			}

			g := p.best(k, sh, epoch)
			if batch > 0 {
				g = p.fixed(k, sh, epoch, float64(batch))
			}

			if g > 0 {
				rates = append(rates, job.Rate{GPU: k.kind, GPUs: sh.gpus, Spread: several == 1, PerSecond: g})
				last[several] = sh.gpus
			}
		}
	}

	return rates
}

// kind returns the steps on a model of GPU, nil if it was not measured.
func (p *Profile) kind(model string) *stepTimes {
	at := slices.IndexFunc(p.kinds, func(k *stepTimes) bool { return k.kind == model })
	if at < 0 {
		return nil
	}

	return p.kinds[at]
}

// time returns how long a step and its waiting take on GPUs with so many samples each. Between two
// shapes that were measured it is interpolated; where fewer or more samples were measured than
// that, the nearest number of samples is scaled.
func (k *stepTimes) time(on sim.GPUs, local float64) (step, sync float64) {
	lo, hi := k.around(on)
	from, to := k.nearest(lo, local), k.nearest(hi, local)
	if lo == hi {
		return from.step, from.sync
	}

	share := float64(on.Count-lo.gpus) / float64(hi.gpus-lo.gpus)

	return from.step + (to.step-from.step)*share, from.sync + (to.sync-from.sync)*share
}

// around returns the measured shapes between which an allocation lies: on one node or on several
// as it is, each on the fewest nodes that were measured.
func (k *stepTimes) around(on sim.GPUs) (lo, hi shape) {
	for _, several := range []bool{on.Nodes > 1, on.Nodes <= 1} {
		for _, sh := range k.shapes {
			if sh.nodes > 1 != several || sh.nodes < (sh.gpus+k.perNode-1)/k.perNode || sh.gpus == hi.gpus {
				continue
			}

			if sh.gpus >= on.Count {
				if lo.gpus == 0 || sh.gpus == on.Count {
					lo = sh
				}

				return lo, sh
			}

			lo, hi = sh, sh
		}

		if lo.gpus > 0 {
			return lo, lo
		}
	}

	return lo, hi
}

// nearest is the step of a shape with so many samples of each GPU, or with the nearest number
// that was measured, of which the computing is scaled.
func (k *stepTimes) nearest(sh shape, local float64) stepTime {
	list := k.at[sh]
	within := min(max(local, list[0].local), list[len(list)-1].local)
	t, _ := between(list, within)
	compute := (t.step - t.sync) * local / within

	return stepTime{local, compute + t.sync, t.sync}
}

// batches is how many batch sizes are tried between the least and the greatest.
const batches = 50

// tiny keeps rounding errors from making a whole number one more.
const tiny = 1e-8

// best returns the goodput with the best batch size, 0 if none is possible.
func (p *Profile) best(k *stepTimes, sh shape, epoch int) float64 {
	low := max(p.base(), k.minLocal*float64(sh.gpus))
	best := 0.0
	for i := range batches {
		if low > p.most() {
			break
		}

		batch := low * math.Pow(p.most()/low, float64(i)/(batches-1))
		best = max(best, p.fixed(k, sh, epoch, batch))
	}

	return best
}

// fixed returns the goodput with a batch size, 0 if that is not possible. A batch
// that does not fit the GPUs is done in several passes; one GPU makes at least two
// passes of a batch greater than the base, because one shows no noise.
func (p *Profile) fixed(k *stepTimes, sh shape, epoch int, batch float64) float64 {
	limits := p.limits(k)
	s := limits.Split(sh.gpus, batch)
	step, ok := k.step(sh, s.Each)
	if !ok {
		return 0
	}

	seconds := step.step + (s.Passes-1)*(step.step-step.sync)

	return p.gain(float64(sh.gpus)*s.Each*s.Passes, epoch) / (seconds * p.slow)
}

// step returns how long a step takes, between two that were measured if need be.
func (k *stepTimes) step(sh shape, local float64) (stepTime, bool) {
	list := k.at[sh]
	if local < k.minLocal || local > k.maxLocal || len(list) == 0 || local < list[0].local ||
		local > list[len(list)-1].local {
		return stepTime{}, false
	}

	return between(list, local)
}

// between returns the step with so many samples, between two that were measured if need be.
func between(list []stepTime, local float64) (stepTime, bool) {
	i, exact := slices.BinarySearchFunc(list, local, func(s stepTime, l float64) int {
		switch {
		case s.local < l:
			return -1
		case s.local > l:
			return 1
		}

		return 0
	})

	if exact {
		return list[i], true
	}

	lo, hi := list[i-1], list[i]
	share := (local - lo.local) / (hi.local - lo.local)

	return stepTime{local, lo.step + (hi.step-lo.step)*share, lo.sync + (hi.sync-lo.sync)*share}, true
}

// Exactly returns the rates of a job that runs on exactly so many GPUs, on one
// node and on several, drawn from what was measured nearby.
func Exactly(rates []job.Rate, gpus int) []job.Rate {
	s := job.NewSpeed(1, 0, 0, rates...)
	var only []job.Rate

	for _, kind := range s.Kinds() {
		c := s.On(kind, 0)
		if gpus < c.MinGPUs() || gpus > c.MaxGPUs() {
			continue
		}

		together, spread := 0, false
		for _, r := range rates {
			if r.GPU == kind && !r.Spread {
				together = max(together, r.GPUs)
			}

			spread = spread || r.GPU == kind && r.Spread && r.GPUs <= gpus
		}

		if r := c.Rate(gpus, 1); gpus <= together && r > 0 {
			only = append(only, job.Rate{GPU: kind, GPUs: gpus, PerSecond: r})
		}

		if r := c.Rate(gpus, 2); spread && r > 0 {
			only = append(only, job.Rate{GPU: kind, GPUs: gpus, PerSecond: r, Spread: true})
		}
	}

	return only
}

// PerNode returns how many GPUs a node has: the greatest number of the kinds, or
// the least.
func (p *Profile) PerNode(least bool) int {
	n := p.kinds[0].perNode
	for _, k := range p.kinds[1:] {
		if least {
			n = min(n, k.perNode)
		} else {
			n = max(n, k.perNode)
		}
	}

	return n
}
