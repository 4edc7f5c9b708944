package match

import (
	"cmp"
	"math"
	"slices"

	"trainyard/internal/quantile"
)

// kernel is how matches are weighed. Jobs that count steps mostly run on the same scale, and
// a match that needs another is the less likely; jobs that count seconds on all kinds of
// machines have no common scale. Which holds is learned from past jobs.
type kernel struct {
	scalePenalty  float64 // how unlikely another scale is
	maxNeighbours int     // past jobs that an answer goes by
	decay         float64 // how much more a better fit counts
}

// defaultKernel is the way where nothing has been learned.
var defaultKernel = kernel{scalePenalty: 1, maxNeighbours: 20, decay: 0.5}

// kernels are those that are tried; they go from no common scale to one that holds mostly.
var kernels = []kernel{{scalePenalty: 0.1, maxNeighbours: 12, decay: 0.5}, defaultKernel, {scalePenalty: 10, maxNeighbours: 40, decay: 0.25}}

const (
	gridSize       = 24   // scales at which each past curve is tried before the best is refined
	minProgress    = 0.02 // part of the way that a job has come at least
	scaleUnit      = 0.1  // logarithm of a scale that is still the same
	missingPenalty = 0.01 // difference that is taken where a past curve has no points
	outlierScale   = 0.2  // difference beyond which a larger one hardly counts more
	minError       = 4e-6 // squared difference below which fits are equally good
)

// alignment is a past curve laid under the running one.
type alignment struct {
	*neighbour
	sqrtGoal     float64 // root of the part of its work after which it had come to the goal; 0 if it did not
	sqrtProgress float64 // of the part of the way that the running job has come, as this one says
	squaredError float64 // mean squared difference
	cost         float64 // miss, and what its scale costs
}

// predictedEnd returns where the fit says the goal is.
func (f *alignment) predictedEnd(s *runningCurve) float64 {
	return s.done / (f.sqrtProgress * f.sqrtProgress)
}

// sqrtGoalOrEnd is the root of the part of the past job's work that is laid under the way to the goal: all of it if it fell short.
func (f *alignment) sqrtGoalOrEnd() float64 {
	if f.sqrtGoal == 0 {
		return 1
	}
	return f.sqrtGoal
}

// alignAll lays all past curves under the running one, the best first.
func (s *runningCurve) alignAll(neighbours []neighbour, w kernel) []alignment {
	alignments := make([]alignment, len(neighbours))
	squaredErrors := make([][gridSize]float64, len(neighbours))
	bests := make([]float64, len(neighbours))
	grid := s.scales()
	for i := range neighbours {
		f := &alignments[i]
		f.neighbour, f.sqrtGoal = &neighbours[i], s.goalReachedAt(&neighbours[i])
		bests[i] = s.tryScales(f, grid, &squaredErrors[i])
	}
	// What the better ones miss is what can be expected; few points always fit.
	slices.Sort(bests)
	n := float64(len(s.sqrtWork))
	expected := max(bests[len(bests)/5]*n/max(n-1.5, 0.5), minError)
	penalty := w.scalePenalty * expected / n
	for i := range alignments {
		s.refine(&alignments[i], grid, &squaredErrors[i], penalty)
	}
	// A fit of one that is less alike has to be that much better.
	slices.SortStableFunc(alignments, func(a, b alignment) int { return cmp.Compare(a.cost/a.similarity, b.cost/b.similarity) })
	return alignments
}

// scaleGrid are those that are tried: for each the root of the part of the way that the job has come, and the
// logarithm of the end that follows.
type scaleGrid struct {
	sqrtProgress, logEnd [gridSize]float64
	ratio                float64 // from one root to the next
}

func (s *runningCurve) scales() *scaleGrid {
	g := &scaleGrid{ratio: math.Pow(minProgress, -0.5/(gridSize-1))}
	root, now := math.Sqrt(minProgress), math.Log(s.done)
	for k := range gridSize {
		g.sqrtProgress[k] = min(root, 1)
		g.logEnd[k] = now - 2*math.Log(g.sqrtProgress[k])
		root *= g.ratio
	}
	g.sqrtProgress[gridSize-1], g.logEnd[gridSize-1] = 1, now
	return g
}

// tryScales compares a past curve at all scales of the grid and returns how much the best misses.
func (s *runningCurve) tryScales(f *alignment, grid *scaleGrid, squaredErrors *[gridSize]float64) float64 {
	c := s.pairWith(f.template)
	sqrtEnd := f.sqrtGoalOrEnd()
	best := math.Inf(1)
	for k := range gridSize {
		squaredErrors[k] = s.meanSquaredError(&c, grid.sqrtProgress[k]*sqrtEnd)
		best = min(best, squaredErrors[k])
	}
	return best
}

// refine finds the best scale of a past curve between those of the grid.
func (s *runningCurve) refine(f *alignment, grid *scaleGrid, squaredErrors *[gridSize]float64, penalty float64) {
	c := s.pairWith(f.template)
	sqrtEnd := f.sqrtGoalOrEnd()
	past := math.Log(sqrtEnd * sqrtEnd * f.end)
	f.cost = math.Inf(1)
	take := func(root, end, squaredError float64) {
		z := (end - past) / scaleUnit
		cost := squaredError + penalty*1.5*math.Log1p(z*z/2) // as Student's distribution has it: far is hardly worse than away
		if cost < f.cost {
			f.sqrtProgress, f.squaredError, f.cost = root, squaredError, cost
		}
	}
	for k := range gridSize {
		if squaredErrors[k] < f.cost { // the scale only adds to it
			take(grid.sqrtProgress[k], grid.logEnd[k], squaredErrors[k])
		}
	}
	ratio, now := grid.ratio, grid.logEnd[gridSize-1]
	for range 4 {
		ratio = math.Sqrt(ratio)
		for _, root := range [2]float64{f.sqrtProgress / ratio, min(f.sqrtProgress*ratio, 1)} {
			if squaredError := s.meanSquaredError(&c, root*sqrtEnd); squaredError < f.cost {
				take(root, now-2*math.Log(root), squaredError)
			}
		}
	}
}

// curvePair is what is compared of two curves: logarithms where all values have one.
type curvePair struct {
	running, template []float64
	firstCell         float64 // stretch in which the past curve has its first point
	unit              float64 // of a squared difference
	missingPenalty    float64 // what a point costs under which the past curve has none
	robustness        float64 // of squared differences that are larger than others by far
}

func (s *runningCurve) pairWith(h *template) curvePair {
	if s.logs != nil && h.logs != nil {
		return curvePair{s.logs, h.logs, h.firstCell, 1, missingPenalty * missingPenalty, 1 / (outlierScale * outlierScale)}
	}
	unit := s.valueRange * s.valueRange
	return curvePair{s.values, h.values, h.firstCell, unit, missingPenalty * missingPenalty * unit, 1 / (outlierScale * outlierScale * unit)}
}

// goalReachedAt returns the root of the part of a past job's work after which it had come to the
// goal; 0 if it never did.
func (s *runningCurve) goalReachedAt(h *neighbour) float64 {
	if !s.goal.Set || h.goal.Set && math.Abs(h.goal.Value-s.goal.Value) <= 0.001*h.valueRange {
		return 1
	}
	for k := 1; k <= cells; k++ {
		if !s.goal.Met(h.values[k]) {
			continue
		}
		from, to := h.values[k-1], h.values[k]
		part := 1.0
		if from != to {
			part = min(max((s.goal.Value-from)/(to-from), 0), 1)
		}
		return (float64(k-1) + part) / cells
	}
	if math.Abs(h.values[cells]-s.goal.Value) <= 0.01*h.valueRange {
		return 1 // it ended a hair short of it
	}
	return 0
}

// meanSquaredError is the weighted mean squared difference between the curve and a past one of which root²
// is done. Before its first point nothing is known of the past one but that it was no
// better than there.
func (s *runningCurve) meanSquaredError(c *curvePair, root float64) float64 {
	sum := 0.0
	root *= cells
	for i, r := range s.sqrtWork {
		at := r * root
		k := min(int(at), cells-1)
		d := c.running[i] - c.template[k] - (at-float64(k))*(c.template[k+1]-c.template[k])
		if at < c.firstCell {
			sum += s.weights[i] * c.missingPenalty
		}
		d *= d
		sum += s.weights[i] * d / (1 + d*c.robustness) // a few points that are far off do not decide
	}
	return sum / c.unit
}

// predict weighs what the past jobs say.
func (s *runningCurve) predict(alignments []alignment, w kernel) Match {
	scale := max(alignments[0].cost, minError)
	var m Match
	var ends []quantile.WeightedValue
	sum, never, squaredError := 0.0, 0.0, 0.0
	floor := s.done + s.step/2 // the goal is met at a later point than the last
	for i := range alignments {
		f := &alignments[i]
		weight := f.similarity * math.Exp(-min(w.decay*(f.cost-alignments[0].cost)/scale, 500)) // never quite nothing
		if f.sqrtGoal == 0 {
			if f.fellShort(s) {
				never += weight
			}
			continue
		}
		if len(ends) == w.maxNeighbours {
			break
		}
		end := max(f.predictedEnd(s), floor)
		m.Neighbours = append(m.Neighbours, Neighbour{
			Job: f.past.Job, Name: f.past.Features.Name, End: end,
			Scale: f.predictedEnd(s) / (f.sqrtGoal * f.sqrtGoal * f.end), Error: math.Sqrt(f.squaredError), Weight: weight,
		})
		ends = append(ends, quantile.WeightedValue{Value: end, Weight: weight})
		sum += weight
		squaredError += weight * f.squaredError
	}
	m.Never = never / (never + sum)
	m.Fit = math.Sqrt(squaredError / sum)
	slices.SortFunc(ends, func(a, b quantile.WeightedValue) int { return cmp.Compare(a.Value, b.Value) })
	m.End = quantile.Weighted(ends, 0.5)
	m.Low = quantile.Weighted(ends, 0.1)
	m.High = quantile.Weighted(ends, 0.9)
	for i := range m.Neighbours {
		m.Neighbours[i].Weight /= sum
	}
	slices.SortStableFunc(m.Neighbours, func(a, b Neighbour) int { return cmp.Compare(b.Weight, a.Weight) })
	m.Neighbours = m.Neighbours[:min(len(m.Neighbours), maxShown)]
	return m
}

// fellShort reports whether a past job that did not come to the goal wanted to: it went on as
// long as it was asked to, or had a goal that was no easier.
func (f *alignment) fellShort(s *runningCurve) bool {
	return !f.goal.Set || s.goal.Met(f.goal.Value)
}
