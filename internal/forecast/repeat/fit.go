package repeat

import (
	"maps"
	"math"
	"slices"

	"trainyard/internal/quantile"
)

const (
	recency = 0.8 // weight of a past job relative to that of the next newer one
	// maxBeyond is how far outside of what was seen an argument may be if durations are not known to follow it.
	maxBeyond = 4.0
	// gain is the part of the error that a dependence on an argument must take away to be believed.
	gain           = 0.3
	minSlope       = -1.0 // twice the GPUs, half the time
	maxSlope       = 1.5
	minDifficulty  = 0.05
	beyondPenalty  = 0.3    // difficulty per unit of the logarithm by which an argument is outside of what was seen
	deviationOfMAD = 1.4826 // standard deviation over median absolute deviation of a normal distribution
)

// line is how logarithms of durations depend on one argument; without a name they depend on none.
type line struct {
	name  string
	slope float64
}

// fit predicts a logarithm from past jobs, the newest first. It returns false if an argument is too far outside of
// what was seen.
func fit(level Level, runs []*run, arguments map[string]float64) (estimate, bool) {
	e := estimate{level: level, runs: runs, few: len(runs) < fewRuns, difficulty: 1}

	var by line

	beyond := 0.0

	if level >= SameProgram {
		by = dependence(runs, arguments)

		for name, v := range arguments {
			d := distance(runs, name, v)
			switch {
			case name == by.name:
				beyond += d / 2
			case d > math.Log(maxBeyond):
				return estimate{}, false
			default:
				beyond += d
			}
		}
	}

	values := make([]quantile.WeightedValue, len(runs))
	weight := 1.0

	for i, r := range runs {
		values[i] = quantile.WeightedValue{Value: by.shift(r, arguments), Weight: weight}
		weight *= recency
	}

	sorted := slices.Clone(values)
	slices.SortFunc(sorted, byValue)
	e.log = quantile.Weighted(sorted, 0.5)

	var deviations []float64
	for _, v := range values {
		e.own = append(e.own, v.Value-e.log)
		deviations = append(deviations, math.Abs(v.Value-e.log))
	}

	if !e.few {
		e.difficulty = minDifficulty + deviationOfMAD*quantile.Median(deviations)
	}

	e.difficulty *= 1 + beyondPenalty*beyond

	return e, true
}

// shift returns the logarithm of what a past job would have taken with other arguments.
func (l line) shift(r *run, arguments map[string]float64) float64 {
	if l.name == "" {
		return r.log
	}

	// The overhead does not grow with the work.
	seconds := (math.Exp(r.log) - overhead) * math.Pow(arguments[l.name]/r.arguments[l.name], l.slope)

	return math.Log(seconds + overhead)
}

// distance returns by how much the logarithm of an argument is outside of what past jobs had; 0 if one had none.
func distance(runs []*run, name string, v float64) float64 {
	low, high := math.Inf(1), math.Inf(-1)
	for _, r := range runs {
		x, ok := r.arguments[name]
		if !ok {
			return 0
		}

		low, high = min(low, x), max(high, x)
	}

	return max(math.Log(low/v), math.Log(v/high), 0)
}

// dependence finds the argument that past durations follow best, if one explains them better than a constant does.
// An amount of work is believed until past durations speak against it.
func dependence(runs []*run, arguments map[string]float64) line {
	var best line

	least := leaveOneOut(runs, best)
	bar := (1 - gain) * least

	for _, name := range slices.Sorted(maps.Keys(arguments)) {
		xs, ok := logsOf(runs, name)
		if !ok {
			continue
		}

		varies := slices.Max(xs)-slices.Min(xs) > 1e-9

		switch {
		case name == amount && !varies:
			return line{name, 1} // nothing speaks against it
		case name == amount && leaveOneOut(runs, line{name, 1}) <= least:
			best, bar = line{name, 1}, min(bar, leaveOneOut(runs, line{name, 1}))
		}

		if !varies || len(runs) < fewRuns {
			continue
		}

		for _, slope := range []float64{1, leastSquares(runs, xs)} {
			if err := leaveOneOut(runs, line{name, slope}); err < bar {
				best, bar = line{name, slope}, err
			}
		}
	}

	return best
}

// logsOf returns the logarithms of an argument of past jobs, and false if one has none.
func logsOf(runs []*run, name string) ([]float64, bool) {
	xs := make([]float64, len(runs))
	for i, r := range runs {
		v, ok := r.arguments[name]
		if !ok {
			return nil, false
		}

		xs[i] = math.Log(v)
	}

	return xs, true
}

// leastSquares returns the slope of the regression line through past durations, between minSlope and maxSlope.
func leastSquares(runs []*run, xs []float64) float64 {
	meanX, meanY := 0.0, 0.0
	for i, r := range runs {
		meanX += xs[i] / float64(len(runs))
		meanY += r.log / float64(len(runs))
	}

	products, squares := 0.0, 0.0
	for i, r := range runs {
		products += (xs[i] - meanX) * (r.log - meanY)
		squares += (xs[i] - meanX) * (xs[i] - meanX)
	}

	return min(max(products/squares, minSlope), maxSlope)
}

// leaveOneOut returns the mean absolute error of predicting each past job from the others.
func leaveOneOut(runs []*run, by line) float64 {
	if len(runs) < 2 {
		return 0
	}

	sum := 0.0
	others := make([]float64, 0, len(runs)-1)

	for i, r := range runs {
		others = others[:0]
		for k, o := range runs {
			if k != i {
				others = append(others, by.shift(o, r.arguments))
			}
		}

		sum += math.Abs(r.log - quantile.Median(others))
	}

	return sum / float64(len(runs))
}
