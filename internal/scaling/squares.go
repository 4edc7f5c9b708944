package scaling

import "math"

// size is the largest number of figures.
const size = 5

// row is one number for each figure.
type row [size]float64

func (r row) times(x row) float64 {
	sum := 0.0
	for i := range r {
		sum += r[i] * x[i]
	}

	return sum
}

// squares is a least-squares problem in a few figures that must not be negative.
type squares struct {
	a [size]row
	b row
}

// add adds the equation r·x = value with a weight.
func (s *squares) add(weight float64, r row, value float64) {
	for i := range r {
		for j := range r {
			s.a[i][j] += weight * r[i] * r[j]
		}

		s.b[i] += weight * r[i] * value
	}
}

// solve returns the best figures that are not negative: those of the best set of figures that are
// not zero. There are so few sets that all are tried.
func (s *squares) solve(figures int) row {
	var best row
	least := math.Inf(1)

	for set := 1; set < 1<<figures; set++ {
		x, ok := s.within(set, figures)
		if !ok {
			continue
		}

		if cost := s.cost(x); cost < least {
			best, least = x, cost
		}
	}

	return best
}

// within solves for the figures of a set, by elimination. It fails if one is negative.
func (s *squares) within(set, figures int) (x row, ok bool) {
	at := make([]int, 0, size)
	for i := range figures {
		if set&(1<<i) != 0 {
			at = append(at, i)
		}
	}

	a, b := s.a, s.b
	for n, i := range at {
		if !(a[i][i] > 1e-12*s.a[i][i]) {
			return x, false
		}

		for _, j := range at[n+1:] {
			share := a[j][i] / a[i][i]
			for _, k := range at[n:] {
				a[j][k] -= share * a[i][k]
			}

			b[j] -= share * b[i]
		}
	}

	for n := len(at) - 1; n >= 0; n-- {
		i := at[n]
		x[i] = b[i]
		for _, j := range at[n+1:] {
			x[i] -= a[i][j] * x[j]
		}

		x[i] /= a[i][i]
		if !(x[i] >= 0) || math.IsInf(x[i], 0) {
			return x, false
		}
	}

	return x, true
}

// cost is the sum of squares, less a constant.
func (s *squares) cost(x row) float64 {
	sum := 0.0
	for i := range x {
		sum += x[i]*s.a[i].times(x) - 2*s.b[i]*x[i]
	}

	return sum
}
