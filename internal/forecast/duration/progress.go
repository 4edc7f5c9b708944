package duration

import (
	"math"

	"trainyard/internal/forecast/curve"
	"trainyard/internal/forecast/history"
	"trainyard/internal/quantile"
)

// Progress is how far a running job has come.
type Progress struct {
	Elapsed float64 // seconds that it has run
	Done    float64 // as FractionDone has it; 0 if unknown
}

// known reports whether the progress is known.
func (p Progress) known() bool {
	return finite(p.Elapsed) && p.Elapsed > 0 && p.Done > 0 && p.Done <= 1
}

// FractionDone returns the progress of a curve: the fraction of the declared work, or else of the distance from its
// first value to the goal, in logarithms where all are positive. It is 0 if neither is known. The fraction is not
// linear in time; the learners learn that.
func FractionDone(c *curve.Curve) float64 {
	n := min(len(c.X), len(c.Y))
	if n == 0 {
		return 0
	}
	if c.Total > 0 {
		return clampFraction(c.X[n-1] / c.Total)
	}
	if !c.Goal.Set || n < 2 {
		return 0
	}

	first, goal := c.Y[0], c.Goal.Value

	now := quantile.Median([]float64{c.Y[n-1], c.Y[max(n-2, 1)], c.Y[max(n-3, 1)]})
	if first > 0 && goal > 0 && now > 0 {
		first, goal, now = math.Log(first), math.Log(goal), math.Log(now)
	}

	if first == goal {
		return 0
	}

	return clampFraction((now - first) / (goal - first))
}

// clampFraction bounds a fraction to [0.01, 1].
func clampFraction(v float64) float64 {
	if math.IsNaN(v) {
		return 0
	}

	return min(max(v, 0.01), 1)
}

// sampleTimes are the fractions of a finished job's duration at which it becomes a training sample, besides its start.
var sampleTimes = []float64{0.3, 0.7}

// progressSamples returns the progress of a finished job at sampleTimes.
func progressSamples(p *history.Past) []Progress {
	n := min(len(p.Curve.X), len(p.Curve.Y), len(p.At))
	var out []Progress

	for _, moment := range sampleTimes {
		k := 0
		for k < n && p.At[k] <= moment*p.Seconds {
			k++
		}

		if k < 2 {
			continue
		}

		c := p.Curve
		c.X, c.Y = c.X[:k], c.Y[:k]
		if s := (Progress{Elapsed: p.At[k-1], Done: FractionDone(&c)}); s.known() {
			out = append(out, s)
		}
	}

	return out
}

// sample is a finished job at one moment: before its start, or in mid-run.
type sample struct {
	index    int // of the record
	record   *history.Past
	progress Progress
}

// samples returns the finished jobs before their start, followed by those in mid-run.
func samples(records []*history.Past) []sample {
	var list []sample
	for i, r := range records {
		list = append(list, sample{index: i, record: r})
	}

	for i, r := range records {
		for _, p := range progressSamples(r) {
			list = append(list, sample{index: i, record: r, progress: p})
		}
	}

	return list
}

// finite reports whether a number is neither infinite nor NaN.
func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
