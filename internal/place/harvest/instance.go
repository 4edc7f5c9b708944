package harvest

import (
	"fmt"
	"math"

	"trainyard/internal/place/knapsack"
	"trainyard/internal/place/lp"
)

// Instance is one decision: how many nodes of which kind each job shall have.
type Instance struct {
	Nodes []int // of each kind
	Jobs  []Sizes
	Rows  []SideRow
}

// Sizes is what a job could have. It has nodes of one kind, or nothing.
type Sizes struct {
	None  float64             // what having nothing is worth
	Must  bool                // having nothing is not allowed
	Kinds [][]knapsack.Choice // by kind; counts of at least 1
}

// SideRow is a condition across jobs: for all together, what each of their nodes
// and each of them counts for is at most so much.
type SideRow struct {
	Name    string
	PerNode [][]float64 // by job and kind
	PerJob  []float64   // by job that has any nodes
	AtMost  float64
}

// Decision is an answer to an instance.
type Decision struct {
	Kind  []int // of each job, -1 if it has nothing
	Count []int
	Value float64
	Bound float64 // nothing is worth more
	Exact bool    // Bound is Value
}

// simple reports whether the exact allocator can decide: one kind, no further conditions.
func (in *Instance) simple() bool { return len(in.Nodes) == 1 && len(in.Rows) == 0 }

// Decide answers by the exact allocator where that is possible, and by search otherwise.
// It is false if it finds no answer that keeps to everything.
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

// decision returns a decision in which nobody has anything.
func (in *Instance) decision() Decision {
	d := Decision{Kind: make([]int, len(in.Jobs)), Count: make([]int, len(in.Jobs))}
	for j := range d.Kind {
		d.Kind[j] = -1
	}

	return d
}

// search answers by prices and neighbourhoods.
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

// option is a job's choice with what it draws of the nodes and the side rows.
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

// Model writes the instance as a linear programme over counts. Each stretch of a
// job's choices on which its value runs straight is a segment: one variable says
// whether the job's count lies there, another how far in. A job lies in exactly one.
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

// terms returns what a job's segment adds to the row.
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

// addSegment adds the variables of a segment: is the job there, and how far in. The
// second is -1 for a single point.
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

// segment is a stretch of counts on which the value runs straight.
type segment struct {
	count, length int // from count to count+length
	value, slope  float64
}

// segments splits choices, which rise by their counts, into straight stretches.
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
