package match

import (
	"cmp"
	"math"
	"slices"

	"trainyard/internal/quantile"
)

// way is how matches are weighed. Jobs that count steps mostly run on the same scale, and
// a match that needs another is the less likely; jobs that count seconds on all kinds of
// machines have no common scale. Which holds is learned from past jobs.
type way struct {
	stiff float64 // how unlikely another scale is
	used  int     // past jobs that an answer goes by
	sharp float64 // how much more a better fit counts
}

// usual is the way where nothing has been learned.
var usual = way{stiff: 1, used: 20, sharp: 0.5}

// ways are those that are tried; they go from no common scale to one that holds mostly.
var ways = []way{{stiff: 0.1, used: 12, sharp: 0.5}, usual, {stiff: 10, used: 40, sharp: 0.25}}

const (
	coarse = 24   // scales at which each past curve is tried before the best is refined
	least  = 0.02 // part of the way that a job has come at least
	near   = 0.1  // logarithm of a scale that is still the same
	unseen = 0.01 // difference that is taken where a past curve has no points
	far    = 0.2  // difference beyond which a larger one hardly counts more
	noise  = 4e-6 // squared difference below which fits are equally good
)

// fit is a past curve laid under the running one.
type fit struct {
	*cousin
	reach float64 // root of the part of its work after which it had come to the goal; 0 if it did not
	root  float64 // of the part of the way that the running job has come, as this one says
	miss  float64 // mean squared difference
	cost  float64 // miss, and what its scale costs
}

// endOf returns where the fit says the goal is.
func (f *fit) endOf(s *sight) float64 { return s.now / (f.root * f.root) }

// whole is the root of the part of the past job's work that is laid under the way to the goal: all of it if it fell short.
func (f *fit) whole() float64 {
	if f.reach == 0 {
		return 1
	}
	return f.reach
}

// layAll lays all past curves under the running one, the best first.
func (s *sight) layAll(kin []cousin, w way) []fit {
	fits := make([]fit, len(kin))
	misses := make([][coarse]float64, len(kin))
	bests := make([]float64, len(kin))
	grid := s.scales()
	for i := range kin {
		f := &fits[i]
		f.cousin, f.reach = &kin[i], s.reach(&kin[i])
		bests[i] = s.try(f, grid, &misses[i])
	}
	// What the better ones miss is what can be expected; few points always fit.
	slices.Sort(bests)
	n := float64(len(s.root))
	expected := max(bests[len(bests)/5]*n/max(n-1.5, 0.5), noise)
	stiff := w.stiff * expected / n
	for i := range fits {
		s.choose(&fits[i], grid, &misses[i], stiff)
	}
	// A fit of one that is less alike has to be that much better.
	slices.SortStableFunc(fits, func(a, b fit) int { return cmp.Compare(a.cost/a.kin, b.cost/b.kin) })
	return fits
}

// scales are those that are tried: for each the root of the part of the way that the job has come, and the
// logarithm of the end that follows.
type scales struct {
	root, end [coarse]float64
	ratio     float64 // from one root to the next
}

func (s *sight) scales() *scales {
	g := &scales{ratio: math.Pow(least, -0.5/(coarse-1))}
	root, now := math.Sqrt(least), math.Log(s.now)
	for k := range coarse {
		g.root[k] = min(root, 1)
		g.end[k] = now - 2*math.Log(g.root[k])
		root *= g.ratio
	}
	g.root[coarse-1], g.end[coarse-1] = 1, now
	return g
}

// try compares a past curve at all scales of the grid and returns how much the best misses.
func (s *sight) try(f *fit, grid *scales, misses *[coarse]float64) float64 {
	c := s.values(f.prepared)
	whole := f.whole()
	best := math.Inf(1)
	for k := range coarse {
		misses[k] = s.diff(&c, grid.root[k]*whole)
		best = min(best, misses[k])
	}
	return best
}

// choose finds the best scale of a past curve between those of the grid.
func (s *sight) choose(f *fit, grid *scales, misses *[coarse]float64, stiff float64) {
	c := s.values(f.prepared)
	whole := f.whole()
	past := math.Log(whole * whole * f.end)
	f.cost = math.Inf(1)
	take := func(root, end, miss float64) {
		z := (end - past) / near
		cost := miss + stiff*1.5*math.Log1p(z*z/2) // as Student's distribution has it: far is hardly worse than away
		if cost < f.cost {
			f.root, f.miss, f.cost = root, miss, cost
		}
	}
	for k := range coarse {
		if misses[k] < f.cost { // the scale only adds to it
			take(grid.root[k], grid.end[k], misses[k])
		}
	}
	ratio, now := grid.ratio, grid.end[coarse-1]
	for range 4 {
		ratio = math.Sqrt(ratio)
		for _, root := range [2]float64{f.root / ratio, min(f.root*ratio, 1)} {
			if miss := s.diff(&c, root*whole); miss < f.cost {
				take(root, now-2*math.Log(root), miss)
			}
		}
	}
}

// compared is what is compared of two curves: logarithms where all values have one.
type compared struct {
	mine, theirs []float64
	from         float64 // stretch in which the past curve has its first point
	unit         float64 // of a squared difference
	unknown      float64 // what a point costs under which the past curve has none
	tame         float64 // of squared differences that are larger than others by far
}

func (s *sight) values(h *prepared) compared {
	if s.log != nil && h.log != nil {
		return compared{s.log, h.log, h.from, 1, unseen * unseen, 1 / (far * far)}
	}
	unit := s.height * s.height
	return compared{s.plain, h.plain, h.from, unit, unseen * unseen * unit, 1 / (far * far * unit)}
}

// reach returns the root of the part of a past job's work after which it had come to the
// goal; 0 if it never did.
func (s *sight) reach(h *cousin) float64 {
	if !s.goal.Set || h.goal.Set && math.Abs(h.goal.Value-s.goal.Value) <= 0.001*h.height {
		return 1
	}
	for k := 1; k <= cells; k++ {
		if !s.goal.Met(h.plain[k]) {
			continue
		}
		from, to := h.plain[k-1], h.plain[k]
		part := 1.0
		if from != to {
			part = min(max((s.goal.Value-from)/(to-from), 0), 1)
		}
		return (float64(k-1) + part) / cells
	}
	if math.Abs(h.plain[cells]-s.goal.Value) <= 0.01*h.height {
		return 1 // it ended a hair short of it
	}
	return 0
}

// diff is the weighted mean squared difference between the curve and a past one of which root²
// is done. Before its first point nothing is known of the past one but that it was no
// better than there.
func (s *sight) diff(c *compared, root float64) float64 {
	sum := 0.0
	root *= cells
	for i, r := range s.root {
		at := r * root
		k := min(int(at), cells-1)
		d := c.mine[i] - c.theirs[k] - (at-float64(k))*(c.theirs[k+1]-c.theirs[k])
		if at < c.from {
			sum += s.weight[i] * c.unknown
		}
		d *= d
		sum += s.weight[i] * d / (1 + d*c.tame) // a few points that are far off do not decide
	}
	return sum / c.unit
}

// conclude weighs what the past jobs say.
func (s *sight) conclude(fits []fit, w way) Match {
	scale := max(fits[0].cost, noise)
	var m Match
	var ends []quantile.WeightedValue
	sum, never, miss := 0.0, 0.0, 0.0
	floor := s.now + s.step/2 // the goal is met at a later point than the last
	for i := range fits {
		f := &fits[i]
		weight := f.kin * math.Exp(-min(w.sharp*(f.cost-fits[0].cost)/scale, 500)) // never quite nothing
		if f.reach == 0 {
			if f.ranOut(s) {
				never += weight
			}
			continue
		}
		if len(ends) == w.used {
			break
		}
		end := max(f.endOf(s), floor)
		m.Like = append(m.Like, Like{
			Job: f.past.Job, Name: f.past.Features.Name, End: end,
			Scale: f.endOf(s) / (f.reach * f.reach * f.end), Error: math.Sqrt(f.miss), Weight: weight,
		})
		ends = append(ends, quantile.WeightedValue{Value: end, Weight: weight})
		sum += weight
		miss += weight * f.miss
	}
	m.Never = never / (never + sum)
	m.Fit = math.Sqrt(miss / sum)
	slices.SortFunc(ends, func(a, b quantile.WeightedValue) int { return cmp.Compare(a.Value, b.Value) })
	m.End = quantile.Weighted(ends, 0.5)
	m.Low = quantile.Weighted(ends, 0.1)
	m.High = quantile.Weighted(ends, 0.9)
	for i := range m.Like {
		m.Like[i].Weight /= sum
	}
	slices.SortStableFunc(m.Like, func(a, b Like) int { return cmp.Compare(b.Weight, a.Weight) })
	m.Like = m.Like[:min(len(m.Like), shown)]
	return m
}

// ranOut reports whether a past job that did not come to the goal wanted to: it went on as
// long as it was asked to, or had a goal that was no easier.
func (f *fit) ranOut(s *sight) bool {
	return !f.goal.Set || s.goal.Met(f.goal.Value)
}
