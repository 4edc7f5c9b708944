// Package scaling learns how the speed of a program grows with its GPUs from what was observed
// of it while it ran.
//
// Of a program that reports only its progress, a unit of work is taken to last f·(A/n + B + C)
// seconds on n GPUs: a part that the GPUs share, a part that each of them has to do, and one for
// the network if they are on several nodes; f is by model of GPU. A program that chooses its batch
// size may report that with its step time and the noise of its gradients. Then the time of a step
// is learned instead, which does not change as training goes on, and what a step is worth follows
// from the noise, which does.
//
// Few observations fix these figures. What was not observed is assumed to be nearly perfect, so
// that it is tried, and the assumption gives way to the first observation that contradicts it.
//
// The package is pure and knows no jobs. Package place feeds it with the progress that programs
// report, and the policies that choose numbers of GPUs ask it where no speeds were declared.
package scaling

import (
	"math"
	"slices"
)

// Observation is the speed of a program on the GPUs that it had.
type Observation struct {
	Kind      string  // model of the GPUs
	TFLOPS    float64 // of one of them, 0 if unknown
	GPUs      int     // of all nodes together
	Nodes     int
	PerSecond float64   // units of work
	Done      float64   // units of work, in all
	Training  *Training `json:",omitempty"` // nil if it does not report that
}

// Model is what is known of the speed of one program. It is made by With and never changed after
// that.
type Model struct {
	Seen  []Observation // the newest last; each allocation and batch once
	Kinds []Kind        // models of GPU that were observed, the reference first

	// Shared, Own and Network are the seconds that a unit takes on a GPU of the reference model,
	// of which only Shared is divided by the number of GPUs.
	Shared, Own, Network float64

	// Training is the newest report of a program that chooses its batch, and Unit the units of
	// work that a step of the base batch is. Pass and Sample are the seconds of a pass and of each
	// of its samples on the reference model; Within, Across and More those that GPUs wait for each
	// other in a step: on one node, on several, and for each GPU beyond two.
	Training             *Training `json:",omitempty"`
	Unit                 float64   `json:",omitempty"`
	Pass, Sample         float64   `json:",omitempty"`
	Within, Across, More float64   `json:",omitempty"`
}

// Kind is a model of GPU on which the program was observed.
type Kind struct {
	Name   string
	TFLOPS float64 // 0 if unknown
	Factor float64 // how many times as long a unit takes as on the reference
}

const (
	// maxSeen bounds what is remembered: of more the oldest is forgotten.
	maxSeen = 32
	// renewal is the weight of a new observation of an allocation beside the earlier ones: a
	// program gets faster and slower as it goes on.
	renewal = 0.7
	// same is up to which ratio a repeated observation says nothing new.
	same = 1.01
)

// NewModel returns the model of what a program was observed to do, as Seen of another model lists it; nil if that is
// nothing.
func NewModel(seen []Observation) *Model {
	if len(seen) == 0 {
		return nil
	}

	m := &Model{Seen: slices.Clone(seen)}
	m.fit()

	return m
}

// With returns a model that includes an observation. The model may be nil.
func (m *Model) With(o Observation) *Model {
	if o.GPUs < 1 || !(o.PerSecond > 0) {
		return m
	}

	o.Nodes = max(o.Nodes, 1)
	next := &Model{}

	if m != nil {
		if m.repeats(&o) {
			return m
		}

		next.Seen = slices.Clone(m.Seen)
	}

	if at := next.find(&o); at >= 0 {
		if o.Training == nil {
			o.PerSecond = renewal*o.PerSecond + (1-renewal)*next.Seen[at].PerSecond
		}

		next.Seen = slices.Delete(next.Seen, at, at+1)
	}

	next.Seen = append(next.Seen, o)
	if len(next.Seen) > maxSeen {
		next.Seen = next.Seen[len(next.Seen)-maxSeen:]
	}

	next.fit()

	return next
}

// repeats reports whether an observation is like the newest.
func (m *Model) repeats(o *Observation) bool {
	last := &m.Seen[len(m.Seen)-1]
	if m.find(o) != len(m.Seen)-1 || !close(last.PerSecond, o.PerSecond) {
		return false
	}

	return o.Training == nil || close(last.Training.NoiseScale, o.Training.NoiseScale) &&
		close(last.Training.StepSeconds, o.Training.StepSeconds)
}

func close(a, b float64) bool { return a <= b*same && b <= a*same }

// find returns where the same allocation with the same batch was observed, -1 if it was not.
func (m *Model) find(o *Observation) int {
	return slices.IndexFunc(m.Seen, func(s Observation) bool {
		return s.Kind == o.Kind && s.GPUs == o.GPUs && s.Nodes == o.Nodes && s.batch() == o.batch()
	})
}

// batch is how the program did its batch; zero if it does not report that.
func (o *Observation) batch() Batch {
	if o.Training == nil {
		return Batch{}
	}

	p := o.Training.passes()

	return Batch{o.Training.Batch / p / float64(o.GPUs), p}
}

// Observed reports whether the program was observed on such an allocation.
func (m *Model) Observed(kind string, gpus, nodes int) bool {
	return m != nil && slices.ContainsFunc(m.Seen, func(o Observation) bool {
		return o.Kind == kind && o.GPUs == gpus && o.Nodes == nodes
	})
}

// MaxGPUs returns the largest number of GPUs that is worth trying: four times the largest that was
// observed, 0 if nothing was. What lies further is too far from any observation.
func (m *Model) MaxGPUs() int {
	if m == nil {
		return 0
	}

	most := 0
	for i := range m.Seen {
		most = max(most, m.Seen[i].GPUs)
	}

	return reach * most
}

// reach is how many times as many GPUs as were observed may be tried.
const reach = 4

// Rate returns the units of work per second to expect on so many GPUs of a model with so many
// TFLOPS, 0 if nothing was observed. On a model that was not observed, the program is assumed to
// be as fast as its TFLOPS say.
func (m *Model) Rate(kind string, tflops float64, gpus, nodes int) float64 {
	switch {
	case m == nil || len(m.Seen) == 0 || gpus < 1:
		return 0
	case m.Training != nil:
		_, rate := m.Best(kind, tflops, gpus, nodes)
		return m.Unit * rate
	}

	return 1 / (m.factor(kind, tflops) * m.seconds(gpus, nodes))
}

// seconds is how long a unit takes on the reference.
func (m *Model) seconds(gpus, nodes int) float64 {
	t := m.Shared/float64(gpus) + m.Own
	if nodes > 1 {
		t += m.Network
	}

	return t
}

// factor is how many times as long as on the reference a unit takes on a model of GPU.
func (m *Model) factor(kind string, tflops float64) float64 {
	for _, k := range m.Kinds {
		if k.Name == kind {
			return k.Factor
		}
	}

	// Of those that were observed, the most similar one stands for it.
	nearest := m.Kinds[0]
	for _, k := range m.Kinds[1:] {
		if distance(k.TFLOPS, tflops) < distance(nearest.TFLOPS, tflops) {
			nearest = k
		}
	}

	return nearest.Factor * byTFLOPS(nearest.TFLOPS, tflops)
}

// maxRatio bounds how many times as fast one GPU is taken to be as another.
const maxRatio = 100

// byTFLOPS is how many times as long a unit takes on a GPU as on another.
func byTFLOPS(from, to float64) float64 {
	if from <= 0 || to <= 0 {
		return 1
	}

	return math.Min(math.Max(from/to, 1.0/maxRatio), maxRatio)
}

// distance is how unlike two GPUs are.
func distance(a, b float64) float64 { return math.Abs(math.Log(byTFLOPS(a, b))) }
