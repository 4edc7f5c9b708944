// Package pipeline estimates when jobs that depend on each other will finish, by Monte Carlo simulation: it samples
// their forecasts many times and takes quantiles of the results. The server shows that for a job file of several
// jobs. It makes no forecasts itself.
package pipeline

import (
	"math"
	"math/rand/v2"
	"slices"

	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// numDraws is the number of samples. The coverage of the interval is then off by about one percentage point.
const numDraws = 512

// Node is a job of a pipeline.
type Node struct {
	Job      id.Job
	Needs    []id.Job      // jobs that must have ended; those that are no nodes have
	Forecast *job.Forecast // nil if it has ended
}

// Span is when a job of a pipeline will have ended.
type Span struct {
	Job id.Job
	// End is in seconds from the forecasts: the 10 %, 50 % and 90 % quantiles.
	End job.Band
	// Path is the critical path, in order of time: the job, the dependency that most often ends last, and so on.
	Path []id.Job
	// Unknown is the first job on the way of which nothing is known; "" if all are.
	Unknown id.Job
}

// Simulate returns when each job finishes, in the order of the nodes. A job's wait begins when all its dependencies
// have
// finished. It returns an error if the dependencies form a cycle.
func Simulate(nodes []Node, seed uint64) ([]Span, error) {
	p := simulation{
		nodes:    nodes,
		at:       map[id.Job]int{},
		ends:     make([][]float64, len(nodes)),
		lastNeed: make([][]int, len(nodes)),
		spans:    make([]Span, len(nodes)),
	}

	for i := range nodes {
		p.at[nodes[i].Job] = i
	}

	order, err := p.order()
	if err != nil {
		return nil, err
	}

	for _, i := range order {
		p.simulate(i, rand.New(rand.NewPCG(seed, uint64(i))))
	}

	return p.spans, nil
}

// simulation is a pipeline being simulated.
type simulation struct {
	nodes    []Node
	at       map[id.Job]int
	ends     [][]float64 // of each node, in every draw
	lastNeed [][]int     // of each node: how often each of its needs ended last
	spans    []Span
}

// order returns the nodes so that each comes after what it needs.
func (p *simulation) order() ([]int, error) {
	var order []int
	state := make([]int, len(p.nodes)) // 1 while its needs are looked at, 2 after that
	var visit func(i int) error
	visit = func(i int) error {
		switch state[i] {
		case 1:
			return fault.New(fault.Invalid, "needs_circle", "job %s depends on itself through other jobs", p.nodes[i].Job)
		case 2:
			return nil
		}

		state[i] = 1

		for _, need := range p.nodes[i].Needs {
			if n, ok := p.at[need]; ok {
				if err := visit(n); err != nil {
					return err
				}
			}
		}

		state[i] = 2
		order = append(order, i)

		return nil
	}

	for i := range p.nodes {
		if err := visit(i); err != nil {
			return nil, err
		}
	}

	return order, nil
}

// simulate draws the ends of a node whose dependencies have been simulated.
func (p *simulation) simulate(i int, rng *rand.Rand) {
	n := &p.nodes[i]
	s := &p.spans[i]
	s.Job = n.Job
	p.ends[i], p.lastNeed[i] = make([]float64, numDraws), make([]int, len(n.Needs))

	if n.Forecast == nil {
		s.Path = []id.Job{n.Job}
		return
	}

	if n.Forecast.Basis == job.BasisNone {
		s.Unknown = n.Job
	}

	for d := range numDraws {
		ready, last := 0.0, -1
		for k, need := range n.Needs {
			if at, ok := p.at[need]; ok && p.ends[at][d] > ready {
				ready, last = p.ends[at][d], k
			}
		}

		if last >= 0 {
			p.lastNeed[i][last]++
		}

		p.ends[i][d] = ready + draw(n.Forecast.Wait, rng) + draw(n.Forecast.Remaining, rng)
	}

	p.summarize(i)
}

// summarize works out the band and the path of a node.
func (p *simulation) summarize(i int) {
	n, s := &p.nodes[i], &p.spans[i]
	for _, need := range n.Needs {
		if at, ok := p.at[need]; ok && s.Unknown == "" {
			s.Unknown = p.spans[at].Unknown
		}
	}

	most := -1
	for k, times := range p.lastNeed[i] {
		if times > 0 && (most < 0 || times > p.lastNeed[i][most]) {
			most = k
		}
	}

	if most >= 0 {
		s.Path = slices.Clone(p.spans[p.at[n.Needs[most]]].Path)
	}

	s.Path = append(s.Path, n.Job)
	if s.Unknown == "" {
		sorted := slices.Sorted(slices.Values(p.ends[i]))
		s.End = job.Band{Low: sorted[numDraws/10], Mid: sorted[numDraws/2], High: sorted[numDraws-1-numDraws/10]}
	}
}

// z90 is the 90 % quantile of the standard normal distribution.
const z90 = 1.2815515655446004

// draw samples an amount from the distribution that a band stands for: a two-piece log-normal, or normal below the
// median
// if the low end is zero.
func draw(b job.Band, rng *rand.Rand) float64 {
	z := rng.NormFloat64() / z90
	switch {
	case b.Mid <= 0:
		// Nothing is expected, something may come.
		return max(0, b.High*z)
	case z >= 0:
		return b.Mid * math.Pow(max(b.High, b.Mid)/b.Mid, z)
	case b.Low <= 0:
		return max(0, b.Mid*(1+z))
	}

	return b.Mid * math.Pow(b.Mid/min(b.Low, b.Mid), z)
}
