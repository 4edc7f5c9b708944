package harvest

import (
	"fmt"
	"math"
)

// Instance is one decision: how many nodes of which kind each job shall have.
type Instance struct {
	Nodes []int // of each kind
	Jobs  []Sizes
	Rows  []SideRow
}

// Sizes is what a job could have. It has nodes of one kind, or nothing.
type Sizes struct {
	None  float64    // what having nothing is worth
	Must  bool       // having nothing is not allowed
	Kinds [][]Choice // by kind; counts of at least 1
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
func (in *Instance) Decide(e Effort) (Decision, bool) {
	if !in.simple() {
		return in.search(e)
	}
	jobs := make([][]Choice, len(in.Jobs))
	for j := range in.Jobs {
		s := &in.Jobs[j]
		if !s.Must {
			jobs[j] = append(jobs[j], Choice{0, s.None})
		}
		jobs[j] = append(jobs[j], s.Kinds[0]...)
	}
	a, ok := Allocate(jobs, in.Nodes[0])
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
func (in *Instance) search(e Effort) (Decision, bool) {
	p := &Problem{Jobs: make([][]Option, len(in.Jobs))}
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
			p.Jobs[j], at[j] = append(p.Jobs[j], Option{Value: s.None}), append(at[j], [2]int{-1, 0})
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
	f, ok := Search(p, e)
	if !ok {
		return Decision{}, false
	}
	d := in.decision()
	for j, pick := range f.Picks {
		d.Kind[j], d.Count[j] = at[j][pick][0], at[j][pick][1]
	}
	d.Value, d.Bound, d.Exact = f.Value, f.Bound, f.Value == f.Bound
	return d, true
}

// option is a job's choice with what it draws of the nodes and the side rows.
func (in *Instance) option(j, k int, c Choice) Option {
	o := Option{Value: c.Value, Uses: []Use{{Row: k, Amount: float64(c.Count)}}}
	for i := range in.Rows {
		r := &in.Rows[i]
		if a := r.PerNode[j][k]*float64(c.Count) + r.PerJob[j]; a != 0 {
			o.Uses = append(o.Uses, Use{Row: len(in.Nodes) + i, Amount: a})
		}
	}
	return o
}

// Model writes the instance as a linear programme over counts. Each stretch of a
// job's choices on which its value runs straight is a segment: one variable says
// whether the job's count lies there, another how far in. A job lies in exactly one.
func (in *Instance) Model() *Model {
	m := &Model{}
	limits := make([][]Term, len(in.Nodes)+len(in.Rows))
	for j := range in.Jobs {
		s := &in.Jobs[j]
		var one []Term
		if !s.Must {
			one = append(one, Term{m.add(Var{Name: fmt.Sprintf("none_%d", j), High: 1, Whole: true, Gain: s.None}), 1})
		}
		for k, choices := range s.Kinds {
			for _, g := range segments(choices) {
				z, more := m.segment(fmt.Sprintf("_%d_%d_%d", j, k, g.count), g)
				one = append(one, Term{z, 1})
				nodes := []Term{{z, float64(g.count)}}
				if more >= 0 {
					nodes = append(nodes, Term{more, 1})
				}
				limits[k] = append(limits[k], nodes...)
				for i := range in.Rows {
					limits[len(in.Nodes)+i] = append(limits[len(in.Nodes)+i], in.Rows[i].terms(j, k, z, nodes)...)
				}
			}
		}
		m.row(fmt.Sprintf("one_%d", j), Exactly, 1, one...)
	}
	for k, n := range in.Nodes {
		m.row(fmt.Sprintf("nodes_%d", k), AtMost, float64(n), limits[k]...)
	}
	for i := range in.Rows {
		m.row(fmt.Sprintf("side_%d", i), AtMost, in.Rows[i].AtMost, limits[len(in.Nodes)+i]...)
	}
	return m
}

// terms returns what a job's segment adds to the row.
func (r *SideRow) terms(j, k, z int, nodes []Term) []Term {
	var list []Term
	for _, t := range nodes {
		f := t.Factor * r.PerNode[j][k]
		if t.Var == z {
			f += r.PerJob[j]
		}
		if f != 0 {
			list = append(list, Term{t.Var, f})
		}
	}
	return list
}

// segment adds the variables of a segment: is the job there, and how far in. The
// second is -1 for a single point.
func (m *Model) segment(name string, g segment) (z, more int) {
	z = m.add(Var{Name: "at" + name, High: 1, Whole: true, Gain: g.value})
	if g.length == 0 {
		return z, -1
	}
	more = m.add(Var{Name: "more" + name, High: float64(g.length), Whole: true, Gain: g.slope})
	m.row("within"+name, AtMost, 0, Term{more, 1}, Term{z, -float64(g.length)})
	return z, more
}

// Read turns a solution of the model into a decision.
func (in *Instance) Read(s *Solution) Decision {
	d := in.decision()
	at := 0
	next := func() float64 { at++; return math.Round(s.Values[at-1]) }
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
func segments(choices []Choice) []segment {
	var list []segment
	for i := 0; i < len(choices); {
		g := segment{count: choices[i].Count, value: choices[i].Value}
		for k := i + 1; k < len(choices) && choices[k].Count == choices[k-1].Count+1; k++ {
			rise := choices[k].Value - g.value
			if g.length > 0 && math.Abs(rise-g.slope*float64(g.length+1)) > 1e-9*math.Max(math.Abs(g.value), math.Abs(choices[k].Value)) {
				break
			}
			if g.length++; g.length == 1 {
				g.slope = rise
			}
		}
		list = append(list, g)
		i += g.length + 1
	}
	return list
}
