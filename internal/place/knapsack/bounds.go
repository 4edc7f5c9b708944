package knapsack

import (
	"cmp"
	"math"
	"slices"
)

// segment is a range of nodes with the same gain per node, on the upper concave hull of a job's
// choices.
type segment struct {
	gain  float64
	nodes int
	stage int // the stage that it belongs to
	rung  int // the rung at its end
}

// hull returns the segments of the upper concave hull of a ladder, the steepest first.
func (l *ladder) hull(step int) []segment {
	top := []int{0} // rungs on the hull
	steep := func(a, b int) float64 {
		return (l.rungs[b].value - l.rungs[a].value) / float64(l.rungs[b].count-l.rungs[a].count)
	}
	for i := 1; i < len(l.rungs); i++ {
		for len(top) > 1 && steep(top[len(top)-1], i) >= steep(top[len(top)-2], top[len(top)-1]) {
			top = top[:len(top)-1]
		}

		top = append(top, i)
	}

	list := make([]segment, 0, len(top)-1)
	for i := 1; i < len(top); i++ {
		list = append(list, segment{steep(top[i-1], top[i]), l.rungs[top[i]].count - l.rungs[top[i-1]].count, step,
			top[i]})
	}

	return list
}

// boundRows determines which rows each stage must compute. If the choices are replaced by their
// concave hulls, the best solution is easy to find and worth at least as much. That bounds from
// above what the first jobs with m nodes and the others with the rest can be worth. If the bound is
// below the value of a known solution, row m need not be computed.
func (a *allocator) boundRows() {
	hulls := make([][]segment, len(a.stages))
	for s := range a.stages {
		hulls[s] = a.stages[s].ladder.hull(s)
	}

	known := a.greedyValue(hulls)
	known -= 1e-9 * math.Max(1, math.Abs(known))
	after := make([][]float64, len(a.stages)+1) // upper bound of the value of the stages from s on
	rest := newHull(a.nodes)
	after[len(a.stages)] = rest.values()
	for s := len(a.stages) - 1; s >= 0; s-- {
		rest.add(hulls[s])
		after[s] = rest.values()
	}

	done := newHull(a.nodes)

	low := 0
	for s := range a.stages {
		done.add(hulls[s])
		st := &a.stages[s]
		st.low, st.high = a.feasibleRows(done, after[s+1], known-a.base(), low)
		low = st.low
	}

	for s := len(a.stages) - 2; s >= 0; s-- {
		a.stages[s].high = max(a.stages[s].low, min(a.stages[s].high, a.stages[s+1].high))
	}
}

// base returns the value of all stages with their smallest choices.
func (a *allocator) base() float64 {
	v := 0.0
	for s := range a.stages {
		v += a.stages[s].ladder.rungs[0].value
	}

	return v
}

// feasibleRows returns the first and last row in which the bound reaches the known value. The bound
// is concave in the row, so the rows between them form an interval.
func (a *allocator) feasibleRows(done *hull, after []float64, known float64, from int) (low, high int) {
	before := done.values()
	low, high = a.nodes, from
	for m := from; m <= a.nodes; m++ {
		if before[m]+after[a.nodes-m] >= known {
			low, high = min(low, m), m
		}
	}

	if low > high { // impossible except by rounding; then all rows are computed
		return from, a.nodes
	}

	return low, high
}

// greedyValue returns the value of a simple feasible solution: whole segments of the hulls, the
// steepest first, as long as they fit, and then the choices with the largest gain for the nodes
// that remain.
func (a *allocator) greedyValue(hulls [][]segment) float64 {
	all := slices.Concat(hulls...)
	slices.SortStableFunc(all, func(x, y segment) int { return cmp.Compare(y.gain, x.gain) })
	at := make([]int, len(a.stages))
	left := a.nodes

	stuck := make([]bool, len(a.stages))
	for _, h := range all {
		stuck[h.stage] = stuck[h.stage] || h.nodes > left
		if !stuck[h.stage] {
			left -= h.nodes
			at[h.stage] = h.rung
		}
	}

	for {
		step, rung, most := -1, 0, 0.0
		for s := range a.stages {
			r := a.stages[s].ladder.rungs
			for i := at[s] + 1; i < len(r) && r[i].count-r[at[s]].count <= left; i++ {
				if more := r[i].value - r[at[s]].value; more > most {
					step, rung, most = s, i, more
				}
			}
		}

		if step < 0 {
			break
		}

		r := a.stages[step].ladder.rungs
		left -= r[rung].count - r[at[step]].count
		at[step] = rung
	}

	value := 0.0
	for s, i := range at {
		value += a.stages[s].ladder.rungs[i].value
	}

	return value
}

// hull is the merged concave hull of several jobs: the gain over their smallest choices by number
// of nodes.
type hull struct {
	slopes []segment // the steepest first
	nodes  int
}

func newHull(nodes int) *hull { return &hull{nodes: nodes} }

// add merges in the segments of another job.
func (l *hull) add(more []segment) {
	merged := make([]segment, 0, len(l.slopes)+len(more))
	i := 0
	for _, h := range more {
		for i < len(l.slopes) && l.slopes[i].gain >= h.gain {
			merged = append(merged, l.slopes[i])
			i++
		}

		merged = append(merged, h)
	}

	l.slopes = append(merged, l.slopes[i:]...)
}

// values returns the gain of m nodes, for every m.
func (l *hull) values() []float64 {
	list := make([]float64, l.nodes+1)
	m := 0
	for _, h := range l.slopes {
		for k := 0; k < h.nodes && m < l.nodes; k++ {
			list[m+1] = list[m] + h.gain
			m++
		}
	}

	for ; m < l.nodes; m++ {
		list[m+1] = list[m]
	}

	return list
}
