package harvest

import (
	"fmt"
	"math"

	"trainyard/internal/place/knapsack"
	"trainyard/internal/place/lp"
)

// Instance is one decision problem: how many nodes of which kind each job gets.
type Instance struct {
	Nodes []int // of each kind
	Jobs  []Sizes
	Rows  []SideRow
}

// Sizes is the alternatives of one job. A job has nodes of one kind, or none.
type Sizes struct {
	None  float64             // value of having no nodes
	Must  bool                // having no nodes is not allowed
	Kinds [][]knapsack.Choice // by kind; counts of at least 1
}

// SideRow is a condition across jobs: the sum over all jobs of PerNode for each of their nodes,
// plus PerJob for each job that has nodes, is at most the limit.
type SideRow struct {
	Name    string
	PerNode [][]float64 // by job and kind
	PerJob  []float64   // by job, if it has any nodes
	AtMost  float64
}

// Decision is a solution of an instance.
type Decision struct {
	Kind  []int // of each job, -1 if it has no nodes
	Count []int
	Value float64
	Bound float64 // no solution is worth more
	Exact bool    // the value equals Bound
}

// simple reports whether the exact allocator applies: one kind and no side conditions.
func (in *Instance) simple() bool { return len(in.Nodes) == 1 && len(in.Rows) == 0 }

// Decide solves the instance exactly where that is possible, and by search otherwise. It returns
// false if it finds no solution that meets all conditions.
func (in *Instance) Decide(e knapsack.Effort) (Decision, bool) {
	if !in.simple() {
		return in.search(e)
	}

	jobs := make([][]knapsack.Choice, len(in.Jobs))
	for j := range in.Jobs {
		s := &in.Jobs[j]
		if !s.Must {
			jobs[j] = append(jobs[j], knapsack.Choice{Count: 0, Value: s.None})
		}

		jobs[j] = append(jobs[j], s.Kinds[0]...)
	}

	a, ok := knapsack.Allocate(jobs, in.Nodes[0])
	if !ok {
		return Decision{}, false
	}

	d := in.decision()
	for j, p := range a.Picks {
		if c := jobs[j][p]; c.Count > 0 {
			d.Kind[j], d.Count[j] = 0, c.Count
		}
	}

	d.Value, d.Bound, d.Exact = a.Value, a.Value, true

	return d, true
}

// decision returns a decision in which no job has nodes.
func (in *Instance) decision() Decision {
	d := Decision{Kind: make([]int, len(in.Jobs)), Count: make([]int, len(in.Jobs))}
	for j := range d.Kind {
		d.Kind[j] = -1
	}

	return d
}

// search solves the instance with knapsack.Search.
func (in *Instance) search(e knapsack.Effort) (Decision, bool) {
	p := &knapsack.Problem{Jobs: make([][]knapsack.Option, len(in.Jobs))}
	for _, n := range in.Nodes {
		p.Limits = append(p.Limits, float64(n))
	}

	for i := range in.Rows {
		p.Limits = append(p.Limits, in.Rows[i].AtMost)
	}

	at := make([][][2]int, len(in.Jobs)) // kind and count of each option
	for j := range in.Jobs {
		s := &in.Jobs[j]
		if !s.Must {
			p.Jobs[j], at[j] = append(p.Jobs[j], knapsack.Option{Value: s.None}), append(at[j], [2]int{-1, 0})
		}

		for k, choices := range s.Kinds {
			for _, c := range choices {
				if c.Count <= in.Nodes[k] {
					p.Jobs[j], at[j] = append(p.Jobs[j], in.option(j, k, c)), append(at[j], [2]int{k, c.Count})
				}
			}
		}

		if len(p.Jobs[j]) == 0 {
			return Decision{}, false
		}
	}

	f, ok := knapsack.Search(p, e)
	if !ok {
		return Decision{}, false
	}

	d := in.decision()
	for j, pick := range f.Picks {
		d.Kind[j], d.Count[j] = at[j][pick][0], at[j][pick][1]
	}

	d.Value = f.Value
	d.Bound = f.Bound
	d.Exact = f.Value == f.Bound

	return d, true
}

// option converts a choice of a job to an option with its use of the nodes and of the side rows.
func (in *Instance) option(j, k int, c knapsack.Choice) knapsack.Option {
	o := knapsack.Option{Value: c.Value, Uses: []knapsack.Use{{Row: k, Amount: float64(c.Count)}}}
	for i := range in.Rows {
		r := &in.Rows[i]
		if a := r.PerNode[j][k]*float64(c.Count) + r.PerJob[j]; a != 0 {
			o.Uses = append(o.Uses, knapsack.Use{Row: len(in.Nodes) + i, Amount: a})
		}
	}

	return o
}

// Model writes the instance as a linear programme over counts. Each range of a job's choices on
// which its value is linear is a segment: one variable says whether the job's count lies in it,
// another how far in. Each job lies in exactly one segment.
func (in *Instance) Model() *lp.Model {
	m := &lp.Model{}
	limits := make([][]lp.Term, len(in.Nodes)+len(in.Rows))

	for j := range in.Jobs {
		s := &in.Jobs[j]
		var one []lp.Term
		if !s.Must {
			one = append(one, lp.Times(m.Add(lp.Var{Name: fmt.Sprintf("none_%d", j), High: 1, Whole: true,
				Gain: s.None}), 1))
		}

		for k, choices := range s.Kinds {
			for _, g := range segments(choices) {
				z, more := addSegment(m, fmt.Sprintf("_%d_%d_%d", j, k, g.count), g)
				one = append(one, lp.Times(z, 1))

				nodes := []lp.Term{lp.Times(z, float64(g.count))}
				if more >= 0 {
					nodes = append(nodes, lp.Times(more, 1))
				}

				limits[k] = append(limits[k], nodes...)
				for i := range in.Rows {
					limits[len(in.Nodes)+i] = append(limits[len(in.Nodes)+i], in.Rows[i].terms(j, k, z, nodes)...)
				}
			}
		}

		m.AddRow(fmt.Sprintf("one_%d", j), lp.Exactly, 1, one...)
	}

	for k, n := range in.Nodes {
		m.AddRow(fmt.Sprintf("nodes_%d", k), lp.AtMost, float64(n), limits[k]...)
	}

	for i := range in.Rows {
		m.AddRow(fmt.Sprintf("side_%d", i), lp.AtMost, in.Rows[i].AtMost, limits[len(in.Nodes)+i]...)
	}

	return m
}

// terms returns the contribution of a job's segment to the row.
func (r *SideRow) terms(j, k, z int, nodes []lp.Term) []lp.Term {
	var list []lp.Term
	for _, t := range nodes {
		f := t.Factor * r.PerNode[j][k]
		if t.Var == z {
			f += r.PerJob[j]
		}

		if f != 0 {
			list = append(list, lp.Times(t.Var, f))
		}
	}

	return list
}

// addSegment adds the two variables of a segment: whether the job lies in it, and how far in. The
// second is -1 if the segment is a single point.
func addSegment(m *lp.Model, name string, g segment) (z, more int) {
	z = m.Add(lp.Var{Name: "at" + name, High: 1, Whole: true, Gain: g.value})
	if g.length == 0 {
		return z, -1
	}

	more = m.Add(lp.Var{Name: "more" + name, High: float64(g.length), Whole: true, Gain: g.slope})
	m.AddRow("within"+name, lp.AtMost, 0, lp.Times(more, 1), lp.Times(z, -float64(g.length)))

	return z, more
}

// Read turns a solution of the model into a decision.
func (in *Instance) Read(s *lp.Solution) Decision {
	d := in.decision()
	at := 0
	next := func() float64 {
		at++
		return math.Round(s.Values[at-1])
	}

	for j := range in.Jobs {
		if !in.Jobs[j].Must && next() == 1 {
			d.Value += in.Jobs[j].None
		}

		for k, choices := range in.Jobs[j].Kinds {
			for _, g := range segments(choices) {
				here := next() == 1
				more := 0.0
				if g.length > 0 {
					more = next()
				}

				if here {
					d.Kind[j], d.Count[j] = k, g.count+int(more)
					d.Value += g.value + g.slope*more
				}
			}
		}
	}

	d.Bound, d.Exact = d.Value, s.Proven
	if !s.Proven {
		d.Bound = math.Inf(1)
	}

	return d
}

// segment is a range of counts on which the value is linear.
type segment struct {
	count, length int // from count to count+length
	value, slope  float64
}

// segments splits choices, sorted by count, into linear ranges.
func segments(choices []knapsack.Choice) []segment {
	var list []segment
	for i := 0; i < len(choices); {
		g := segment{count: choices[i].Count, value: choices[i].Value}
		for k := i + 1; k < len(choices) && choices[k].Count == choices[k-1].Count+1; k++ {
			rise := choices[k].Value - g.value
			if g.length > 0 && math.Abs(rise-g.slope*float64(g.length+1)) > 1e-9*math.Max(math.Abs(g.value),
				math.Abs(choices[k].Value)) {
				break
			}

			g.length++
			if g.length == 1 {
				g.slope = rise
			}
		}

		list = append(list, g)
		i += g.length + 1
	}

	return list
}
