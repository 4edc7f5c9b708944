package scaling

import (
	"math"
	"slices"
)

// Assumptions about what was not observed, in parts of the time of a unit on one GPU, or of a
// step. They count as much as an observation of the weight beside them.
const (
	ownPrior      = 0.05
	ownWeight     = 0.1
	networkPrior  = 0.05
	networkWeight = 0.1
	factorWeight  = 0.02 // of the assumption that TFLOPS decide

	passPrior   = 0.5 // part of a pass that does not depend on its samples
	withinPrior = 0.02
	acrossPrior = 0.3 // beyond what GPUs of one node wait
	morePrior   = 0.001
	stepWeight  = 0.03
)

// aging is the weight of an observation in comparison to the one after it: training changes, and
// what was seen long ago says less.
const aging = 0.8

// rounds is how often the figures of the program and those of the kinds are fitted in turn.
const rounds = 8

// fit finds the figures of the model with the least squares of the relative errors.
func (m *Model) fit() {
	m.Kinds = m.kinds()
	assumed := make([]float64, len(m.Kinds)) // as TFLOPS say
	for i := range m.Kinds {
		assumed[i] = byTFLOPS(m.Kinds[0].TFLOPS, m.Kinds[i].TFLOPS)
		m.Kinds[i].Factor = assumed[i]
	}

	last := &m.Seen[len(m.Seen)-1]
	if t := last.Training; t != nil {
		m.Training, m.Unit = t, last.PerSecond*t.StepSeconds/t.gain(t.Batch)
	}

	for range rounds {
		m.fitProgram()
		if len(m.Kinds) == 1 {
			return
		}

		m.fitKinds(assumed)
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
func (m *Model) weight(at int) float64 {
	if m.Training != nil {
		return 1 // the time of a step stays the same
	}

	return math.Pow(aging, float64(len(m.Seen)-1-at))
}

// counts reports whether an observation counts: with a program that reports its batch only those
// with a batch do.
func (m *Model) counts(o *Observation) bool { return m.Training == nil || o.Training != nil }

// fitProgram finds the figures of the program for the present factors of the kinds.
func (m *Model) fitProgram() {
	s := squares{}
	for i := range m.Seen {
		if o := &m.Seen[i]; m.counts(o) {
			s.add(m.weight(i), m.equation(o, m.Kinds[m.kindOf(o)].Factor), 1)
		}
	}

	last := &m.Seen[len(m.Seen)-1]
	f := m.Kinds[m.kindOf(last)].Factor

	if m.Training == nil {
		// The time of a unit on one GPU, if the newest observation scaled perfectly.
		scale := float64(last.GPUs) / last.PerSecond / f
		s.add(ownWeight, row{1: 1 / scale}, ownPrior)
		s.add(networkWeight, row{2: 1 / scale}, networkPrior)
		x := s.solve(3)
		m.Shared, m.Own, m.Network = x[0], x[1], x[2]

		return
	}

	// With one batch it is not known how much of a pass depends on the samples: half of it.
	b := last.batch()
	scale := last.Training.StepSeconds / b.Passes / f
	s.add(stepWeight, row{0: 1 / scale}, passPrior)
	s.add(stepWeight, row{1: b.Each / scale}, 1-passPrior)
	s.add(stepWeight, row{2: 1 / scale}, withinPrior)
	s.add(stepWeight, row{3: 1 / scale, 2: -1 / scale}, acrossPrior)
	s.add(stepWeight, row{4: 1 / scale}, morePrior)
	x := s.solve(5)
	m.Pass, m.Sample, m.Within, m.Across, m.More = x[0], x[1], x[2], x[3], x[4]
}

// equation is an observation as an equation that is 1 if the figures are right: expected time of a
// unit, or of a step, over the observed one.
func (m *Model) equation(o *Observation, factor float64) (r row) {
	if m.Training == nil {
		r[0], r[1] = factor*o.PerSecond/float64(o.GPUs), factor*o.PerSecond
		if o.Nodes > 1 {
			r[2] = factor * o.PerSecond
		}

		return r
	}

	b, step := o.batch(), o.Training.StepSeconds
	r[0], r[1] = factor*b.Passes/step, factor*b.Passes*b.Each/step

	switch {
	case o.GPUs < 2:
	case o.Nodes > 1:
		r[3], r[4] = 1/step, float64(o.GPUs-2)/step
	default:
		r[2], r[4] = 1/step, float64(o.GPUs-2)/step
	}

	return r
}

// figures are the figures of the program in the order of the equations.
func (m *Model) figures() row {
	if m.Training == nil {
		return row{m.Shared, m.Own, m.Network}
	}

	return row{m.Pass, m.Sample, m.Within, m.Across, m.More}
}

// fitKinds finds the factors of the kinds other than the reference.
func (m *Model) fitKinds(assumed []float64) {
	x := m.figures()
	for k := 1; k < len(m.Kinds); k++ {
		// The factor f with the least Σ w·(f·g + h − 1)², where g grows with the factor and h does not.
		sum, square := factorWeight/assumed[k], factorWeight/(assumed[k]*assumed[k])
		for i := range m.Seen {
			o := &m.Seen[i]
			if o.Kind != m.Kinds[k].Name || !m.counts(o) {
				continue
			}

			r, rest := m.equation(o, 1), m.equation(o, 0)
			h := rest.times(x)
			g := r.times(x) - h
			sum += m.weight(i) * g * (1 - h)
			square += m.weight(i) * g * g
		}

		m.Kinds[k].Factor = math.Max(sum/square, assumed[k]/maxDeviation)
	}
}

// maxDeviation bounds how much faster than its TFLOPS say a GPU is taken to be.
const maxDeviation = 16
