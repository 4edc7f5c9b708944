package andreas

import (
	"cmp"
	"math"
	"slices"
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
func (y *yard) price() {
	y.rateKinds()
	work := y.summarize()
	y.lookahead = max(y.o.Ahead*work/max(y.capacity, 1), 1)
	for i := range y.tasks {
		t := &y.tasks[i]
		y.setLateCost(t)

		for k := range t.candidates {
			o := &t.candidates[k]
			o.cost = y.costPerSecond(o) * o.duration
			if k == 0 || o.cost < t.candidates[t.cheapest].cost {
				t.cheapest = k
			}
		}

		y.gains(t)
	}

	y.computeUrgency()
}

// rateKinds finds out what a GPU of each kind is worth beside the best kind's: the
// mean over the tasks of their speed on one GPU where they use it best.
func (y *yard) rateKinds() {
	sum, count := make([]float64, len(y.kinds)), make([]float64, len(y.kinds))
	each := make([]float64, len(y.kinds))
	for i := range y.tasks {
		clear(each)
		best := 0.0
		for _, d := range y.configurationsOf(&y.tasks[i]) {
			if d.gpus > 0 && d.share == 0 {
				each[d.kind] = max(each[d.kind], d.rate/d.amount())
				best = max(best, each[d.kind])
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
	for k := range y.kinds {
		y.kinds[k].relativeSpeed = 1
		if count[k] > 0 {
			y.kinds[k].relativeSpeed = sum[k] / count[k]
		}

		y.capacity += float64(y.kinds[k].gpus) * y.kinds[k].relativeSpeed
	}
}

// summarize finds for each task the candidate that takes least of the yard and the one
// that is fastest, and returns how much the tasks take in all.
func (y *yard) summarize() (work float64) {
	used, tasks := 0.0, 0
	y.meanDuration = 0
	for i := range y.tasks {
		t := &y.tasks[i]
		for k := range t.candidates {
			o := &t.candidates[k]
			o.usage = max(o.amount()*y.kinds[o.kind].relativeSpeed, 1e-3)
			if k == 0 || o.usage*o.duration < t.candidates[t.leanest].usage*t.candidates[t.leanest].duration {
				t.leanest = k
			}

			if k == 0 || o.duration < t.candidates[t.fastest].duration {
				t.fastest = k
			}
		}

		if len(t.candidates) == 0 {
			continue
		}

		b := &t.candidates[t.leanest]
		work += b.usage * b.duration
		used += b.usage
		y.meanDuration += b.duration
		tasks++
	}

	y.meanDuration /= max(float64(tasks), 1)
	y.occupancy = min(1, y.o.Crowd*used/max(y.capacity, 1))

	return work
}

// setLateCost sets what a second past the deadline costs. Without a deadline every
// second costs as much as the GPUs that the job asks for at least, and the more
// the older it is.
func (y *yard) setLateCost(t *task) {
	o := t.item.Outlook
	if t.hasDeadline && o.LateCost > 0 {
		t.lateCost = o.LateCost
		return
	}

	least := 0.0
	for k := range t.candidates {
		f := &t.candidates[k]
		if rent := max(f.amount(), 1) * y.kinds[f.kind].gpuRate; k == 0 || rent < least {
			least = rent
		}
	}

	if t.hasDeadline {
		t.lateCost = least * y.o.Late
		return
	}

	age := max(y.now.Sub(o.Submitted).Seconds(), 0)
	t.lateCost = least * y.o.Wait * (1 + age/max(y.o.Patience.Seconds(), 1))
}

// gains sets what each candidate of a task wins in a second over waiting: on average,
// if it may end early.
func (y *yard) gains(t *task) {
	if len(t.candidates) == 0 {
		return
	}

	h := y.horizon(t)
	scale := 1 / h
	if t.hasDeadline {
		scale *= y.meanDuration / t.candidates[t.leanest].duration
	}

	for _, e := range y.endings(t) {
		waits := y.remainingCost(t, e.share, h)
		if t.running != nil { // it would have to start again
			rent := y.costPerSecond(&t.candidates[t.current]) * t.restartTime
			waits = y.remainingCost(t, e.share, h+t.restartTime) + rent
		}

		for k := range t.candidates {
			o := &t.candidates[k]
			gain := (waits - y.costWith(t, o, e.share, h)) * scale * e.chance
			o.gain += gain
			if boot := y.kinds[o.kind].boot; boot > 0 {
				late := *o
				late.startup, late.duration = o.startup+boot, o.duration+boot
				gain = (waits - y.costWith(t, &late, e.share, h)) * scale * e.chance
			}

			o.coldGain += gain
		}
	}

	if !t.hasDeadline {
		t.startValue = y.startValueOf(t)
	}
}

// minLookahead is how far ahead it looks at least, in times of what starting the task
// takes: within its start a job does nothing anywhere.
const minLookahead = 4

// horizon is how far ahead it looks for a task.
func (y *yard) horizon(t *task) float64 {
	lost := t.restartTime
	for k := range t.candidates {
		lost = max(lost, t.candidates[k].startup+y.kinds[t.candidates[k].kind].boot)
	}

	return max(y.lookahead, minLookahead*lost)
}

// costPerSecond is what the GPUs of a candidate cost in a second.
func (y *yard) costPerSecond(o *candidate) float64 { return o.amount() * y.kinds[o.kind].gpuRate }

// costWith returns what a task costs that has a candidate for a while, if it ends when a
// share of the work that is left is done.
func (y *yard) costWith(t *task, o *candidate, share, ahead float64) float64 {
	if end := o.startup + (o.duration-o.startup)*share; end <= ahead {
		return y.costPerSecond(o)*end + y.lateCostAt(t, end, 0)
	}

	done := max(ahead-o.startup, 0) / (o.duration - o.startup)

	return y.costPerSecond(o)*ahead + y.remainingCost(t, share-done, ahead)
}

// remainingCost returns what a share of the work that is left of a task costs if it is
// begun some time from now. When the yard is full it will get the GPUs that it
// has most cheaply, when it is empty what is best for it.
func (y *yard) remainingCost(t *task, share, from float64) float64 {
	b := &t.candidates[t.cheapest]
	full := b.cost*share + y.lateCostAt(t, from+b.duration*share, b.duration*share)
	if y.occupancy == 1 || t.fastest == t.cheapest {
		return full
	}

	f := &t.candidates[t.fastest]
	free := f.cost*share + y.lateCostAt(t, from+f.duration*share, f.duration*share)

	return y.occupancy*full + (1-y.occupancy)*min(full, free)
}

// lateCostAt returns what it costs to end so many seconds from now, of which some are
// left to be planned.
func (y *yard) lateCostAt(t *task, end, planned float64) float64 {
	if !t.hasDeadline {
		return t.lateCost * end
	}

	return t.lateCost * expectedLateness(end-t.slack, y.o.Hedge*planned)
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
func (y *yard) startValueOf(t *task) float64 {
	worth := t.lateCost / max(t.candidates[t.leanest].amount(), 1)
	if t.running != nil {
		return 2 * worth
	}

	return worth * (1 - float64(t.queueRank)/float64(2*(y.view.Queue.Len()+1)))
}

// computeUrgency finds out who may wait for GPUs that suit it better: whose deadline is far
// even if all that is due before it is done first. To the others every second is
// worth money, and they take what they can get. Where there is enough for all
// nobody need wait.
func (y *yard) computeUrgency() {
	order := make([]int32, 0, len(y.tasks))
	sum := make([]float64, len(y.kinds))
	for i := range y.tasks {
		if t := &y.tasks[i]; t.hasDeadline && len(t.candidates) > 0 {
			order = append(order, int32(i))
			sum[t.candidates[t.leanest].kind] += float64(t.candidates[t.leanest].amount())
			t.urgency = math.Inf(1)
		}
	}

	scarce := false
	for k := range sum {
		scarce = scarce || sum[k] > float64(y.kinds[k].gpus)
	}

	if !scarce || y.o.Dare <= 0 {
		return
	}

	clear(sum)

	slices.SortFunc(order, func(a, b int32) int {
		return cmp.Or(cmp.Compare(y.tasks[a].slack, y.tasks[b].slack), cmp.Compare(a, b))
	})
	for _, i := range order {
		t := &y.tasks[i]
		b := &t.candidates[t.leanest]
		sum[b.kind] += b.usage * b.duration
		first := sum[b.kind] / max(float64(y.kinds[b.kind].gpus)*y.kinds[b.kind].relativeSpeed, 1)
		t.spareTime = max(t.slack-b.duration-first, 0)
		t.urgency = t.lateCost * math.Exp(-t.spareTime/(y.o.Dare*b.duration)) * b.duration
	}
}

// declines reports whether a task had better wait than take a candidate: what it
// costs more than the one that suits it best is more than time is worth to it.
func (y *yard) declines(t *task, at int) bool {
	return t.hasDeadline && at != t.leanest && t.candidates[at].cost-t.candidates[t.leanest].cost > t.urgency
}
