package duration

import "math"

// line is a linear model of words and logarithms: the least that anything cleverer has to beat.
type line struct {
	W    weights `json:"w"`
	Bias float32 `json:"bias"`
}

// run returns what the line says of a job.
func (l *line) run(x *example, words int) float64 {
	sum := l.Bias
	for _, i := range x.on {
		sum += l.W[i]
	}
	for i, z := range x.z {
		sum += l.W[words+i] * float32(z)
	}
	return float64(sum)
}

// pull draws the weights of a line towards 0, in examples.
const pull = 1.0

// trainLine fits a line by least squares that are drawn towards 0.
func trainLine(xs []example, ys []float64, inputs, words int) *line {
	n := inputs + 1 // the last is the bias
	a := make([]float64, n*n)
	b := make([]float64, n)
	dense := make([]float64, n)
	var set []int
	for k := range xs {
		set = append(set[:0], xs[k].on...)
		for _, i := range xs[k].on {
			dense[i] = 1
		}
		for i, z := range xs[k].z {
			dense[words+i] = z
			set = append(set, words+i)
		}
		dense[n-1] = 1
		set = append(set, n-1)
		for _, i := range set {
			b[i] += dense[i] * ys[k]
			for _, j := range set {
				a[i*n+j] += dense[i] * dense[j]
			}
		}
	}
	for i := range n {
		a[i*n+i] += pull
	}
	w := solve(a, b, n)
	l := &line{W: make(weights, inputs), Bias: float32(w[n-1])}
	for i := range l.W {
		l.W[i] = float32(w[i])
	}
	return l
}

// solve solves a symmetric system with a positive diagonal by Cholesky's method; a and b are spent.
func solve(a, b []float64, n int) []float64 {
	for i := range n {
		for j := range i + 1 {
			sum := a[i*n+j]
			for k := range j {
				sum -= a[i*n+k] * a[j*n+k]
			}
			if i == j {
				a[i*n+i] = math.Sqrt(max(sum, 1e-12))
			} else {
				a[i*n+j] = sum / a[j*n+j]
			}
		}
	}
	for i := range n {
		for k := range i {
			b[i] -= a[i*n+k] * b[k]
		}
		b[i] /= a[i*n+i]
	}
	for i := n - 1; i >= 0; i-- {
		for k := i + 1; k < n; k++ {
			b[i] -= a[k*n+i] * b[k]
		}
		b[i] /= a[i*n+i]
	}
	return b
}
