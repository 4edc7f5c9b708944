// Package quantile computes medians and quantiles: of forecasts' residuals, of waiting times, of the
// samples of a benchmark. It is the only place in the project that does, so that two figures called "median"
// are computed alike. It knows nothing of jobs.
//
// There are three definitions because their users need different things. Linear interpolates (type 7 of Hyndman
// and Fan, "Sample Quantiles in Statistical Packages", the default of NumPy and R), for estimates. NearestRank
// always returns a value that was measured, for reports on latencies. Weighted interpolates between values of
// unequal weight. gonum's stat.Quantile has neither the first nor the third.
package quantile

import (
	"cmp"
	"math"
	"slices"
)

// Median returns the median of values, NaN if there are none. The values stay in their order.
func Median(values []float64) float64 {
	return Linear(slices.Sorted(slices.Values(values)), 0.5)
}

// Linear returns the p-quantile of sorted values by linear interpolation between the two around rank p(n-1);
// NaN if there are none. Infinite values are allowed.
func Linear(sorted []float64, p float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}

	rank := p * float64(len(sorted)-1)
	below := min(int(rank), len(sorted)-1)
	above := min(below+1, len(sorted)-1)
	fraction := rank - float64(below)

	low, high := sorted[below], sorted[above]

	// Not low + fraction·(high-low): the difference of two large values may overflow.
	if fraction == 0 || low == high {
		return low
	}

	return (1-fraction)*low + fraction*high
}

// NearestRank returns the smallest of sorted values that at least the fraction p of them do not exceed, and
// the zero value if there are none.
func NearestRank[T cmp.Ordered](sorted []T, p float64) T {
	if len(sorted) == 0 {
		var zero T
		return zero
	}

	rank := int(math.Ceil(p * float64(len(sorted))))

	return sorted[min(max(rank, 1), len(sorted))-1]
}

// WeightedValue is a value with a positive weight.
type WeightedValue struct{ Value, Weight float64 }

// Weighted returns the p-quantile of values sorted by value, by linear interpolation between the midpoints of
// their weights on the cumulative distribution. Before the first midpoint and after the last it is the first or
// last value. There must be at least one value.
func Weighted(sorted []WeightedValue, p float64) float64 {
	total := 0.0
	for _, v := range sorted {
		total += v.Weight
	}

	previous, cumulative := sorted[0], 0.0

	previousMidpoint := math.Inf(-1)
	for _, v := range sorted {
		midpoint := (cumulative + v.Weight/2) / total
		if midpoint >= p {
			if math.IsInf(previousMidpoint, -1) || midpoint == previousMidpoint {
				return v.Value
			}

			// Rounding must not lead beyond the neighbours: a higher quantile is never lower.
			share := min((p-previousMidpoint)/(midpoint-previousMidpoint), 1)

			return min(previous.Value+(v.Value-previous.Value)*share, v.Value)
		}

		previous, previousMidpoint = v, midpoint
		cumulative += v.Weight
	}

	return previous.Value
}
