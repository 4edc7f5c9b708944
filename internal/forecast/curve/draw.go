package curve

import (
	"math"
	"slices"
)

// Drawing is a smoothed and extrapolated curve with the band that contains 80 % of its points.
type Drawing struct {
	X, Mid, Low, High []float64
	Past              int // how many of them are up to the last point; the others are extrapolated
}

// Fit returns a number of points on a curve from its first point to until, evenly over work. It reaches its goal where
// nohistory predicts that. A single point of a curve without a goal is not extrapolated.
func Fit(c *Curve, until float64, points int) Drawing {
	return FitTo(c, Best(c), until, points)
}

// FitTo is Fit for a goal that is reached as an estimate says, with a band from its Low and High.
func FitTo(c *Curve, e Estimate, until float64, points int) Drawing {
	v := newView(c)
	if v == nil || points < 2 || math.IsNaN(until) || math.IsInf(until, 0) {
		return Drawing{}
	}

	pen := v.continuation(c, e)
	if pen == nil {
		until = min(until, v.done)
	}

	first := v.done * math.Exp(v.x[0])
	until = max(until, first)
	reach := 1.28 * v.noise(len(v.x))
	var d Drawing

	for k := range points {
		x := first + (until-first)*float64(k)/float64(points-1)
		l := math.Log(x / v.done)

		var mid, low, high float64
		if l > 0 {
			mid, low, high = pen(l)
		} else {
			mid = v.localLinear(l)
			low, high = mid, mid
			d.Past++
		}

		ends := []float64{v.toMetric(low - reach), v.toMetric(high + reach)}
		slices.Sort(ends)
		d.X, d.Mid = append(d.X, x), append(d.Mid, v.toMetric(mid))
		d.Low, d.High = append(d.Low, ends[0]), append(d.High, ends[1])
	}

	return d
}

// continuation returns where the error goes after so much more log work: to the goal when it is expected there, and
// without a goal as it goes now.
func (v *view) continuation(c *Curve, to Estimate) func(l float64) (mid, low, high float64) {
	e := slices.Clone(v.e)
	v.removeJumps()
	s := v.slope()
	v.e = e

	if c.Goal.Set && !met(c) && !to.Fails() {
		distance := v.distance(s)
		fall := func(end float64) float64 { return distance / max(math.Log(end/v.done), v.step/2) }
		expected := fall(to.End)
		slow, fast := expected, expected
		if to.Low > 0 && to.High >= to.Low {
			slow, fast = min(expected, fall(to.High)), max(expected, fall(to.Low))
		}

		return func(l float64) (float64, float64, float64) {
			return s.level - expected*l, s.level - fast*l, s.level - slow*l
		}
	}

	if math.IsInf(s.stdErr, 1) {
		return nil
	}

	expected := s.fall * math.Exp(slopeDrift)
	apart := 1.28 * math.Hypot(s.stdErr, slopeStdDev*expected)

	return func(l float64) (float64, float64, float64) {
		return s.level - expected*l, s.level - (expected+apart)*l, s.level - (expected-apart)*l
	}
}

// localLinear returns where the curve runs at a point of its past: a line through the points around it, the
// near ones counting more.
func (v *view) localLinear(l float64) float64 {
	n := len(v.x)
	near := min(n, max(4, n/8))
	from, _ := slices.BinarySearch(v.x, l)
	from = max(0, min(from-near/2, n-near))

	bandwidth := 0.0
	for _, x := range v.x[from : from+near] {
		bandwidth = max(bandwidth, math.Abs(x-l))
	}

	bandwidth = bandwidth*1.0001 + 1e-12

	var k, sx, sy, sxx, sxy float64
	for i := from; i < from+near; i++ {
		x, e := v.x[i]-l, v.e[i]
		w := 1 - math.Abs(x)/bandwidth
		k, sx, sy, sxx, sxy = k+w, sx+w*x, sy+w*e, sxx+w*x*x, sxy+w*x*e
	}

	if det := k*sxx - sx*sx; det > 1e-12*k*sxx {
		return (sxx*sy - sx*sxy) / det
	}

	return sy / k
}
