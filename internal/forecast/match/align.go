package match

import (
	"cmp"
	"math"
	"slices"

	"trainyard/internal/quantile"
)

// kernel is how neighbours are weighted. Jobs that count steps mostly run on the same scale, so an alignment with
// another scale is less likely; jobs that count seconds on different machines have no common scale. Which of these
// applies is tuned on past jobs.
type kernel struct {
	scalePenalty  float64 // weight of the prior on the scale
	maxNeighbours int     // in a prediction
	decay         float64 // of weights with the alignment error: the inverse bandwidth
}

// defaultKernel is used for kinds with too few past jobs to tune.
var defaultKernel = kernel{scalePenalty: 1, maxNeighbours: 20, decay: 0.5}

// kernels are the candidates, from no common scale to a mostly common one.
var kernels = []kernel{
	{scalePenalty: 0.1, maxNeighbours: 12, decay: 0.5},
	defaultKernel,
	{scalePenalty: 10, maxNeighbours: 40, decay: 0.25},
}

const (
	gridSize       = 24   // scales at which each past curve is tried before the best is refined
	minProgress    = 0.02 // smallest fraction of the work that an alignment may assume done
	minGoal        = 1e-6 // earliest that a goal counts as reached: 0 says that it was not, and far less cannot be squared
	scaleUnit      = 0.1  // log scale within which two jobs count as on the same scale
	missingPenalty = 0.01 // difference assumed where a past curve has no points
	outlierScale   = 0.2  // of the robust loss: larger differences hardly count more
	minError       = 4e-6 // squared error below which alignments are equally good
)

// alignment is a past curve aligned with the running one. Fractions of work are kept as square roots, in which curves
// bend
// evenly.
type alignment struct {
	*neighbour
	sqrtGoal     float64 // fraction of its work at which it reached the goal; 0 if it did not
	sqrtProgress float64 // fraction of the way to the goal that the running job has done
	squaredError float64 // mean
	cost         float64 // squared error plus the penalty of its scale
}

// predictedEnd returns the work at which this alignment predicts that the goal is reached.
func (f *alignment) predictedEnd(s *runningCurve) float64 {
	return s.done / (f.sqrtProgress * f.sqrtProgress)
}

// sqrtGoalOrEnd returns the fraction of the past job's work, as a square root, at which it reached the goal, or 1
// if it did not.
func (f *alignment) sqrtGoalOrEnd() float64 {
	if f.sqrtGoal == 0 {
		return 1
	}

	return f.sqrtGoal
}

// alignAll aligns all neighbours, the best first.
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

	// The error of the better alignments estimates the noise; with few points everything fits.
	slices.Sort(bests)
	n := float64(len(s.sqrtWork))
	expected := max(bests[len(bests)/5]*n/max(n-1.5, 0.5), minError)
	penalty := w.scalePenalty * expected / n
	for i := range alignments {
		s.refine(&alignments[i], grid, &squaredErrors[i], penalty)
	}

	// A less similar job needs a proportionally better alignment.
	slices.SortStableFunc(
		alignments,
		func(a, b alignment) int { return cmp.Compare(a.cost/a.similarity, b.cost/b.similarity) },
	)

	return alignments
}

// scaleGrid is the scales that are tried first: for each the fraction done, and the logarithm of the resulting end.
type scaleGrid struct {
	sqrtProgress, logEnd [gridSize]float64
	ratio                float64 // of neighbouring sqrtProgress
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

// tryScales computes the error at all scales of the grid and returns the smallest.
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
		cost := squaredError + penalty*1.5*math.Log1p(z*z/2) // a Student-t prior: outliers are hardly worse than far
		if cost < f.cost {
			f.sqrtProgress = root
			f.squaredError = squaredError
			f.cost = cost
		}
	}

	for k := range gridSize {
		if squaredErrors[k] < f.cost { // the scale penalty can only add to it
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

// curvePair is two curves to compare, by logarithms if all values have one.
type curvePair struct {
	running, template []float64
	firstCell         float64 // cell in which the past curve has its first point
	unit              float64 // scale of a squared difference
	missingPenalty    float64 // squared difference assumed for points before the first of the past curve
	robustness        float64 // inverse square of outlierScale
}

func (s *runningCurve) pairWith(h *template) curvePair {
	if s.logs != nil && h.logs != nil {
		return curvePair{s.logs, h.logs, h.firstCell, 1, missingPenalty * missingPenalty, 1 / (outlierScale * outlierScale)}
	}

	unit := s.valueRange * s.valueRange

	return curvePair{
		s.values,
		h.values,
		h.firstCell,
		unit,
		missingPenalty * missingPenalty * unit,
		1 / (outlierScale * outlierScale * unit),
	}
}

// goalReachedAt returns the square root of the fraction of a past job's work at which it reached the goal; 0 if it
// never
// did.
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

		return max((float64(k-1)+part)/cells, minGoal)
	}

	if math.Abs(h.values[cells]-s.goal.Value) <= 0.01*h.valueRange {
		return 1 // within a hundredth of its range
	}

	return 0
}

// meanSquaredError returns the weighted mean squared error between the running curve and the first root² of a past
// one, with the robust loss of Geman and McClure. Before its first point the past curve is only known to have been
// no better than there.
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
		sum += s.weights[i] * d / (1 + d*c.robustness) // bounded, so that outliers do not decide
	}

	return sum / c.unit
}

// predict returns the weighted median of the ends that the alignments predict.
func (s *runningCurve) predict(alignments []alignment, w kernel) Match {
	scale := max(alignments[0].cost, minError)
	var m Match
	var ends []quantile.WeightedValue
	sum, never, squaredError := 0.0, 0.0, 0.0
	floor := s.done + s.step/2 // the goal is reached after the last point

	for i := range alignments {
		f := &alignments[i]
		weight := f.similarity * math.Exp(-min(w.decay*(f.cost-alignments[0].cost)/scale, 500)) // never zero
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

// fellShort reports whether a past job that did not reach the goal is evidence that the goal is out of reach: it
// ran to its own end, or its own goal was no easier.
func (f *alignment) fellShort(s *runningCurve) bool {
	return !f.goal.Set || s.goal.Met(f.goal.Value)
}
