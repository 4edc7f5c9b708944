package andreas

import (
	"cmp"
	"math"
	"slices"

	"trainyard/internal/place/andreas/problem"
)

// price computes what each candidate is worth beside waiting.
//
// A candidate is judged by a look ahead: the task has it for a while and then goes
// on as it may hope to. What that costs in all is money: the GPUs until then and
// after, and being late. What it costs less than waiting for that while is the
// candidate's gain. Gains of jobs with a deadline count the more the less work is
// left, as a share of the job and not of its time, because a job that has ended is
// in nobody's way. Divided by the GPUs that the candidate takes, gains are the order
// in which things are done: of jobs that are late those first that have the
// greatest weight for the work that is left, of others those first that are
// closest to being late; and more GPUs for a job only if they win more than they
// would for others.
func (y *planner) price() {
	y.rateKinds()
	work := y.summarize()
	y.lookahead = max(y.o.Ahead*work/max(y.capacity, 1), 1)
	for i := range y.Tasks {
		t := &y.Tasks[i]
		y.SetLateCost(t)

		for k := range t.Candidates {
			o := &t.Candidates[k]
			o.Cost = y.costPerSecond(o) * o.Duration
			if k == 0 || o.Cost < t.Candidates[t.Cheapest].Cost {
				t.Cheapest = k
			}
		}

		y.gains(t)
	}

	y.computeUrgency()
}

// rateKinds finds out what a GPU of each kind is worth beside the best kind's: the
// mean over the tasks of their speed on one GPU where they use it best.
func (y *planner) rateKinds() {
	sum, count := make([]float64, len(y.Kinds)), make([]float64, len(y.Kinds))
	each := make([]float64, len(y.Kinds))
	for i := range y.Tasks {
		clear(each)
		best := 0.0
		for _, d := range y.ConfigurationsOf(&y.Tasks[i]) {
			if d.GPUs > 0 && d.Share == 0 {
				each[d.Kind] = max(each[d.Kind], d.Rate/d.Amount())
				best = max(best, each[d.Kind])
			}
		}

		for k, r := range each {
			if r > 0 {
				sum[k] += r / best
				count[k]++
			}
		}
	}

	y.capacity = 0
	for k := range y.Kinds {
		y.relativeSpeed[k] = 1
		if count[k] > 0 {
			y.relativeSpeed[k] = sum[k] / count[k]
		}

		y.capacity += float64(y.Kinds[k].GPUs) * y.relativeSpeed[k]
	}
}

// summarize finds for each task the candidate that takes least of the yard and the one
// that is fastest, and returns how much the tasks take in all.
func (y *planner) summarize() (work float64) {
	used, tasks := 0.0, 0
	y.meanDuration = 0
	for i := range y.Tasks {
		t := &y.Tasks[i]
		for k := range t.Candidates {
			o := &t.Candidates[k]
			o.Usage = max(o.Amount()*y.relativeSpeed[o.Kind], 1e-3)
			if k == 0 || o.Usage*o.Duration < t.Candidates[t.Leanest].Usage*t.Candidates[t.Leanest].Duration {
				t.Leanest = k
			}

			if k == 0 || o.Duration < t.Candidates[t.Fastest].Duration {
				t.Fastest = k
			}
		}

		if len(t.Candidates) == 0 {
			continue
		}

		b := &t.Candidates[t.Leanest]
		work += b.Usage * b.Duration
		used += b.Usage
		y.meanDuration += b.Duration
		tasks++
	}

	y.meanDuration /= max(float64(tasks), 1)
	y.occupancy = min(1, y.o.Crowd*used/max(y.capacity, 1))

	return work
}

// gains sets what each candidate of a task wins in a second over waiting: on average,
// if it may end early.
func (y *planner) gains(t *problem.Task) {
	if len(t.Candidates) == 0 {
		return
	}

	h := y.horizon(t)
	scale := 1 / h
	if t.HasDeadline {
		scale *= y.meanDuration / t.Candidates[t.Leanest].Duration
	}

	for _, e := range y.endings(t) {
		waits := y.remainingCost(t, e.share, h)
		if t.Running != nil { // it would have to start again
			rent := y.costPerSecond(&t.Candidates[t.Current]) * t.RestartTime
			waits = y.remainingCost(t, e.share, h+t.RestartTime) + rent
		}

		for k := range t.Candidates {
			o := &t.Candidates[k]
			gain := (waits - y.costWith(t, o, e.share, h)) * scale * e.chance
			o.Gain += gain
			if boot := y.Kinds[o.Kind].Boot; boot > 0 {
				late := *o
				late.Startup, late.Duration = o.Startup+boot, o.Duration+boot
				gain = (waits - y.costWith(t, &late, e.share, h)) * scale * e.chance
			}

			o.ColdGain += gain
		}
	}

	if !t.HasDeadline {
		t.StartValue = y.startValueOf(t)
	}
}

// minLookahead is how far ahead it looks at least, in times of what starting the task
// takes: within its start a job does nothing anywhere.
const minLookahead = 4

// horizon is how far ahead it looks for a task.
func (y *planner) horizon(t *problem.Task) float64 {
	lost := t.RestartTime
	for k := range t.Candidates {
		lost = max(lost, t.Candidates[k].Startup+y.Kinds[t.Candidates[k].Kind].Boot)
	}

	return max(y.lookahead, minLookahead*lost)
}

// costPerSecond is what the GPUs of a candidate cost in a second.
func (y *planner) costPerSecond(o *problem.Candidate) float64 {
	return o.Amount() * y.Kinds[o.Kind].GPURate
}

// costWith returns what a task costs that has a candidate for a while, if it ends when a
// share of the work that is left is done.
func (y *planner) costWith(t *problem.Task, o *problem.Candidate, share, ahead float64) float64 {
	if end := o.Startup + (o.Duration-o.Startup)*share; end <= ahead {
		return y.costPerSecond(o)*end + y.lateCostAt(t, end, 0)
	}

	done := max(ahead-o.Startup, 0) / (o.Duration - o.Startup)

	return y.costPerSecond(o)*ahead + y.remainingCost(t, share-done, ahead)
}

// remainingCost returns what a share of the work that is left of a task costs if it is
// begun some time from now. When the yard is full it will get the GPUs that it
// has most cheaply, when it is empty what is best for it.
func (y *planner) remainingCost(t *problem.Task, share, from float64) float64 {
	b := &t.Candidates[t.Cheapest]
	full := b.Cost*share + y.lateCostAt(t, from+b.Duration*share, b.Duration*share)
	if y.occupancy == 1 || t.Fastest == t.Cheapest {
		return full
	}

	f := &t.Candidates[t.Fastest]
	free := f.Cost*share + y.lateCostAt(t, from+f.Duration*share, f.Duration*share)

	return y.occupancy*full + (1-y.occupancy)*min(full, free)
}

// lateCostAt returns what it costs to end so many seconds from now, of which some are
// left to be planned.
func (y *planner) lateCostAt(t *problem.Task, end, planned float64) float64 {
	if !t.HasDeadline {
		return t.LateCost * end
	}

	return t.LateCost * expectedLateness(end-t.Slack, y.o.Hedge*planned)
}

// expectedLateness returns by how much a job is expected to be late that is planned to end
// so many seconds past its deadline, where plans are off by about spread seconds.
// Below zero it falls off fast; above it is what was planned and the spread.
func expectedLateness(by, spread float64) float64 {
	switch {
	case spread <= 0:
		return max(by, 0)
	case by < 0:
		return spread * math.Exp(by/spread)
	}

	return by + spread
}

// startValueOf is what a start is worth to a job without a deadline, for each GPU and
// second. Those that are queued are served in the order of the queue; one that runs goes
// before those that are queued, so that such jobs do not take turns.
func (y *planner) startValueOf(t *problem.Task) float64 {
	worth := t.LateCost / max(t.Candidates[t.Leanest].Amount(), 1)
	if t.Running != nil {
		return 2 * worth
	}

	return worth * (1 - float64(t.QueueRank)/float64(2*(y.View.Queue.Len()+1)))
}

// computeUrgency finds out who may wait for GPUs that suit it better: whose deadline is far
// even if all that is due before it is done first. To the others every second is
// worth money, and they take what they can get. Where there is enough for all
// nobody need wait.
func (y *planner) computeUrgency() {
	order := make([]int32, 0, len(y.Tasks))
	sum := make([]float64, len(y.Kinds))
	for i := range y.Tasks {
		if t := &y.Tasks[i]; t.HasDeadline && len(t.Candidates) > 0 {
			order = append(order, int32(i))
			sum[t.Candidates[t.Leanest].Kind] += float64(t.Candidates[t.Leanest].Amount())
			t.Urgency = math.Inf(1)
		}
	}

	scarce := false
	for k := range sum {
		scarce = scarce || sum[k] > float64(y.Kinds[k].GPUs)
	}

	if !scarce || y.o.Dare <= 0 {
		return
	}

	clear(sum)

	slices.SortFunc(order, func(a, b int32) int {
		return cmp.Or(cmp.Compare(y.Tasks[a].Slack, y.Tasks[b].Slack), cmp.Compare(a, b))
	})
	for _, i := range order {
		t := &y.Tasks[i]
		b := &t.Candidates[t.Leanest]
		sum[b.Kind] += b.Usage * b.Duration
		first := sum[b.Kind] / max(float64(y.Kinds[b.Kind].GPUs)*y.relativeSpeed[b.Kind], 1)
		t.SpareTime = max(t.Slack-b.Duration-first, 0)
		t.Urgency = t.LateCost * math.Exp(-t.SpareTime/(y.o.Dare*b.Duration)) * b.Duration
	}
}

// declines reports whether a task had better wait than take a candidate: what it
// costs more than the one that suits it best is more than time is worth to it.
func (y *planner) declines(t *problem.Task, at int) bool {
	return t.HasDeadline && at != t.Leanest && t.Candidates[at].Cost-t.Candidates[t.Leanest].Cost > t.Urgency
}
