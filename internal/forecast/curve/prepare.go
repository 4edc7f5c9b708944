package curve

import (
	"math"
	"slices"

	"trainyard/internal/quantile"
)

const (
	maxPoints = 96   // points that methods look at: more say nothing more about where a curve goes
	warmup    = 0.02 // part of the work that is left out at the start: there the curve has not found its course
	minPoints = 10   // points that must be left for that
)

// view is a curve as the methods want it: an error that falls, whatever the metric does, in logarithms
// if it has a floor at 0, and work in units of what is done.
type view struct {
	x, e []float64 // log of work over work done, so 0 at the last; error, smoothed
	goal float64   // the error to come down to
	// log of work over work done at the point to come, if points keep coming at the same distance
	step float64
	done float64 // work at the last point
	// how far the last points as reported lie beside the chord between their neighbours
	chordResiduals []float64
	pointsPerMean  float64                 // points that went into one of e
	logs           bool                    // the errors are logarithms
	toMetric       func(e float64) float64 // the metric from the error
}

// newView prepares a curve: out of order and not finite left out, turned so that it falls, the first
// part left out, thinned out, single outliers removed. It returns nil if nothing is left.
func newView(c *Curve) *view {
	x, y := clean(c)
	n := len(x)
	if n == 0 {
		return nil
	}

	v := &view{done: x[n-1]}

	from := 0
	for from < n-minPoints && x[from] < warmup*v.done {
		from++
	}

	v.toError(c.Goal, y)

	for i := range x {
		x[i] = math.Log(x[i] / v.done)
	}

	x, y = x[from:], y[from:]
	v.step = math.Log1p(gap(x))
	v.chordResiduals = chordResiduals(x, y)
	v.x, v.e = thin(x, y, maxPoints)
	v.pointsPerMean = float64(len(x)) / float64(len(v.x))
	median3(v.e)

	return v
}

// clean returns a copy of the points that are in order.
func clean(c *Curve) (x, y []float64) {
	n := min(len(c.X), len(c.Y))
	x, y = make([]float64, 0, n), make([]float64, 0, n)
	for i := range n {
		fine := c.X[i] > 0 && !math.IsInf(c.X[i], 0) && !math.IsInf(c.Y[i], 0) && !math.IsNaN(c.Y[i])
		if fine && (len(x) == 0 || c.X[i] > x[len(x)-1]) {
			x, y = append(x, c.X[i]), append(y, c.Y[i])
		}
	}

	return x, y
}

// toError makes of the metric an error that falls, and of the goal what it has to come down to. Shares and
// percentages that rise are measured from their own bound. An error above 0 is taken in logarithms: half the
// error is as much of a step at 0.1 as at 10. Anything else is brought to a size at which sums do not overflow.
func (v *view) toError(g Goal, y []float64) {
	if !g.Set {
		g.Value = y[len(y)-1]
	}

	low, high := min(slices.Min(y), g.Value), max(slices.Max(y), g.Value)

	bound, sign := 0.0, 1.0
	if g.Rising {
		sign = -1

		switch {
		case low >= 0 && high < 1:
			bound = 1
		case low >= 0 && high > 1 && high < 100:
			bound = 100
		}
	}

	if bound > 0 || !g.Rising && low > 0 {
		v.logs = true
		v.goal = math.Log(bound + sign*g.Value)

		for i := range y {
			y[i] = math.Log(bound + sign*y[i])
		}

		v.toMetric = func(e float64) float64 { return (math.Exp(e) - bound) * sign }

		return
	}

	size := max(math.Abs(low), math.Abs(high))
	if size == 0 {
		size = 1
	}

	v.goal = sign * (g.Value / size)

	for i := range y {
		y[i] = sign * (y[i] / size)
	}

	v.toMetric = func(e float64) float64 { return e * sign * size }
}

// gap returns the median distance between the last points, as a part of the work done. A
// single point came after all the work.
func gap(logs []float64) float64 {
	n := len(logs)
	if n < 2 {
		return 1
	}

	d := make([]float64, 0, 64)
	for i := max(1, n-64); i < n; i++ {
		d = append(d, math.Exp(logs[i])-math.Exp(logs[i-1]))
	}

	return quantile.Median(d)
}

// chordResiduals returns how far points lie beside the chord between their neighbours, each as the
// deviation of a single point.
func chordResiduals(x, y []float64) []float64 {
	n := len(x)
	d := make([]float64, 0, min(n, maxPoints))
	for i := max(2, n-maxPoints); i < n; i++ {
		t := (x[i-1] - x[i-2]) / (x[i] - x[i-2])
		off := y[i-1] - (1-t)*y[i-2] - t*y[i]
		d = append(d, math.Abs(off)/math.Sqrt(1+t*t+(1-t)*(1-t)))
	}

	return d
}

// noise returns the standard deviation of one point as reported, by the last so many points as looked at. Less than
// three points show none. A curve bends most at its beginning, and that is no noise: so
// the noise of a stretch is told by that stretch alone, and a few points before it.
func (v *view) noise(points int) float64 {
	n := min(len(v.chordResiduals), max(3, int(float64(points)*v.pointsPerMean)-2))
	if n == 0 {
		return 0
	}

	return 1.4826 * quantile.Median(v.chordResiduals[len(v.chordResiduals)-n:])
}

// thin returns a curve with at most so many points: means over stretches of equal count.
func thin(x, y []float64, most int) ([]float64, []float64) {
	n := len(x)
	if n <= most {
		return x, y
	}

	tx, ty := make([]float64, most), make([]float64, most)
	for k := range most {
		from, to := k*n/most, (k+1)*n/most
		for i := from; i < to; i++ {
			tx[k] += x[i] / float64(to-from)
			ty[k] += y[i] / float64(to-from)
		}
	}

	return tx, ty
}

// median3 replaces each inner value by the median of itself and its neighbours, so that one
// wild point does no harm.
func median3(y []float64) {
	if len(y) < 3 {
		return
	}

	before := y[0]
	for i := 1; i+1 < len(y); i++ {
		a, b, c := before, y[i], y[i+1]
		before = b
		y[i] = max(min(a, b), min(max(a, b), c))
	}
}

// removeJumps finds jumps and takes them out: a lower learning rate, a restart from an older
// checkpoint, another batch size. What lay before one is moved to where it meets what came after, so that
// a jump is not taken for a slope. It returns the first point after the last jump, 0 if there was none.
func (v *view) removeJumps() (since int) {
	n := len(v.e)
	if n < 8 {
		return 0
	}

	d := make([]float64, n)
	for i := 1; i < n; i++ {
		d[i] = v.e[i] - v.e[i-1]
	}

	expected := robustStdDev(d[1:])
	for i := 3; i < n-2; i++ {
		around := max(math.Abs(d[i-2]), math.Abs(d[i-1]), math.Abs(d[i+1]), math.Abs(d[i+2]))
		between := (d[i-1] + d[i+1]) / 2
		if off := d[i] - between; math.Abs(off) > 5*expected && math.Abs(d[i]) > 3*around && persists(v.e, i, d[i]) {
			for k := range i {
				v.e[k] += off
			}

			since = i
		}
	}

	return since
}

// persists reports whether a step is still there in the medians of what lies before and after it.
func persists(e []float64, i int, step float64) bool {
	before := quantile.Median(e[max(0, i-3):i])
	after := quantile.Median(e[i:min(len(e), i+3)])
	return (after-before)*step > 0 && math.Abs(after-before) > math.Abs(step)/2
}

// robustStdDev is the median distance from the median, as a standard deviation.
func robustStdDev(d []float64) float64 {
	s := slices.Clone(d)
	mid := quantile.Median(s)
	for i := range s {
		s[i] = math.Abs(s[i] - mid)
	}

	return 1.4826 * quantile.Median(s)
}
