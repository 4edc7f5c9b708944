package harvest

import "fmt"

// NodeJob is a job of the published programme, which decides node by node.
type NodeJob struct {
	Holds       []bool // by node: it is the job's now
	Least, Most int
	Points      []Choice // number of nodes and units per second there, from 0 on; straight lines between
	Up, Down    float64  // seconds that growing and shrinking cost
}

// rate returns the units per second on so many nodes.
func (j *NodeJob) rate(n int) float64 {
	for i := 1; i < len(j.Points); i++ {
		if a, b := j.Points[i-1], j.Points[i]; n <= b.Count {
			return a.Value + (b.Value-a.Value)*float64(n-a.Count)/float64(b.Count-a.Count)
		}
	}
	return j.Points[len(j.Points)-1].Value
}

// now returns how many nodes the job holds and how fast it is there.
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

// NodeInstance is a decision as the published programme (FreeTrain) puts it.
type NodeInstance struct {
	Nodes     int
	Jobs      []NodeJob
	LookAhead float64 // seconds
	// BigM is the constant that switches conditions off. The published value, Nodes+1,
	// is too small: with it no job may gain or lose more than half of the nodes at
	// once. 0 stands for what is needed, twice that.
	BigM float64
}

// Counts is the same decision over counts: nodes are alike, and whatever counts are
// chosen can be reached without moving a job from one node to another.
func (in *NodeInstance) Counts() *Instance {
	out := &Instance{Nodes: []int{in.Nodes}}
	for i := range in.Jobs {
		j := &in.Jobs[i]
		held, rate := j.now()
		s := Sizes{Kinds: make([][]Choice, 1)}
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
			s.Kinds[0] = append(s.Kinds[0], Choice{n, worth(n)})
		}
		out.Jobs = append(out.Jobs, s)
	}
	return out
}

// Model writes the published programme: a variable for each job and node, one for
// whether that changes, and for each job either only gains or only losses. Its
// special ordered sets are written with a variable for each segment, which every
// solver takes.
func (in *NodeInstance) Model() *Model {
	m := &Model{}
	big := in.BigM
	if big == 0 {
		big = 2 * float64(in.Nodes+1)
	}
	shared := make([][]Term, in.Nodes)
	for i := range in.Jobs {
		in.job(m, i, big, shared)
	}
	for n, terms := range shared {
		m.row(fmt.Sprintf("node_%d", n), AtMost, 1, terms...)
	}
	return m
}

// job adds the variables and rows of one job.
func (in *NodeInstance) job(m *Model, i int, big float64, shared [][]Term) {
	j := &in.Jobs[i]
	held, rate := j.now()
	name := func(what string) string { return fmt.Sprintf("%s_%d", what, i) }
	var count, changed []Term
	for n := range in.Nodes {
		x := m.add(Var{Name: fmt.Sprintf("x_%d_%d", i, n), High: 1, Whole: true})
		y := m.add(Var{Name: fmt.Sprintf("y_%d_%d", i, n), High: 1, Whole: true})
		shared[n] = append(shared[n], Term{x, 1})
		count, changed = append(count, Term{x, 1}), append(changed, Term{y, 1})
		has := 0.0
		if n < len(j.Holds) && j.Holds[n] {
			has = 1
		}
		// y is whether x differs from what is held.
		m.row("differs", AtLeast, -has, Term{y, 1}, Term{x, -1})
		m.row("differs", AtLeast, has, Term{y, 1}, Term{x, 1})
		m.row("same", AtMost, has, Term{y, 1}, Term{x, -1})
		m.row("same", AtMost, 2-has, Term{y, 1}, Term{x, 1})
	}
	runs := m.add(Var{Name: name("runs"), High: 1, Whole: true})
	m.row(name("least"), AtLeast, 0, plus(count, Term{runs, -float64(j.Least)})...)
	m.row(name("most"), AtMost, 0, plus(count, Term{runs, -float64(j.Most)})...)
	// Either every change is a gain, or every one a loss.
	loses := m.add(Var{Name: name("loses"), High: 1, Whole: true})
	m.row(name("gains"), AtMost, -float64(held), plus(minus(changed, count), Term{loses, -big})...)
	m.row(name("losses"), AtMost, float64(held)+big, plus(plus(changed, count...), Term{loses, big})...)
	up := m.add(Var{Name: name("up"), High: 1, Whole: true, Gain: -rate * j.Up})
	down := m.add(Var{Name: name("down"), High: 1, Whole: true, Gain: -rate * j.Down})
	m.row(name("grows"), AtMost, float64(held), plus(count, Term{up, -big})...)
	m.row(name("shrinks"), AtMost, -float64(held), plus(minus(nil, count), Term{down, -big})...)
	in.curve(m, i, count)
}

// curve ties a job's gain to its count: a point of the curve is a mix of two
// neighbouring measured ones.
func (in *NodeInstance) curve(m *Model, i int, count []Term) {
	j := &in.Jobs[i]
	var all, segs []Term
	weights := make([]int, len(j.Points))
	sum := minus(nil, count)
	for p, point := range j.Points {
		weights[p] = m.add(Var{Name: fmt.Sprintf("w_%d_%d", i, p), High: 1, Gain: in.LookAhead * point.Value})
		all = append(all, Term{weights[p], 1})
		sum = append(sum, Term{weights[p], float64(point.Count)})
	}
	m.row(fmt.Sprintf("mix_%d", i), Exactly, 1, all...)
	m.row(fmt.Sprintf("count_%d", i), Exactly, 0, sum...)
	for p := 1; p < len(j.Points); p++ {
		segs = append(segs, Term{m.add(Var{Name: fmt.Sprintf("s_%d_%d", i, p), High: 1, Whole: true}), 1})
	}
	m.row(fmt.Sprintf("segment_%d", i), Exactly, 1, segs...)
	for p := range weights {
		near := []Term{{weights[p], 1}}
		if p > 0 {
			near = append(near, Term{segs[p-1].Var, -1})
		}
		if p < len(segs) {
			near = append(near, Term{segs[p].Var, -1})
		}
		m.row(fmt.Sprintf("near_%d_%d", i, p), AtMost, 0, near...)
	}
}

// plus returns terms with more of them, and leaves the first alone.
func plus(terms []Term, more ...Term) []Term {
	return append(terms[:len(terms):len(terms)], more...)
}

// minus returns terms with others taken off.
func minus(terms, less []Term) []Term {
	out := plus(terms)
	for _, t := range less {
		out = append(out, Term{t.Var, -t.Factor})
	}
	return out
}
