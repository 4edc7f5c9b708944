package andreas

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"

	"trainyard/internal/place"
	"trainyard/internal/place/ordered"
)

// PublishedOptions are the parameters of the published rule.
type PublishedOptions struct {
	// Rounds is how often an order is drawn. 0 is the published number: as many as
	// nodes times jobs times the counts of GPUs in the price table, at most a
	// thousand. Below 0 there is none, which is the published greedy rule.
	Rounds int
	Seed   uint64
	Swap   float64 // by how much a swap is likelier if it brings the greater weight forward
	Choice float64 // share of the configurations, from the best, of which one is drawn
	Worst  float64 // what being late costs a postponed job, in times of its price
}

// PublishedDefaults are the published parameters.
func PublishedDefaults() PublishedOptions {
	return PublishedOptions{Swap: 0.05, Choice: 0.05, Worst: 100}
}

// Published is the randomised greedy rule as it was published: at every event it
// gives all GPUs anew. Jobs go by pressure, which is how late they will be at
// best, times their weight if that is positive. Each takes the cheapest
// configuration that meets its deadline or else the fastest, on the node where it
// fits most tightly; if there is no room it tries its next. A thousand orders are
// drawn around that one, and the cheapest until the first end counts, with a
// penalty for the jobs that are put off. It knows no cost of stopping a job.
//
// The public program has defects that are not repeated here: its sweep of swaps
// reads past the end of the list, and its pool of solutions takes only those that
// beat the first. That a choice among the best twentieth of fewer than thirty
// configurations is none is kept: the rounding is part of the rule. Its simulator
// moves jobs between like nodes at every event, which its deployed form tries to
// undo; here the same schedule is had with as few moves as possible.
type Published struct{ o PublishedOptions }

// NewPublished returns the published rule with these parameters.
func NewPublished(o PublishedOptions) *Published { return &Published{o} }

// Name is what the policy is called in the configuration.
func (*Published) Name() string { return "andreas-published" }

// Revises reports that it stops, moves and resizes what runs.
func (*Published) Revises() bool { return true }

// Plan gives all GPUs anew.
func (p *Published) Plan(v *place.View) place.Plan { return p.Search(v, nil) }

// Slow reports that the server does not wait for it.
func (*Published) Slow() bool { return true }

// Search gives all GPUs anew, in the best of the ways it has time to try.
func (p *Published) Search(v *place.View, enough func() bool) place.Plan {
	y := newYard(v, noRestartCost(), false)
	if !y.hasEstimates {
		return ordered.FIFO{}.Plan(v)
	}

	y.listCandidates()
	r := newRule(y)
	r.sortByPressure()
	r.assign(nil)
	best, cost := y.snapshot(), r.cost(p.o.Worst)
	rng := newRand(p.o.Seed, y.now)

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
			best, cost = y.snapshot(), c
		}

		if enough != nil && enough() {
			break
		}
	}

	y.restore(&best)
	y.relabel()

	return y.plan(func(t *task) string { return r.reason(t) })
}

func (p *Published) rounds(y *yard) int {
	if p.o.Rounds != 0 {
		return max(p.o.Rounds, 0)
	}

	counts := 0
	for k := range y.kinds {
		counts += y.kinds[k].size * (y.kinds[k].size + 1) / 2
	}

	return min(1000, len(y.rooms)*len(y.tasks)*counts)
}

// noRestartCost are the parameters of rules that know no cost of stopping and starting.
func noRestartCost() *Options {
	o := Defaults()
	o.Margin, o.Rest = 0, 0
	return &o
}

// rule is the published choice of configurations.
type rule struct {
	y        *yard
	order    []int32
	pressure []float64
	lists    [][]int32 // of each task: its candidates, the best first
	slowest  []float64 // seconds of each task where it is slowest
}

// newRule orders the configurations of each task: those that meet the deadline by
// what they cost, the others by their time. What a node costs is what it would
// cost with this job alone.
func newRule(y *yard) *rule {
	r := &rule{
		y: y, order: make([]int32, len(y.tasks)), pressure: make([]float64, len(y.tasks)),
		lists: make([][]int32, len(y.tasks)), slowest: make([]float64, len(y.tasks)),
	}

	y.indexes = y.newIndexes()
	for i := range y.tasks {
		t := &y.tasks[i]
		y.setLateCost(t)

		if !t.hasDeadline {
			t.slack = math.Inf(1)
		}

		least := math.Inf(1)

		for k := range t.candidates {
			o := &t.candidates[k]
			if o.rate > 0 && t.remainingWork > 0 {
				o.duration = t.remainingWork / o.rate // it knows nothing of starts
			}

			o.cost = 0
			for n := range int(o.nodes) {
				o.cost += y.kinds[o.kind].cost[o.on(n)] * o.duration
			}

			least, r.slowest[i] = min(least, o.duration), max(r.slowest[i], o.duration)
			if o.share == 0 { // it gives whole GPUs
				r.lists[i] = append(r.lists[i], int32(k))
			}
		}

		slices.SortStableFunc(r.lists[i], func(a, b int32) int {
			p, q := &t.candidates[a], &t.candidates[b]
			switch {
			case (p.duration <= t.slack) != (q.duration <= t.slack):
				if p.duration <= t.slack {
					return -1
				}

				return 1
			case p.duration <= t.slack:
				return cmp.Compare(p.cost, q.cost)
			}

			return cmp.Compare(p.duration, q.duration)
		})

		r.pressure[i] = least - t.slack
		if r.pressure[i] > 0 {
			r.pressure[i] *= t.lateCost
		}
	}

	return r
}

// sortByPressure puts the jobs with the greatest pressure first.
func (r *rule) sortByPressure() {
	for i := range r.order {
		r.order[i] = int32(i)
	}

	slices.SortStableFunc(r.order, func(a, b int32) int { return cmp.Compare(r.pressure[b], r.pressure[a]) })
}

// swap goes through the order once and swaps neighbours at random.
func (r *rule) swap(rng *rand.Rand, by float64) {
	for i := 0; i+1 < len(r.order); i++ {
		likely := 0.5 - by
		if r.y.tasks[r.order[i]].lateCost > r.y.tasks[r.order[i+1]].lateCost {
			likely = 0.5 + by
		}

		if rng.Float64() < likely {
			r.order[i], r.order[i+1] = r.order[i+1], r.order[i]
		}
	}
}

// assign places the tasks in their order, each on the first of its configurations
// that there is room for. draw chooses with which of so many to begin.
func (r *rule) assign(draw func(n int) int) {
	y := r.y
	for i := range y.tasks {
		y.unassign(&y.tasks[i])
	}

	for _, i := range r.order {
		t, list := &y.tasks[i], r.lists[i]
		from := 0
		if draw != nil && len(list) > 0 {
			from = draw(len(list))
		}

		for k := range list {
			if y.assign(t, int(list[(from+k)%len(list)])) {
				break
			}
		}
	}
}

// cost is the published measure of a schedule: what it costs until the first job
// ends, and what being late would cost the jobs that are put off at worst.
func (r *rule) cost(worst float64) float64 {
	y := r.y
	until := math.Inf(1)
	for i := range y.tasks {
		if t := &y.tasks[i]; t.assigned >= 0 {
			until = min(until, t.candidates[t.assigned].duration)
		}
	}

	if math.IsInf(until, 1) {
		until = 0
	}

	sum := 0.0
	for k := range y.kinds {
		sum += y.power(k) * until
	}

	for i := range y.tasks {
		t := &y.tasks[i]
		if t.assigned >= 0 {
			sum += t.lateCost * max(until-t.slack, 0)
		} else {
			sum += worst * t.lateCost * max(r.slowest[i]-t.slack, 0)
		}
	}

	return sum
}

// reason says what the rule thought of.
func (r *rule) reason(t *task) string {
	switch {
	case t.assigned < 0:
		return "preempted: jobs under more pressure get all GPUs that it could use"
	case t.candidates[t.assigned].duration <= t.slack:
		return r.y.where(
			t,
		) + ", est. cost " + money(
			t.candidates[t.assigned].cost,
		) + "; cheapest configuration that meets the deadline"
	}

	return r.y.where(t) + "; late in any case, fastest free configuration"
}
