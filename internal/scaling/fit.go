package scaling

import (
	"math"
	"slices"
)

// Assumptions about what was not observed, in parts of the time of a unit on one GPU. They count
// as much as an observation of the weight beside them.
const (
	ownPrior      = 0.05
	ownWeight     = 0.1
	networkPrior  = 0.05
	networkWeight = 0.1
	factorWeight  = 0.1 // of the assumption that TFLOPS decide
)

// aging is the weight of an observation in comparison to the one after it: training changes, and
// what was seen long ago says less.
const aging = 0.8

// rounds is how often the figures of the program and those of the kinds are fitted in turn.
const rounds = 12

// fit finds the figures of the model with the least squares of the relative errors.
func (m *Model) fit() {
	m.Kinds = m.kinds()
	factors := make([]float64, len(m.Kinds)) // as TFLOPS say
	for i := range m.Kinds {
		factors[i] = byTFLOPS(m.Kinds[0].TFLOPS, m.Kinds[i].TFLOPS)
		m.Kinds[i].Factor = factors[i]
	}

	for range rounds {
		m.fitProgram()
		if len(m.Kinds) == 1 {
			return
		}

		m.fitKinds(factors)
	}
}

// kinds lists the models of GPU that were observed. The one that was observed last is the
// reference: its factor is 1.
func (m *Model) kinds() []Kind {
	var list []Kind
	for i := len(m.Seen) - 1; i >= 0; i-- {
		o := &m.Seen[i]
		if !slices.ContainsFunc(list, func(k Kind) bool { return k.Name == o.Kind }) {
			list = append(list, Kind{Name: o.Kind, TFLOPS: o.TFLOPS})
		}
	}

	return list
}

func (m *Model) kindOf(o *Observation) int {
	return slices.IndexFunc(m.Kinds, func(k Kind) bool { return k.Name == o.Kind })
}

// weight is how much an observation counts.
func (m *Model) weight(at int) float64 { return math.Pow(aging, float64(len(m.Seen)-1-at)) }

// fitProgram finds Shared, Own and Network for the present factors.
func (m *Model) fitProgram() {
	// The time of a unit on one GPU, if the newest observation scaled perfectly, is the scale of
	// the assumptions.
	last := &m.Seen[len(m.Seen)-1]
	scale := float64(last.GPUs) / last.PerSecond / m.Kinds[m.kindOf(last)].Factor

	var s squares
	for i := range m.Seen {
		o := &m.Seen[i]
		unit := m.Kinds[m.kindOf(o)].Factor * o.PerSecond // of the expected time: 1 if it is right
		several := 0.0
		if o.Nodes > 1 {
			several = unit
		}

		s.add(m.weight(i), [3]float64{unit / float64(o.GPUs), unit, several}, 1)
	}

	s.add(ownWeight, [3]float64{1: 1 / scale}, ownPrior)
	s.add(networkWeight, [3]float64{2: 1 / scale}, networkPrior)
	x := s.solve()
	m.Shared, m.Own, m.Network = x[0], x[1], x[2]
}

// fitKinds finds the factors of the kinds other than the reference.
func (m *Model) fitKinds(assumed []float64) {
	for k := 1; k < len(m.Kinds); k++ {
		// The factor f with the least Σ w·(f·g − 1)², where f·g is 1 if it is right.
		sum, square := factorWeight/assumed[k], factorWeight/(assumed[k]*assumed[k])
		for i := range m.Seen {
			o := &m.Seen[i]
			if o.Kind != m.Kinds[k].Name {
				continue
			}

			g := m.seconds(o.GPUs, o.Nodes) * o.PerSecond
			sum += m.weight(i) * g
			square += m.weight(i) * g * g
		}

		m.Kinds[k].Factor = sum / square
	}
}

// byTFLOPS is how many times as long a unit takes on a GPU as on another, by their TFLOPS.
func byTFLOPS(from, to float64) float64 {
	if from <= 0 || to <= 0 {
		return 1
	}

	return from / to
}

// distance is how unlike two GPUs are.
func distance(a, b float64) float64 { return math.Abs(math.Log(byTFLOPS(a, b))) }

// squares is a least-squares problem in three figures that must not be negative.
type squares struct {
	a [3][3]float64
	b [3]float64
}

// add adds the equation row·x = value with a weight.
func (s *squares) add(weight float64, row [3]float64, value float64) {
	for i := range row {
		for j := range row {
			s.a[i][j] += weight * row[i] * row[j]
		}

		s.b[i] += weight * row[i] * value
	}
}

// solve returns the best figures that are not negative: those of the best set of figures that
// are not zero. There are so few sets that all are tried. The first figure is always one of
// them, so that more GPUs are never slower.
func (s *squares) solve() [3]float64 {
	var best [3]float64
	least := math.Inf(1)

	for set := 1; set < 8; set += 2 {
		x, ok := s.within(set)
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
func (s *squares) within(set int) ([3]float64, bool) {
	var (
		at []int
		x  [3]float64
	)

	for i := range x {
		if set&(1<<i) != 0 {
			at = append(at, i)
		}
	}

	a, b := s.a, s.b
	for n, i := range at {
		if a[i][i] <= 1e-300 {
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
func (s *squares) cost(x [3]float64) float64 {
	sum := 0.0
	for i := range x {
		for j := range x {
			sum += x[i] * s.a[i][j] * x[j]
		}

		sum -= 2 * s.b[i] * x[i]
	}

	return sum
}
