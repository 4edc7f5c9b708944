package andreas

import (
	"cmp"
	"math"
	"slices"

	"trainyard/internal/money"
	"trainyard/internal/place/andreas/problem"
)

// price computes the value of each candidate compared with waiting.
//
// A candidate is valued by a look-ahead: the task has the candidate for a while, and after that
// continues with what it can expect to get. The total cost of that, in money, is the price of the
// GPUs until then and after, and of being late. The gain of a candidate is how much less it costs
// than waiting for that while. For jobs with a deadline the gain is weighted: the less work is
// left, as a fraction of the job, the more it counts, because a finished job is in nobody's way.
//
// The gain per GPU gives the order of decisions. Late jobs with the largest weight for their
// remaining work come first, then jobs that are closest to being late; and a job gets more GPUs
// only if they save more there than they would for others.
func (y *planner) price() {
	y.rateKinds()
	work := y.summarize()
	y.lookahead = max(y.o.Ahead*work/max(y.capacity, 1), 1)
	for i := range y.Tasks {
		t := &y.Tasks[i]
		y.SetLateCost(t)

		for k := range t.Candidates {
			o := &t.Candidates[k]
			o.Cost = y.costPerSecond(o).For(o.Duration)
			if k == 0 || o.Cost < t.Candidates[t.Cheapest].Cost {
				t.Cheapest = k
			}
		}

		y.gains(t)
	}

	y.computeUrgency()
}

// rateKinds computes the speed of a GPU of each kind relative to the best kind: the mean over the
// tasks of their speed per GPU in their most efficient configuration.
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

// summarize finds for each task the candidate that uses least of the yard and the fastest one, and
// returns the total work of the tasks, in seconds of the best kind of GPU.
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

// gains sets how much each candidate of a task saves per second compared with waiting, as the mean
// over its possible endings.
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
		if t.Running != nil { // it would have to restart
			rent := y.costPerSecond(&t.Candidates[t.Current]).For(t.RestartTime)
			waits = y.remainingCost(t, e.share, h+t.RestartTime) + rent
		}

		for k := range t.Candidates {
			o := &t.Candidates[k]
			gain := float64(waits-y.costWith(t, o, e.share, h)) * scale * e.chance
			o.Gain += gain
			if boot := y.Kinds[o.Kind].Boot; boot > 0 {
				late := *o
				late.Startup, late.Duration = o.Startup+boot, o.Duration+boot
				gain = float64(waits-y.costWith(t, &late, e.share, h)) * scale * e.chance
			}

			o.ColdGain += gain
		}
	}

	if !t.HasDeadline {
		t.StartValue = y.startValueOf(t)
	}
}

// minLookahead is the least look-ahead as a multiple of the task's start-up time, because a job
// does no work anywhere while it starts.
const minLookahead = 4

// horizon returns the look-ahead for a task, in seconds.
func (y *planner) horizon(t *problem.Task) float64 {
	lost := t.RestartTime
	for k := range t.Candidates {
		lost = max(lost, t.Candidates[k].Startup+y.Kinds[t.Candidates[k].Kind].Boot)
	}

	return max(y.lookahead, minLookahead*lost)
}

// costPerSecond returns the cost of the GPUs of a candidate per second.
func (y *planner) costPerSecond(o *problem.Candidate) money.PerSecond {
	return y.Kinds[o.Kind].GPURate.Of(o.Amount())
}

// costWith returns the cost of a task that has a candidate for the look-ahead, if it ends when a
// share of its remaining work is done.
func (y *planner) costWith(t *problem.Task, o *problem.Candidate, share, ahead float64) money.Amount {
	if end := o.Startup + (o.Duration-o.Startup)*share; end <= ahead {
		return y.costPerSecond(o).For(end) + y.lateCostAt(t, end, 0)
	}

	done := max(ahead-o.Startup, 0) / (o.Duration - o.Startup)

	return y.costPerSecond(o).For(ahead) + y.remainingCost(t, share-done, ahead)
}

// remainingCost returns the cost of a share of a task's remaining work if it begins from seconds
// from now. In a full yard the task is assumed to get its cheapest candidate, in an empty one the
// best for it.
func (y *planner) remainingCost(t *problem.Task, share, from float64) money.Amount {
	b := &t.Candidates[t.Cheapest]
	full := b.Cost.Times(share) + y.lateCostAt(t, from+b.Duration*share, b.Duration*share)
	if y.occupancy == 1 || t.Fastest == t.Cheapest {
		return full
	}

	f := &t.Candidates[t.Fastest]
	free := f.Cost.Times(share) + y.lateCostAt(t, from+f.Duration*share, f.Duration*share)

	return full.Times(y.occupancy) + min(full, free).Times(1-y.occupancy)
}

// lateCostAt returns the cost of ending end seconds from now. planned is the part of that time that
// is still uncertain, in seconds.
func (y *planner) lateCostAt(t *problem.Task, end, planned float64) money.Amount {
	if !t.HasDeadline {
		return t.LateCost.For(end)
	}

	return t.LateCost.For(expectedLateness(end-t.Slack, y.o.Hedge*planned))
}

// expectedLateness returns the expected lateness in seconds of a job that is planned to end by
// seconds after its deadline, if plans are wrong by about spread seconds. Before the deadline it falls
// exponentially towards 0; after it, it is the planned lateness plus the spread.
func expectedLateness(by, spread float64) float64 {
	switch {
	case spread <= 0:
		return max(by, 0)
	case by < 0:
		return spread * math.Exp(by/spread)
	}

	return by + spread
}

// startValueOf returns the value of starting a job without a deadline, per GPU and second. Queued
// jobs are served in the order of the queue; a running job comes before queued ones, so that such
// jobs do not take turns.
func (y *planner) startValueOf(t *problem.Task) float64 {
	worth := float64(t.LateCost.EachOf(max(t.Candidates[t.Leanest].Amount(), 1)))
	if t.Running != nil {
		return 2 * worth
	}

	return worth * (1 - float64(t.QueueRank)/float64(2*(y.View.Queue.Len()+1)))
}

// computeUrgency computes how much it is worth to each task not to wait for GPUs that suit it
// better. A task whose deadline is far away even if everything due before it is done first may
// wait; for the others each second is worth money, so they take what they can get. If there are
// enough GPUs for all, no task waits.
func (y *planner) computeUrgency() {
	order := make([]int32, 0, len(y.Tasks))
	sum := make([]float64, len(y.Kinds))
	for i := range y.Tasks {
		if t := &y.Tasks[i]; t.HasDeadline && len(t.Candidates) > 0 {
			order = append(order, int32(i))
			sum[t.Candidates[t.Leanest].Kind] += float64(t.Candidates[t.Leanest].Amount())
			t.Urgency = money.Amount(math.Inf(1))
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
		t.Urgency = t.LateCost.For(math.Exp(-t.SpareTime/(y.o.Dare*b.Duration)) * b.Duration)
	}
}

// declines reports whether a task should wait rather than take a candidate: the candidate costs
// more than the best suited one by more than the task's urgency.
func (y *planner) declines(t *problem.Task, at int) bool {
	return t.HasDeadline && at != t.Leanest && t.Candidates[at].Cost-t.Candidates[t.Leanest].Cost > t.Urgency
}
