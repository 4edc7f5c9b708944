package harvest

import (
	"fmt"

	"trainyard/internal/place/knapsack"
	"trainyard/internal/place/lp"
)

// NodeJob is a job of the published programme, which decides node by node.
type NodeJob struct {
	Holds       []bool // by node: the job holds it now
	Least, Most int
	Points      []knapsack.Choice // number of nodes and units per second, starting at 0 nodes; linear between points
	Up, Down    float64           // cost of growing and shrinking, in seconds
}

// rate returns the units per second on a number of nodes.
func (j *NodeJob) rate(n int) float64 {
	for i := 1; i < len(j.Points); i++ {
		if a, b := j.Points[i-1], j.Points[i]; n <= b.Count {
			return a.Value + (b.Value-a.Value)*float64(n-a.Count)/float64(b.Count-a.Count)
		}
	}

	return j.Points[len(j.Points)-1].Value
}

// now returns how many nodes the job holds and its rate there.
func (j *NodeJob) now() (int, float64) {
	n := 0
	for _, h := range j.Holds {
		if h {
			n++
		}
	}

	if n < j.Least {
		return n, 0
	}

	return n, j.rate(n)
}

// NodeInstance is a decision in the form of the published programme (FreeTrain).
type NodeInstance struct {
	Nodes     int
	Jobs      []NodeJob
	LookAhead float64 // seconds
	// BigM is the constant that disables conditions. The published value, Nodes+1, is too small:
	// with it no job may gain or lose more than half of the nodes at once. 0 means twice that
	// value, which is enough.
	BigM float64
}

// Counts returns the same decision over counts. Nodes are interchangeable, and any counts can be
// reached without moving a job from one node to another.
func (in *NodeInstance) Counts() *Instance {
	out := &Instance{Nodes: []int{in.Nodes}}

	for i := range in.Jobs {
		j := &in.Jobs[i]
		held, rate := j.now()
		s := Sizes{Kinds: make([][]knapsack.Choice, 1)}

		worth := func(n int) float64 {
			v := 0.0
			if n > 0 {
				v = in.LookAhead * j.rate(n)
			}

			switch {
			case n > held:
				return v - rate*j.Up
			case n < held:
				return v - rate*j.Down
			}

			return v
		}

		s.None = worth(0)
		for n := j.Least; n <= min(j.Most, in.Nodes); n++ {
			s.Kinds[0] = append(s.Kinds[0], knapsack.Choice{Count: n, Value: worth(n)})
		}

		out.Jobs = append(out.Jobs, s)
	}

	return out
}

// Model writes the published programme: a variable for each job and node, one for whether it
// changes, and for each job either only gains or only losses of nodes. Its special ordered sets are
// written with one variable per segment, which every solver accepts.
func (in *NodeInstance) Model() *lp.Model {
	m := &lp.Model{}
	big := in.BigM
	if big == 0 {
		big = 2 * float64(in.Nodes+1)
	}

	shared := make([][]lp.Term, in.Nodes)
	for i := range in.Jobs {
		in.job(m, i, big, shared)
	}

	for n, terms := range shared {
		m.AddRow(fmt.Sprintf("node_%d", n), lp.AtMost, 1, terms...)
	}

	return m
}

// job adds the variables and rows of one job.
func (in *NodeInstance) job(m *lp.Model, i int, big float64, shared [][]lp.Term) {
	j := &in.Jobs[i]
	held, rate := j.now()
	name := func(what string) string { return fmt.Sprintf("%s_%d", what, i) }
	var count, changed []lp.Term

	for n := range in.Nodes {
		x := m.Add(lp.Var{Name: fmt.Sprintf("x_%d_%d", i, n), High: 1, Whole: true})
		y := m.Add(lp.Var{Name: fmt.Sprintf("y_%d_%d", i, n), High: 1, Whole: true})
		shared[n] = append(shared[n], lp.Times(x, 1))
		count, changed = append(count, lp.Times(x, 1)), append(changed, lp.Times(y, 1))

		has := 0.0
		if n < len(j.Holds) && j.Holds[n] {
			has = 1
		}

		// y is 1 if x differs from the present state.
		m.AddRow("differs", lp.AtLeast, -has, lp.Times(y, 1), lp.Times(x, -1))
		m.AddRow("differs", lp.AtLeast, has, lp.Times(y, 1), lp.Times(x, 1))
		m.AddRow("same", lp.AtMost, has, lp.Times(y, 1), lp.Times(x, -1))
		m.AddRow("same", lp.AtMost, 2-has, lp.Times(y, 1), lp.Times(x, 1))
	}

	runs := m.Add(lp.Var{Name: name("runs"), High: 1, Whole: true})
	m.AddRow(name("least"), lp.AtLeast, 0, plus(count, lp.Times(runs, -float64(j.Least)))...)
	m.AddRow(name("most"), lp.AtMost, 0, plus(count, lp.Times(runs, -float64(j.Most)))...)

	// A job either only gains nodes or only loses nodes.
	loses := m.Add(lp.Var{Name: name("loses"), High: 1, Whole: true})
	m.AddRow(name("gains"), lp.AtMost, -float64(held), plus(minus(changed, count), lp.Times(loses, -big))...)
	m.AddRow(name("losses"), lp.AtMost, float64(held)+big, plus(plus(changed, count...), lp.Times(loses, big))...)
	up := m.Add(lp.Var{Name: name("up"), High: 1, Whole: true, Gain: -rate * j.Up})
	down := m.Add(lp.Var{Name: name("down"), High: 1, Whole: true, Gain: -rate * j.Down})
	m.AddRow(name("grows"), lp.AtMost, float64(held), plus(count, lp.Times(up, -big))...)
	m.AddRow(name("shrinks"), lp.AtMost, -float64(held), plus(minus(nil, count), lp.Times(down, -big))...)
	in.curve(m, i, count)
}

// curve ties the gain of a job to its count: a point of the curve is a mix of two adjacent measured
// points.
func (in *NodeInstance) curve(m *lp.Model, i int, count []lp.Term) {
	j := &in.Jobs[i]
	var all, segs []lp.Term
	weights := make([]int, len(j.Points))

	sum := minus(nil, count)
	for p, point := range j.Points {
		weights[p] = m.Add(lp.Var{Name: fmt.Sprintf("w_%d_%d", i, p), High: 1, Gain: in.LookAhead * point.Value})
		all = append(all, lp.Times(weights[p], 1))
		sum = append(sum, lp.Times(weights[p], float64(point.Count)))
	}

	m.AddRow(fmt.Sprintf("mix_%d", i), lp.Exactly, 1, all...)
	m.AddRow(fmt.Sprintf("count_%d", i), lp.Exactly, 0, sum...)

	for p := 1; p < len(j.Points); p++ {
		segs = append(segs, lp.Times(m.Add(lp.Var{Name: fmt.Sprintf("s_%d_%d", i, p), High: 1, Whole: true}), 1))
	}

	m.AddRow(fmt.Sprintf("segment_%d", i), lp.Exactly, 1, segs...)

	for p := range weights {
		near := []lp.Term{lp.Times(weights[p], 1)}
		if p > 0 {
			near = append(near, lp.Times(segs[p-1].Var, -1))
		}

		if p < len(segs) {
			near = append(near, lp.Times(segs[p].Var, -1))
		}

		m.AddRow(fmt.Sprintf("near_%d_%d", i, p), lp.AtMost, 0, near...)
	}
}

// plus returns a new list with more terms; the first list is not changed.
func plus(terms []lp.Term, more ...lp.Term) []lp.Term {
	return append(terms[:len(terms):len(terms)], more...)
}

// minus returns terms minus the terms of less.
func minus(terms, less []lp.Term) []lp.Term {
	out := plus(terms)
	for _, t := range less {
		out = append(out, lp.Times(t.Var, -t.Factor))
	}

	return out
}
