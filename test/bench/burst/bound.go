package burst

import (
	"math"
	"slices"
)

// prices is a proof that no policy can do better.
//
// Let a schedule send some jobs to the cloud, at one for each GPU-hour, and run the
// others, each in one piece from some time s >= r on, where r is its arrival, on C
// local GPUs. For any worth v >= 0 of an hour of waiting and any prices l(t) >= 0 of a
// local GPU-hour,
//
//	cloud + v * sum of waits
//	  >= cloud + v * sum of waits + integral of l(t) * (local GPUs in use at t - C)
//	  =  sum over cloud jobs of (g p + v w)
//	     + sum over local jobs of (v (s-r) + g * integral of l over [s, s+p])
//	     - C * integral of l
//	  >= sum over all jobs of min(g p, min over s >= r of v (s-r) + g * integral of l over [s, s+p])
//	     - C * integral of l.
//
// because the bracket in the second line is never above 0. The last line, L(v, l),
// needs no schedule: it holds for every policy, also for one that knows the future and
// for which all GPUs are in one node. So with n jobs and a mean wait of W, cloud is at
// least L(v, l) - v n W, for every v and every l. Prices are constant within an hour,
// so that the inner minimum lies at s = r or where s or s + p is on the hour, and is
// found exactly: a bound it is with whatever prices the climb ends.
//
// Prices are at most 1, so it also holds if a job may move between cloud and yard: with A the time in
// which it is in the cloud it costs g |A| + g * integral of l over the rest of its run, and that is no
// less than g * integral of l over all of it. A job that stands still for d while it moves ends d later,
// as if it had waited for d, and what it uses is worth less than that of an unbroken run by g d at most:
// the bound is lower by the GPU-hours for which moved jobs stand still.
type prices struct {
	tasks []task
	gpus  float64
	of    []float64 // by hour
	upTo  []float64 // their sum before the hour
	slope []float64 // of L by each price
}

func newPrices(w *window) *prices {
	end := 0.0
	for i := range w.tasks {
		end = math.Max(end, w.tasks[i].at+w.tasks[i].run)
	}

	n := int(end) + 400

	return &prices{
		tasks: w.tasks,
		gpus:  float64(w.nodes * perNode),
		of:    make([]float64, n),
		upTo:  make([]float64, n+1),
		slope: make([]float64, n),
	}
}

// sum is the integral of the prices from the beginning.
func (p *prices) sum(t float64) float64 {
	i := int(t)
	if i >= len(p.of) {
		return p.upTo[len(p.of)]
	}

	return p.upTo[i] + (t-float64(i))*p.of[i]
}

// least is L(v, l); it leaves its slope.
func (p *prices) least(v float64) float64 {
	for i, l := range p.of {
		p.upTo[i+1] = p.upTo[i] + l
		p.slope[i] = -p.gpus
	}

	total := -p.gpus * p.upTo[len(p.of)]
	for i := range p.tasks {
		t := &p.tasks[i]
		cost, start := p.cheapest(t, v)
		total += cost

		if start >= 0 {
			p.use(start, start+t.run, float64(t.gpus))
		}
	}

	return total
}

// cheapest returns the least that a task costs, and when it starts; -1 for the cloud.
func (p *prices) cheapest(t *task, v float64) (cost, start float64) {
	g := float64(t.gpus)
	cost, start = t.cost(), -1
	limit := math.Min(cost/v, float64(len(p.of)))

	try := func(s float64) {
		if c := v*(s-t.at) + g*(p.sum(s+t.run)-p.sum(s)); c < cost {
			cost, start = c, s
		}
	}

	try(t.at)

	for _, shift := range [...]float64{0, t.run} { // its start on the hour, then its end
		for k := math.Floor(t.at+shift) + 1; k-shift <= t.at+limit; k++ {
			if v*(k-shift-t.at) > cost {
				break
			}

			try(k - shift)
		}
	}

	return cost, start
}

func (p *prices) use(from, to, gpus float64) {
	for i := int(from); i < len(p.slope) && float64(i) < to; i++ {
		p.slope[i] += gpus * (math.Min(to, float64(i+1)) - math.Max(from, float64(i)))
	}
}

// climb looks for the prices at which the bound is highest, from where they are, and
// returns how high it came. Steps get shorter, and follow the mean of the last slopes.
func (p *prices) climb(v float64, rounds int) float64 {
	best := math.Inf(-1)
	mean, square := make([]float64, len(p.of)), make([]float64, len(p.of))

	keep := slices.Clone(p.of)
	for k := range rounds {
		if l := p.least(v); l > best {
			best = l
			copy(keep, p.of)
		}

		done := float64(k+1) / float64(rounds)
		step := 0.05 / (1 + 100*done*done)
		for i, g := range p.slope {
			g /= p.gpus
			mean[i] = 0.9*mean[i] + 0.1*g
			square[i] = 0.99*square[i] + 0.01*g*g
			p.of[i] = math.Min(1, math.Max(0, p.of[i]+step*mean[i]/(math.Sqrt(square[i])+0.05)))
		}
	}

	copy(p.of, keep)

	return best
}

// bound is a set of lower bounds, by what an hour of waiting is worth.
type bound struct {
	n    float64
	runs float64 // mean run time
	of   map[float64]float64
}

// bounds climbs for each worth; the prices of one are where the next begins.
func bounds(w *window, worths []float64, rounds int) *bound {
	b := &bound{n: float64(len(w.tasks)), of: map[float64]float64{}}
	for i := range w.tasks {
		b.runs += w.tasks[i].run / b.n
	}

	p := newPrices(w)
	for _, v := range worths {
		b.of[v] = p.climb(v, rounds)
	}

	return b
}

// at returns how much cloud every policy needs at a mean completion.
func (b *bound) at(mean float64) float64 {
	most := 0.0
	for v, l := range b.of {
		most = math.Max(most, l-v*b.n*math.Max(mean-b.runs, 0))
	}

	return most
}

// LeastCloud returns how much cloud every policy needs for some jobs on so many nodes at a mean completion, also one
// that moves jobs, as far as they do not stand still. More rounds come closer to it.
func LeastCloud(list []Arrival, nodes int, mean float64, rounds int) float64 {
	w := &window{nodes: nodes}
	for i := range list {
		a := &list[i]
		w.tasks = append(w.tasks, newTask(i, a.At, a.Duration, a.GPUs, a.Owner))
	}

	return bounds(w, boundWorths(), rounds).at(mean)
}

// boundWorths are the values of waiting for which the bound is computed.
func boundWorths() []float64 { return []float64{12, 8, 6, 5, 4, 3, 2, 1} }
