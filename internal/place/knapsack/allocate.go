// Package knapsack chooses one option for each of many jobs so that all together fit and are
// worth most: the multiple-choice knapsack problem. Policy harvest decides with it how many
// nodes each job gets. It knows nothing of jobs beyond their options, and does no I/O.
//
// # Allocate: one resource, exact
//
// Allocate solves the problem for nodes of one kind by dynamic programming: best(j, m) = max
// over the choices of job j of best(j-1, m-count) + value. Each shortcut keeps it exact:
//
//   - A choice that needs more nodes and is worth no more than another is dropped: replacing
//     it by the other keeps every solution feasible and makes none worse.
//   - Jobs whose gains only fall (concave values) are merged into one, each node going to the
//     job to which it brings most: for concave functions the greedy distribution is optimal
//     for every number of nodes.
//   - Within a concave run of choices g, the matrix before[k] + g(m-k) is inverse Monge, so
//     the best k does not fall as m grows, and the rows are found by divide and conquer.
//   - Rows that no optimal solution passes through are not computed. The upper concave hull
//     of a job's values is at least its values, so the merged hulls of the first jobs with m
//     nodes and of the others with the rest bound from above every solution that gives the
//     first jobs m nodes. If that is less than what a feasible solution is known to be
//     worth, m cannot be part of an optimum. The bound is concave in m, so the rows that
//     remain are an interval.
//
// # Search: several resources, a solution and a bound
//
// With several kinds of nodes or side conditions, Search returns a feasible solution and a
// bound that no solution exceeds. For prices p >= 0 of the rows, and any choice x that fits,
//
//	value(x) <= value(x) + p·(limits - use(x)) <= sum over jobs of max(value - p·use) + p·limits
//
// because what is left of each row is not negative. The right side needs no search, and the
// smallest one seen while the prices are adjusted (a subgradient method) is the bound; it
// holds whenever the search is stopped.
//
// The solution is then improved by branch and bound over a few jobs at a time, while the
// others stay. A branch is cut only if it cannot contain a better solution of that
// neighbourhood: if its value and the greatest values of the jobs still open are no more than
// the best known; if, by the inequality above for the open jobs and the slack that is left,
// they are not; or if a row is overdrawn by more than the open jobs could release. So no
// neighbourhood is left with something better in it, among the options that are listed for
// each job. Which neighbourhoods are tried is random (with a fixed seed), so the solution
// need not be optimal: optimal <= Bound is what is proven, and Value is within Bound of it.
// Comparisons allow for rounding errors of about 1e-9.
package knapsack

import (
	"cmp"
	"math"
	"slices"
)

// Choice is a number of nodes that a job could have, and the value of that.
type Choice struct {
	Count int
	Value float64
}

// Allocation is one choice for each job.
type Allocation struct {
	Picks []int   // index of the choice of each job
	Value float64 // total value
}

// Allocate selects one choice for each job, so that the total number of nodes is at most nodes and
// the total value is largest. It is exact for any values. It returns false if even the smallest
// counts do not fit.
//
// The package comment explains the method and why it is exact.
func Allocate(jobs [][]Choice, nodes int) (Allocation, bool) {
	a := &allocator{jobs: make([]ladder, len(jobs)), nodes: nodes}
	for i, choices := range jobs {
		if len(choices) == 0 {
			return Allocation{}, false
		}

		a.jobs[i] = newLadder(choices)
		a.nodes -= a.jobs[i].base
	}

	if a.nodes < 0 {
		return Allocation{}, false
	}

	picks := a.solve()

	out := Allocation{Picks: make([]int, len(jobs))}
	for i, p := range picks {
		rung := &a.jobs[i].rungs[p]
		out.Picks[i] = rung.at
		out.Value += rung.value
	}

	return out, true
}

// ladder is the useful choices of a job: counts and values both rise strictly from rung to rung.
type ladder struct {
	base  int // count of the smallest choice; rungs count from there
	rungs []rung
	runs  [][2]int // runs of rungs, first and last, with consecutive counts and falling gains
}

type rung struct {
	count int
	value float64
	at    int // index of the choice
}

func newLadder(choices []Choice) ladder {
	all := make([]rung, len(choices))
	for i, c := range choices {
		all[i] = rung{c.Count, c.Value, i}
	}

	slices.SortStableFunc(all, func(a, b rung) int {
		return cmp.Or(cmp.Compare(a.count, b.count), cmp.Compare(b.value, a.value))
	})
	l := ladder{base: all[0].count, rungs: all[:1]}
	for _, r := range all[1:] {
		if r.value > l.rungs[len(l.rungs)-1].value {
			l.rungs = append(l.rungs, r)
		}
	}

	for i := range l.rungs {
		l.rungs[i].count -= l.base
	}

	return l
}

// max returns the count of the largest useful choice.
func (l *ladder) max() int { return l.rungs[len(l.rungs)-1].count }

// splitRuns splits the rungs into concave runs. A single rung is a run of its own.
func (l *ladder) splitRuns() {
	l.runs = l.runs[:0]
	first := 0
	for i := 1; i <= len(l.rungs); i++ {
		if i < len(l.rungs) && l.rungs[i].count == l.rungs[i-1].count+1 &&
			(i == first+1 || l.gain(i) <= l.gain(i-1)) {
			continue
		}

		l.runs = append(l.runs, [2]int{first, i - 1})
		first = i
	}
}

func (l *ladder) gain(i int) float64 { return l.rungs[i].value - l.rungs[i-1].value }

// concave reports whether the gains fall over all rungs.
func (l *ladder) concave() bool { return len(l.runs) == 1 }

type allocator struct {
	jobs   []ladder
	nodes  int
	stages []stage
}

// stage is one step of the dynamic programme: one job, or all concave jobs merged into one.
type stage struct {
	ladder *ladder
	job    int     // -1 for the merged jobs
	chosen []int32 // chosen rung by number of nodes, starting at low
	low    int     // rows below are never needed
	high   int     // rows above equal this one
}

// solve returns the index of the chosen rung of each job.
func (a *allocator) solve() []int {
	picks := make([]int, len(a.jobs))
	total := 0
	for i := range a.jobs {
		picks[i] = len(a.jobs[i].rungs) - 1
		total += a.jobs[i].max()
	}

	if total <= a.nodes { // every job can have its largest choice
		return picks
	}

	a.scale()
	var merged []unit

	for i := range a.jobs {
		l := &a.jobs[i]
		if len(l.rungs) == 1 {
			continue
		}

		l.splitRuns()

		if l.concave() {
			for k := 1; k < len(l.rungs); k++ {
				merged = append(merged, unit{i, l.gain(k)})
			}

			picks[i] = 0

			continue
		}

		a.stages = append(a.stages, stage{ladder: l, job: i})
	}

	var one *ladder
	if len(merged) > 0 {
		one = merge(merged)
		a.stages = append(a.stages, stage{ladder: one, job: -1})
	}

	a.boundRows()
	a.run()
	m := a.nodes

	for s := len(a.stages) - 1; s >= 0; s-- {
		st := &a.stages[s]
		m = min(m, st.high)
		p := int(st.chosen[m-st.low])
		m -= st.ladder.rungs[p].count

		if st.job >= 0 {
			picks[st.job] = p
			continue
		}

		for _, u := range merged[:p] {
			picks[u.job]++
		}
	}

	return picks
}

// unit is one more node for a job, with its gain.
type unit struct {
	job  int
	gain float64
}

// merge returns the ladder of several concave jobs: each node goes to the job with the largest gain.
func merge(units []unit) *ladder {
	slices.SortStableFunc(units, func(a, b unit) int { return cmp.Compare(b.gain, a.gain) })
	l := &ladder{rungs: make([]rung, len(units)+1)}
	for k, u := range units {
		l.rungs[k+1] = rung{count: k + 1, value: l.rungs[k].value + u.gain}
	}

	l.runs = [][2]int{{0, len(units)}}

	return l
}

// scale divides all counts by their greatest common divisor. If all jobs take nodes by the dozen,
// there are a twelfth as many rows to compute.
func (a *allocator) scale() {
	d := 0
	for i := range a.jobs {
		for _, r := range a.jobs[i].rungs {
			d = gcd(d, r.count)
		}
	}

	if d <= 1 {
		return
	}

	a.nodes /= d
	for i := range a.jobs {
		for k := range a.jobs[i].rungs {
			a.jobs[i].rungs[k].count /= d
		}
	}
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}

	return a
}

// run computes the stages one after the other.
func (a *allocator) run() {
	before, after := make([]float64, a.nodes+1), make([]float64, a.nodes+1)
	low := 0

	for s := range a.stages {
		st := &a.stages[s]
		st.chosen = make([]int32, st.high-st.low+1)
		st.fold(before, after, low)

		for m := st.high + 1; m <= a.nodes; m++ {
			after[m] = after[st.high]
		}

		before, after, low = after, before, st.low
	}
}

// minHalving is the length of a run from which on divide and conquer is faster than trying each
// rung.
const minHalving = 32

// fold computes after, the best values including the job of this stage, from before, the best
// values without it. before is known from row from on.
func (st *stage) fold(before, after []float64, from int) {
	for m := st.low; m <= st.high; m++ {
		after[m] = math.Inf(-1)
	}

	for _, run := range st.ladder.runs {
		if run[1]-run[0] < minHalving {
			for r := run[0]; r <= run[1]; r++ {
				st.add(r, before, after, from)
			}

			continue
		}

		first, last := st.ladder.rungs[run[0]].count, st.ladder.rungs[run[1]].count
		f := foldRange{stage: st, before: before, after: after, first: run[0], least: first, most: last}
		if low := max(st.low, from+first); low <= st.high {
			f.half(low, st.high, from, st.high-first)
		}
	}
}

// add tries one rung for each number of nodes.
func (st *stage) add(r int, before, after []float64, from int) {
	count, value := st.ladder.rungs[r].count, st.ladder.rungs[r].value
	low := max(st.low, from+count)
	if low > st.high {
		return
	}

	old := before[low-count : st.high-count+1]
	now := after[low : st.high+1]

	back := st.chosen[low-st.low:]
	for i, v := range old {
		v += value
		if v > now[i] {
			now[i], back[i] = v, int32(r)
		}
	}
}

// foldRange folds in one concave run by divide and conquer.
type foldRange struct {
	*stage
	before, after []float64
	first         int // first rung of the run
	least, most   int // counts of the first and last rung of the run
}

// half computes the rows from low to high. In each of them the best number of nodes for the earlier
// jobs lies between from and to, because that number does not fall as the row grows.
func (f *foldRange) half(low, high, from, to int) {
	for low <= high {
		m := (low + high) / 2
		lo, hi := max(from, m-f.most), min(to, m-f.least)
		rungs := f.ladder.rungs

		best, at := math.Inf(-1), lo
		for k := lo; k <= hi; k++ {
			if v := f.before[k] + rungs[f.first+m-k-f.least].value; v >= best {
				best, at = v, k
			}
		}

		if best > f.after[m] {
			f.after[m], f.chosen[m-f.low] = best, int32(f.first+m-at-f.least)
		}

		f.half(low, m-1, from, at)
		low, from = m+1, at
	}
}
