package curve

import (
	"math"
	"slices"

	"trainyard/internal/quantile"
)

// horizon is how far methods look for the end: thirty times the work done.
const horizon = 30

// Methods returns every method by name: first those of the literature as they were published, which real
// curves beat, then those that hold the end within reach, then our answer. The table of
// `make bench-forecast` shows what each is worth.
func Methods() []Method {
	return []Method{
		{"poly2", func(c *Curve) Estimate { return polynomial(c, 2) }, 3},
		{"poly3", func(c *Curve) Estimate { return polynomial(c, 3) }, 4},
		{"regression", regression, 3},
		{"slaq", func(c *Curve) Estimate { return unbounded(c, hyperbola()) }, 3},
		{"power", func(c *Curve) Estimate { return unbounded(c, power()) }, 3},
		{"families", families, 3},
		{"line", line, 3},
		{"mean", mean, 3},
		{"logline", logline, 3},
		{"nohistory", Best, 1},
	}
}

// ByName returns a method.
func ByName(name string) (Method, bool) {
	all := Methods()
	i := slices.IndexFunc(all, func(m Method) bool { return m.Name == name })
	if i < 0 {
		return Method{}, false
	}

	return all[i], true
}

// noEnd says that a method sees no end.
func noEnd() Estimate { return Estimate{End: math.Inf(1)} }

// endAt says where a method sees the end, in units of work done.
func endAt(now, u float64) Estimate {
	if !(u >= 1) || u > horizon {
		return noEnd()
	}

	return Estimate{End: now * u}
}

// normalized returns the points with work in units of what is done and values in units of the largest.
func normalized(c *Curve) (u, y []float64, now, goal float64) {
	u, y = clean(c)
	if len(u) == 0 {
		return nil, nil, 0, 0
	}

	now = u[len(u)-1]

	size := math.Abs(c.Goal.Value)
	for _, v := range y {
		size = max(size, math.Abs(v))
	}

	if size == 0 {
		size = 1
	}

	for i := range u {
		u[i] /= now
		y[i] /= size
	}

	return u, y, now, c.Goal.Value / size
}

// polynomial is a polynomial in work by least squares, followed to where it first meets the goal.
func polynomial(c *Curve, degree int) Estimate {
	return extrapolate(c, degree+1, func(u float64, row []float64) {
		row[0] = 1
		for k := 1; k < len(row); k++ {
			row[k] = row[k-1] * u
		}
	})
}

// regression is the multiple regression on log work and on its inverse.
func regression(c *Curve) Estimate {
	return extrapolate(c, 3, func(u float64, row []float64) { row[0], row[1], row[2] = 1, math.Log(u), 1/u })
}

// extrapolate fits a sum of terms by least squares and looks where it first meets the goal.
func extrapolate(c *Curve, terms int, fill func(u float64, row []float64)) Estimate {
	u, y, now, goal := normalized(c)
	if len(u) < terms {
		return noEnd()
	}

	row := make([]float64, terms)

	m := newNormal(terms)
	for i := range u {
		fill(u[i], row)
		m.add(row, y[i])
	}

	beta, ok := m.solve()
	if !ok {
		return noEnd()
	}

	value := func(u float64) float64 {
		fill(u, row)
		var sum float64
		for k, b := range beta {
			sum += b * row[k]
		}

		return sum
	}

	good := func(u float64) bool {
		v := value(u)
		return v <= goal && !c.Goal.Rising || v >= goal && c.Goal.Rising
	}

	if good(1) {
		return endAt(now, 1)
	}

	// Steps of half a percent: finer than any method's error.
	for low := 1.0; low < horizon; {
		high := low * 1.005
		if good(high) {
			for range 30 {
				if mid := (low + high) / 2; good(mid) {
					high = mid
				} else {
					low = mid
				}
			}

			return endAt(now, high)
		}

		low = high
	}

	return noEnd()
}

// normal are the normal equations of a small least-squares problem.
type normal struct {
	n int
	a [][]float64 // with the right side as last column
}

func newNormal(n int) *normal {
	m := &normal{n: n, a: make([][]float64, n)}
	for i := range m.a {
		m.a[i] = make([]float64, n+1)
	}

	return m
}

func (m *normal) add(row []float64, y float64) {
	for i, r := range row {
		for k, s := range row {
			m.a[i][k] += r * s
		}

		m.a[i][m.n] += r * y
	}
}

// solve is Gaussian elimination with partial pivoting. It returns false if the matrix is singular.
func (m *normal) solve() ([]float64, bool) {
	for i := range m.n {
		p := i
		for k := i + 1; k < m.n; k++ {
			if math.Abs(m.a[k][i]) > math.Abs(m.a[p][i]) {
				p = k
			}
		}

		m.a[i], m.a[p] = m.a[p], m.a[i]
		if !(math.Abs(m.a[i][i]) > 1e-13) {
			return nil, false
		}

		for k := i + 1; k < m.n; k++ {
			f := m.a[k][i] / m.a[i][i]
			for j := i; j <= m.n; j++ {
				m.a[k][j] -= f * m.a[i][j]
			}
		}
	}

	out := make([]float64, m.n)
	for i := m.n - 1; i >= 0; i-- {
		sum := m.a[i][m.n]
		for k := i + 1; k < m.n; k++ {
			sum -= m.a[i][k] * out[k]
		}

		out[i] = sum / m.a[i][i]
	}

	return out, true
}

// line is the straight line through the last third of the points.
func line(c *Curve) Estimate {
	u, y, now, goal := normalized(c)
	return lineThroughTail(u, y, now, goal, func(u float64) float64 { return u }, func(v float64) float64 { return v })
}

// logline is the same over the logarithm of work.
func logline(c *Curve) Estimate {
	u, y, now, goal := normalized(c)
	return lineThroughTail(u, y, now, goal, math.Log, math.Exp)
}

func lineThroughTail(u, y []float64, now, goal float64, f, back func(float64) float64) Estimate {
	n := len(u)
	if n < 2 {
		return noEnd()
	}

	var k, sx, sy, sxx, sxy float64
	for i := n - min(n, max(3, (n+2)/3)); i < n; i++ {
		x := f(u[i])
		k, sx, sy, sxx, sxy = k+1, sx+x, sy+y[i], sxx+x*x, sxy+x*y[i]
	}

	slope := (k*sxy - sx*sy) / (k*sxx - sx*sx)
	if !((goal-y[n-1])*slope > 0) {
		return noEnd()
	}

	// The line may have passed the goal already though no point has: then it is met now.
	return endAt(now, max(1, back((goal-(sy-slope*sx)/k)/slope)))
}

// mean is the geometric mean of the line and of the hyperbola that ends below the goal; one alone where the
// other sees no end.
func mean(c *Curve) Estimate {
	a, b := line(c), bounded(c, hyperbola())
	switch {
	case a.Fails():
		return b
	case b.Fails():
		return a
	}

	return Estimate{End: math.Sqrt(a.End) * math.Sqrt(b.End)}
}

// families is the median of all families, each of which ends below the goal.
func families(c *Curve) Estimate {
	ends := make([]float64, 0, 5)
	for _, s := range []shape{power(), hyperbola(), exponential(), weibull(), logistic()} {
		ends = append(ends, bounded(c, s).End)
	}

	return Estimate{End: quantile.Median(ends)}
}
