package andreas

import (
	"cmp"
	"math"
	"slices"
)

// price works out what each offer is worth beside waiting.
//
// An offer is judged by a look ahead: the task has it for a while and then goes
// on as it may hope to. What that costs in all is money: the GPUs until then and
// after, and being late. What it costs less than waiting for that while is the
// offer's gain. Gains of jobs with a deadline count the more the less work is
// left, as a share of the job and not of its time, because a job that has ended is
// in nobody's way. Divided by the GPUs that the offer takes, gains are the order
// in which things are done: of jobs that are late those first that have the
// greatest weight for the work that is left, of others those first that are
// closest to being late; and more GPUs for a job only if they win more than they
// would for others.
func (y *yard) price() {
	y.weigh()
	work := y.survey()
	y.ahead = max(y.o.Ahead*work/max(y.unit, 1), 1)
	for i := range y.tasks {
		t := &y.tasks[i]
		y.lateness(t)
		for k := range t.offers {
			o := &t.offers[k]
			o.bill = y.rent(o) * o.time
			if k == 0 || o.bill < t.offers[t.cheap].bill {
				t.cheap = k
			}
		}
		y.gains(t)
	}
	y.rush()
}

// weigh finds out what a GPU of each kind is worth beside the best kind's: the
// mean over the tasks of their speed on one GPU where they use it best.
func (y *yard) weigh() {
	sum, count := make([]float64, len(y.kinds)), make([]float64, len(y.kinds))
	each := make([]float64, len(y.kinds))
	for i := range y.tasks {
		clear(each)
		best := 0.0
		for _, d := range y.menu(&y.tasks[i]) {
			if d.gpus > 0 && d.part == 0 {
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
	y.unit = 0
	for k := range y.kinds {
		y.kinds[k].worth = 1
		if count[k] > 0 {
			y.kinds[k].worth = sum[k] / count[k]
		}
		y.unit += float64(y.kinds[k].gpus) * y.kinds[k].worth
	}
}

// survey finds for each task the offer that takes least of the yard and the one
// that is fastest, and returns how much the tasks take in all.
func (y *yard) survey() (work float64) {
	used, tasks := 0.0, 0
	y.mean = 0
	for i := range y.tasks {
		t := &y.tasks[i]
		for k := range t.offers {
			o := &t.offers[k]
			o.weight = max(o.amount()*y.kinds[o.kind].worth, 1e-3)
			if k == 0 || o.weight*o.time < t.offers[t.base].weight*t.offers[t.base].time {
				t.base = k
			}
			if k == 0 || o.time < t.offers[t.fast].time {
				t.fast = k
			}
		}
		if len(t.offers) == 0 {
			continue
		}
		b := &t.offers[t.base]
		work += b.weight * b.time
		used += b.weight
		y.mean += b.time
		tasks++
	}
	y.mean /= max(float64(tasks), 1)
	y.crowd = min(1, y.o.Crowd*used/max(y.unit, 1))
	return work
}

// lateness sets what a second past the deadline costs. Without a deadline every
// second costs as much as the GPUs that the job asks for at least, and the more
// the older it is.
func (y *yard) lateness(t *task) {
	o := t.item.Outlook
	if t.dated && o.LateCost > 0 {
		t.late = o.LateCost
		return
	}
	least := 0.0
	for k := range t.offers {
		f := &t.offers[k]
		if rent := max(f.amount(), 1) * y.kinds[f.kind].share; k == 0 || rent < least {
			least = rent
		}
	}
	if t.dated {
		t.late = least * y.o.Late
		return
	}
	age := max(y.now.Sub(o.Submitted).Seconds(), 0)
	t.late = least * y.o.Wait * (1 + age/max(y.o.Patience.Seconds(), 1))
}

// gains sets what each offer of a task wins in a second over waiting: on average,
// if it may end early.
func (y *yard) gains(t *task) {
	if len(t.offers) == 0 {
		return
	}
	h := y.horizon(t)
	scale := 1 / h
	if t.dated {
		scale *= y.mean / t.offers[t.base].time
	}
	for _, e := range y.endings(t) {
		waits := y.toGo(t, e.share, h)
		if t.run != nil { // it would have to start again
			waits = y.toGo(t, e.share, h+t.again) + y.rent(&t.offers[t.now])*t.again
		}
		for k := range t.offers {
			o := &t.offers[k]
			gain := (waits - y.after(t, o, e.share, h)) * scale * e.chance
			o.gain += gain
			if boot := y.kinds[o.kind].boot; boot > 0 {
				late := *o
				late.lost, late.time = o.lost+boot, o.time+boot
				gain = (waits - y.after(t, &late, e.share, h)) * scale * e.chance
			}
			o.cold += gain
		}
	}
	if !t.dated {
		t.turn = y.turn(t)
	}
}

// leastAhead is how far ahead it looks at least, in times of what starting the task
// takes: within its start a job does nothing anywhere.
const leastAhead = 4

// horizon is how far ahead it looks for a task.
func (y *yard) horizon(t *task) float64 {
	lost := t.again
	for k := range t.offers {
		lost = max(lost, t.offers[k].lost+y.kinds[t.offers[k].kind].boot)
	}
	return max(y.ahead, leastAhead*lost)
}

// rent is what the GPUs of an offer cost in a second.
func (y *yard) rent(o *offer) float64 { return o.amount() * y.kinds[o.kind].share }

// after returns what a task costs that has an offer for a while, if it ends when a
// share of the work that is left is done.
func (y *yard) after(t *task, o *offer, share, ahead float64) float64 {
	if end := o.lost + (o.time-o.lost)*share; end <= ahead {
		return y.rent(o)*end + y.miss(t, end, 0)
	}
	done := max(ahead-o.lost, 0) / (o.time - o.lost)
	return y.rent(o)*ahead + y.toGo(t, share-done, ahead)
}

// toGo returns what a share of the work that is left of a task costs if it is
// begun some time from now. When the yard is full it will get the GPUs that it
// has most cheaply, when it is empty what is best for it.
func (y *yard) toGo(t *task, share, from float64) float64 {
	b := &t.offers[t.cheap]
	full := b.bill*share + y.miss(t, from+b.time*share, b.time*share)
	if y.crowd == 1 || t.fast == t.cheap {
		return full
	}
	f := &t.offers[t.fast]
	free := f.bill*share + y.miss(t, from+f.time*share, f.time*share)
	return y.crowd*full + (1-y.crowd)*min(full, free)
}

// miss returns what it costs to end so many seconds from now, of which some are
// left to be planned.
func (y *yard) miss(t *task, end, planned float64) float64 {
	if !t.dated {
		return t.late * end
	}
	return t.late * overdue(end-t.slack, y.o.Hedge*planned)
}

// overdue returns by how much a job is expected to be late that is planned to end
// so many seconds past its deadline, where plans are off by about spread seconds.
// Below zero it falls off fast; above it is what was planned and the spread.
func overdue(by, spread float64) float64 {
	switch {
	case spread <= 0:
		return max(by, 0)
	case by < 0:
		return spread * math.Exp(by/spread)
	}
	return by + spread
}

// turn is what a start is worth to a job without a deadline, for each GPU and
// second. Those that wait are served in the order of the line; one that runs goes
// before those that wait, so that such jobs do not take turns.
func (y *yard) turn(t *task) float64 {
	worth := t.late / max(t.offers[t.base].amount(), 1)
	if t.run != nil {
		return 2 * worth
	}
	return worth * (1 - float64(t.rank)/float64(2*(y.view.Line.Len()+1)))
}

// rush finds out who may wait for GPUs that suit it better: whose deadline is far
// even if all that is due before it is done first. To the others every second is
// worth money, and they take what they can get. Where there is enough for all
// nobody need wait.
func (y *yard) rush() {
	order := make([]int32, 0, len(y.tasks))
	sum := make([]float64, len(y.kinds))
	for i := range y.tasks {
		if t := &y.tasks[i]; t.dated && len(t.offers) > 0 {
			order = append(order, int32(i))
			sum[t.offers[t.base].kind] += float64(t.offers[t.base].amount())
			t.rush = math.Inf(1)
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
		b := &t.offers[t.base]
		sum[b.kind] += b.weight * b.time
		first := sum[b.kind] / max(float64(y.kinds[b.kind].gpus)*y.kinds[b.kind].worth, 1)
		t.spare = max(t.slack-b.time-first, 0)
		t.rush = t.late * math.Exp(-t.spare/(y.o.Dare*b.time)) * b.time
	}
}

// declines reports whether a task had better wait than take an offer: what it
// costs more than the one that suits it best is more than time is worth to it.
func (y *yard) declines(t *task, at int) bool {
	return t.dated && at != t.base && t.offers[at].bill-t.offers[t.base].bill > t.rush
}
