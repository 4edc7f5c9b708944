package match

import (
	"math"
	"slices"

	"trainyard/internal/forecast/curve"
	"trainyard/internal/forecast/history"
)

// cells is the number of cells into which a past curve is divided. They are narrow at the
// beginning, where curves bend most: cell k ends at (k/cells)² of the work.
const cells = 192

// Pool is past jobs whose curves are prepared for comparison. It is immutable, so that several
// goroutines may use it.
type Pool struct {
	all     []template
	kernels map[string]kernel // tuned kernel by kind of job
}

// template is a past job with its prepared curve.
type template struct {
	past   *history.Past
	traits traits
	rising bool
	goal   curve.Goal
	// values are the values of the curve at the ends of the cells, up to end. logs are their
	// logarithms, nil unless all values are positive.
	values, logs []float64
	firstCell    float64 // cell of its first point
	end          float64 // work of the whole job
	valueRange   float64 // range of its values
}

// NewPool prepares past jobs, which must not be changed afterwards. Jobs without a curve are left
// out.
func NewPool(past []history.Past) *Pool {
	p := &Pool{}
	for i := range past {
		if q, ok := newTemplate(&past[i]); ok {
			p.all = append(p.all, q)
		}
	}

	// The result must not depend on the order in which jobs are given.
	slices.SortStableFunc(p.all, func(a, b template) int { return history.Compare(a.past, b.past) })
	p.kernels = p.tuneKernels()

	return p
}

// Len returns the number of past jobs with a curve.
func (p *Pool) Len() int { return len(p.all) }

// newTemplate divides the curve of a past job into cells. It returns false if the curve is empty.
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

// huge is larger than any measured value, and small enough to be squared.
const huge = 1e100

// clean returns the points of a curve with finite values and increasing work. Each value is
// replaced by the median of itself and its neighbours, so that a single outlier does not change the
// shape.
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

// cellMean returns the value of a curve at the end of a cell: the mean of the points between the middles of
// this cell and the next if there are several, so that noise is not mistaken for shape.
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

// interpolate returns the value of a curve at a place by linear interpolation; before the first
// point and after the last it is constant. It continues from *at, so that increasing places need no
// search.
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
