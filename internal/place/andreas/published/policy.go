// Package published is the randomised greedy rule of the ANDREAS papers (andreas-published) and the
// first-principle rules it was measured against (andreas-fifo, andreas-edf, andreas-ps), for
// comparison with the policy andreas. None of them considers the cost of a restart, nor that nodes can
// be provisioned.
package published

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/money"
	"trainyard/internal/place"
	"trainyard/internal/place/andreas/problem"
	"trainyard/internal/place/ordered"
)

// Options are the parameters of the published rule.
type Options struct {
	// Rounds is the number of random orders. 0 means the published number: nodes times jobs times
	// the counts of GPUs in the price table, at most a thousand. A negative number means none,
	// which is the published greedy rule.
	Rounds int
	Seed   uint64
	Swap   float64 // factor by which a swap is likelier if it moves the larger weight forward
	Choice float64 // fraction of the configurations, from the best, from which one is drawn
	Worst  float64 // cost of being late for a postponed job, as a multiple of its price
}

// Defaults returns the published parameters.
func Defaults() Options {
	return Options{Swap: 0.05, Choice: 0.05, Worst: 100}
}

// Policy is the randomised greedy rule as it was published: at every event it reassigns all GPUs.
// Jobs are sorted by pressure, which is their best possible lateness, times their weight if it is
// positive. Each takes the cheapest configuration that meets its deadline or else the fastest, on
// the node where it fits most tightly; if there is no room it tries its next configuration. A
// thousand orders are drawn around that one, and the one with the least cost until the first end of
// a job wins; postponed jobs add a penalty. The cost of stopping a job is not considered.
//
// Two defects of the public program are not repeated here: its sweep of swaps reads past the end of
// the list, and its pool of solutions accepts only those that beat the first. One is kept because
// the rounding is part of the rule: a choice among the best twentieth of fewer than thirty
// configurations is no choice at all. The published simulator moves jobs between identical nodes at
// every event, which its deployed form tries to undo; here the same schedule is reached with as few
// moves as possible.
type Policy struct{ o Options }

var _ place.Searcher = (*Policy)(nil)

// New returns the published rule with these parameters.
func New(o Options) *Policy { return &Policy{o} }

// Name returns the name of the policy in the configuration.
func (*Policy) Name() string { return "andreas-published" }

// Revises reports that the policy stops, moves and resizes running jobs.
func (*Policy) Revises() bool { return true }

// Plan reassigns all GPUs.
func (p *Policy) Plan(v *place.View) place.Plan { return p.Search(v, nil) }

// Slow reports that the server plans in the background instead of waiting for the policy.
func (*Policy) Slow() bool { return true }

// Search is Plan with a time limit: it returns the best of the orders tried until enough is true.
func (p *Policy) Search(v *place.View, enough func() bool) place.Plan {
	y := problem.NewYard(v, noRestartCost(), false)
	if !y.HasEstimates {
		return ordered.FIFO{}.Plan(v)
	}

	y.ListCandidates()
	r := newRule(y)
	r.sortByPressure()
	r.assign(nil)
	best, cost := y.Snapshot(), r.cost(p.o.Worst)
	rng := problem.NewRand(p.o.Seed, y.Now)

	first := slices.Clone(r.order)
	for range p.rounds(y) {
		copy(r.order, first)
		r.swap(rng, p.o.Swap)

		r.assign(func(n int) int {
			if most := int(math.Round(float64(n) * p.o.Choice)); most > 1 {
				return rng.IntN(most)
			}

			return 0
		})

		if c := r.cost(p.o.Worst); c < cost {
			best, cost = y.Snapshot(), c
		}

		if enough != nil && enough() {
			break
		}
	}

	y.Restore(&best)
	r.relabel()

	return y.Plan(r.reason)
}

func (p *Policy) rounds(y *problem.Yard) int {
	if p.o.Rounds != 0 {
		return max(p.o.Rounds, 0)
	}

	counts := 0
	for k := range y.Kinds {
		counts += y.Kinds[k].Size * (y.Kinds[k].Size + 1) / 2
	}

	return min(1000, len(y.Rooms)*len(y.Tasks)*counts)
}

// noRestartCost returns the assumptions of rules that ignore the cost of stopping and starting.
func noRestartCost() *problem.Assumptions {
	a := problem.Standard()
	a.Margin, a.Rest = 0, 0

	return &a
}

// rule is the published choice of configurations.
type rule struct {
	y        *problem.Yard
	order    []int32
	pressure []float64
	lists    [][]int32 // candidates of each task, the best first
	slowest  []float64 // duration of each task in its slowest configuration, in seconds
}

// newRule sorts the configurations of each task: those that meet the deadline by cost, then the
// others by duration. The cost of a node is what it would cost with this job alone.
func newRule(y *problem.Yard) *rule {
	r := &rule{
		y: y, order: make([]int32, len(y.Tasks)), pressure: make([]float64, len(y.Tasks)),
		lists: make([][]int32, len(y.Tasks)), slowest: make([]float64, len(y.Tasks)),
	}

	y.Indexes = y.NewIndexes()
	for i := range y.Tasks {
		t := &y.Tasks[i]
		y.SetLateCost(t)

		if !t.HasDeadline {
			t.Slack = math.Inf(1)
		}

		least := math.Inf(1)

		for k := range t.Candidates {
			o := &t.Candidates[k]
			if o.Rate > 0 && t.RemainingWork > 0 {
				o.Duration = t.RemainingWork / o.Rate // the rule ignores start-up times
			}

			o.Cost = 0
			for n := range int(o.Nodes) {
				o.Cost += y.Kinds[o.Kind].Cost[o.On(n)].For(o.Duration)
			}

			least, r.slowest[i] = min(least, o.Duration), max(r.slowest[i], o.Duration)
			if o.Share == 0 { // the rule assigns whole GPUs only
				r.lists[i] = append(r.lists[i], int32(k))
			}
		}

		slices.SortStableFunc(r.lists[i], func(a, b int32) int {
			p, q := &t.Candidates[a], &t.Candidates[b]
			switch {
			case (p.Duration <= t.Slack) != (q.Duration <= t.Slack):
				if p.Duration <= t.Slack {
					return -1
				}

				return 1
			case p.Duration <= t.Slack:
				return cmp.Compare(p.Cost, q.Cost)
			}

			return cmp.Compare(p.Duration, q.Duration)
		})

		r.pressure[i] = least - t.Slack
		if r.pressure[i] > 0 {
			r.pressure[i] *= float64(t.LateCost)
		}
	}

	return r
}

// sortByPressure sorts the jobs by pressure, the largest first.
func (r *rule) sortByPressure() {
	for i := range r.order {
		r.order[i] = int32(i)
	}

	slices.SortStableFunc(r.order, func(a, b int32) int { return cmp.Compare(r.pressure[b], r.pressure[a]) })
}

// swap goes through the order once and swaps adjacent jobs at random.
func (r *rule) swap(rng *rand.Rand, by float64) {
	for i := 0; i+1 < len(r.order); i++ {
		likely := 0.5 - by
		if r.y.Tasks[r.order[i]].LateCost > r.y.Tasks[r.order[i+1]].LateCost {
			likely = 0.5 + by
		}

		if rng.Float64() < likely {
			r.order[i], r.order[i+1] = r.order[i+1], r.order[i]
		}
	}
}

// assign places the tasks in their order, each in the first of its configurations that fits. draw
// chooses the configuration, of n, at which to begin.
func (r *rule) assign(draw func(n int) int) {
	y := r.y
	for i := range y.Tasks {
		y.Unassign(&y.Tasks[i])
	}

	for _, i := range r.order {
		t, list := &y.Tasks[i], r.lists[i]
		from := 0
		if draw != nil && len(list) > 0 {
			from = draw(len(list))
		}

		for k := range list {
			if y.Assign(t, int(list[(from+k)%len(list)])) {
				break
			}
		}
	}
}

// cost is the published measure of a schedule: its cost until the first job ends, plus the worst
// cost of being late for postponed jobs.
func (r *rule) cost(worst float64) money.Amount {
	y := r.y
	until := math.Inf(1)
	for i := range y.Tasks {
		if t := &y.Tasks[i]; t.Assigned >= 0 {
			until = min(until, t.Candidates[t.Assigned].Duration)
		}
	}

	if math.IsInf(until, 1) {
		until = 0
	}

	sum := money.Amount(0)
	for k := range y.Kinds {
		sum += y.Power(k).For(until)
	}

	for i := range y.Tasks {
		t := &y.Tasks[i]
		if t.Assigned >= 0 {
			sum += t.LateCost.For(max(until-t.Slack, 0))
		} else {
			sum += t.LateCost.For(worst * max(r.slowest[i]-t.Slack, 0))
		}
	}

	return sum
}

// reason explains the decision of the rule for a task.
func (r *rule) reason(t *problem.Task, takers []id.Job) string {
	switch {
	case t.Assigned < 0 && len(takers) > 0:
		return fmt.Sprintf("preempted: released GPUs go to %s",
			place.JobNames(takers))
	case t.Assigned < 0:
		return "preempted: no GPUs were left for it in the order of pressure"
	case t.Candidates[t.Assigned].Duration <= t.Slack:
		return r.y.Where(t) + ", est. cost " + humanize.Dollars(r.y.Charge(t, t.Assigned)) +
			"; meets the deadline"
	}

	return r.y.Where(t) + "; misses the deadline"
}
