// Package scaling learns how the speed of a program grows with its GPUs from what was observed
// of it while it ran.
//
// A unit of work takes a program f·(A/n + B + C) seconds on n GPUs: a part that the GPUs share, a
// part that each of them has to do, and one for the network if they are on several nodes; f is by
// model of GPU. The same form describes training that grows its batch with its GPUs, where B
// comes from the noise of the gradients. Few observations fix these figures: what was not
// observed is assumed to be nearly perfect, so that it is tried, and the assumption gives way to
// the first observation that contradicts it.
//
// The package is pure and knows no jobs. package place feeds it with the progress that programs
// report, and the policies that choose numbers of GPUs ask it where no speeds were declared.
package scaling

import "slices"

// Observation is the speed of a program on the GPUs that it had.
type Observation struct {
	Kind      string  // model of the GPUs
	TFLOPS      float64 // TFLOPS of one of them, 0 if unknown
	GPUs      int     // of all nodes together
	Nodes     int
	PerSecond float64 // units of work
}

// Model is what is known of the speed of one program. It is made by With and never changed after
// that.
type Model struct {
	Seen []Observation // by time of the last one, the newest last; each allocation once
	// Shared, Own and Network are the seconds that a unit takes on a GPU of the reference model,
	// of which only Shared is divided by the number of GPUs.
	Shared, Own, Network float64
	Kinds                []Kind // models of GPU that were observed, the reference first
}

// Kind is a model of GPU on which the program was observed.
type Kind struct {
	Name   string
	TFLOPS   float64 // TFLOPS, 0 if unknown
	Factor float64 // how many times as long a unit takes as on the reference
}

const (
	// maxSeen bounds what is remembered: of more allocations the oldest is forgotten.
	maxSeen = 32
	// renewal is the weight of a new observation of an allocation beside the earlier ones: a
	// program gets faster and slower as it goes on.
	renewal = 0.7
)

// With returns a model that includes an observation. The model may be nil.
func (m *Model) With(o Observation) *Model {
	if o.GPUs < 1 || !(o.PerSecond > 0) {
		return m
	}

	o.Nodes = max(o.Nodes, 1)
	next := &Model{}
	if m != nil {
		next.Seen = slices.Clone(m.Seen)
	}

	if at := next.find(o.Kind, o.GPUs, o.Nodes); at >= 0 {
		o.PerSecond = renewal*o.PerSecond + (1-renewal)*next.Seen[at].PerSecond
		next.Seen = slices.Delete(next.Seen, at, at+1)
	}

	next.Seen = append(next.Seen, o)
	if len(next.Seen) > maxSeen {
		next.Seen = next.Seen[len(next.Seen)-maxSeen:]
	}

	next.fit()

	return next
}

func (m *Model) find(kind string, gpus, nodes int) int {
	return slices.IndexFunc(m.Seen, func(o Observation) bool {
		return o.Kind == kind && o.GPUs == gpus && o.Nodes == nodes
	})
}

// Observed reports whether the program was observed on such an allocation.
func (m *Model) Observed(kind string, gpus, nodes int) bool { return m != nil && m.find(kind, gpus, nodes) >= 0 }

// MaxGPUs returns the largest number of GPUs that is worth trying: twice the largest that was
// observed, 0 if nothing was. What lies further is too far from any observation.
func (m *Model) MaxGPUs() int {
	if m == nil {
		return 0
	}

	most := 0
	for i := range m.Seen {
		most = max(most, m.Seen[i].GPUs)
	}

	return 2 * most
}

// Rate returns the units of work per second to expect on so many GPUs of a model with so many
// TFLOPS, 0 if nothing was observed. On a model that was not observed, the program is assumed to
// be as fast as its TFLOPS say.
func (m *Model) Rate(kind string, tflops float64, gpus, nodes int) float64 {
	if m == nil || len(m.Seen) == 0 || gpus < 1 {
		return 0
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
