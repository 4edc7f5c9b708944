package match

import (
	"math"
	"slices"

	"trainyard/internal/forecast/curve"
	"trainyard/internal/forecast/history"
)

// cells is into how many stretches a past curve is cut. They are narrow at the beginning,
// where curves bend most: stretch k ends at (k/cells)² of the work.
const cells = 192

// Pool is past jobs whose curves have been prepared to be laid under others. It is
// never changed, so that many may ask it at once.
type Pool struct {
	all     []template
	kernels map[string]kernel // how the curves of a kind of job are best compared, by what came of it
}

// template is a past job with its curve as it is looked up.
type template struct {
	past   *history.Past
	traits traits
	rising bool
	goal   curve.Goal
	// values and log are the values, and their logarithms if all are positive, at the ends of the
	// stretches of the work until End; log is nil otherwise.
	values, logs []float64
	firstCell    float64 // stretch of its first point
	end          float64 // work of the whole job
	valueRange   float64 // how far the values reach
}

// NewPool prepares past jobs, which must not be changed afterwards. Those without a curve are left
// out.
func NewPool(past []history.Past) *Pool {
	p := &Pool{}
	for i := range past {
		if q, ok := newTemplate(&past[i]); ok {
			p.all = append(p.all, q)
		}
	}

	// The order in which jobs are given must not matter.
	slices.SortStableFunc(p.all, func(a, b template) int { return history.Compare(a.past, b.past) })
	p.kernels = p.tuneKernels()

	return p
}

// Len returns how many past jobs have a curve.
func (p *Pool) Len() int { return len(p.all) }

// newTemplate cuts the curve of a past job into stretches; it returns false if there is
// nothing to cut.
func newTemplate(p *history.Past) (template, bool) {
	x, y := clean(p.Curve.X, p.Curve.Y)
	if len(x) < 3 {
		return template{}, false
	}

	end := p.End
	if math.IsNaN(end) || end <= 0 || end > x[len(x)-1]*1.5 {
		end = x[len(x)-1]
	}

	q := template{past: p, traits: traitsOf(&p.Features), goal: p.Curve.Goal, end: end, values: make([]float64, cells+1)}
	q.firstCell = cells * math.Sqrt(min(x[0]/end, 1))
	positive := true

	at := 0
	for k := range q.values {
		q.values[k] = cellMean(x, y, end, k, &at)
		positive = positive && q.values[k] > 0
	}

	if positive {
		q.logs = make([]float64, len(q.values))
		for k, v := range q.values {
			q.logs[k] = math.Log(v)
		}
	}

	q.valueRange = slices.Max(q.values) - slices.Min(q.values)
	q.rising = p.Curve.Goal.Rising
	if !p.Curve.Goal.Set {
		q.rising = q.values[cells] > q.values[cells/8]
	}

	return q, true
}

// huge is beyond all that is measured, and small enough to be squared.
const huge = 1e100

// clean returns the points of a curve that are numbers and go on, each value the
// middle of itself and its neighbours: one outlier is not a shape.
func clean(xs, ys []float64) (x, y []float64) {
	n := min(len(xs), len(ys))
	x, y = make([]float64, 0, n), make([]float64, 0, n)
	for i := range n {
		if math.Abs(xs[i]) < huge && math.Abs(ys[i]) < huge && xs[i] >= 0 && (len(x) == 0 || xs[i] > x[len(x)-1]) {
			x, y = append(x, xs[i]), append(y, ys[i])
		}
	}

	if len(y) < 5 {
		return x, y
	}

	smooth := slices.Clone(y)
	for i := 1; i+1 < len(y); i++ {
		smooth[i] = max(min(y[i-1], y[i]), min(max(y[i-1], y[i]), y[i+1]))
	}

	return x, smooth
}

// cellMean returns the value of a curve at the end of a stretch: the mean of the points between the middles
// of this stretch and the next if there are several, so that noise is not taken for shape.
func cellMean(x, y []float64, end float64, k int, at *int) float64 {
	part := float64(k) / cells
	before, after := max(part-0.5/cells, 0), part+0.5/cells

	first := *at
	for first < len(x) && x[first] < end*before*before {
		first++
	}

	sum, n := 0.0, 0
	for i := first; i < len(x) && x[i] < end*after*after; i++ {
		sum += y[i]
		n++
	}

	if n >= 3 {
		return sum / float64(n)
	}

	return interpolate(x, y, end*part*part, at)
}

// interpolate returns the value of a curve at a place, along straight lines between its points;
// before the first and after the last it is theirs. It goes on from *at, so that rising
// places are found without a search.
func interpolate(x, y []float64, place float64, at *int) float64 {
	for *at+1 < len(x) && x[*at+1] < place {
		*at++
	}

	i := *at
	switch {
	case place <= x[0]:
		return y[0]
	case i+1 >= len(x):
		return y[len(y)-1]
	}

	part := (place - x[i]) / (x[i+1] - x[i])

	return y[i] + part*(y[i+1]-y[i])
}
