package andreas

import "math"

// price works out what each offer costs, and what waiting costs.
//
// The price of an offer is money: the bill for its GPUs until the job has ended,
// and what being late will cost. A job that does not start now is taken to wait
// for a share of the time that all work together needs. What that costs more is
// what a start is worth. Divided by what the job takes of the yard it is the
// order of starts: of jobs that are late, those first that have the greatest
// weight for the work that is left; of others, those first whose deadline is close.
func (y *yard) price() {
	y.weigh()
	for i := range y.tasks {
		t := &y.tasks[i]
		y.lateness(t)
		for k := range t.offers {
			o := &t.offers[k]
			o.bill = float64(o.gpus) * y.kinds[o.kind].share * o.time
			o.cost = y.cost(t, o, 0)
		}
	}
	work := y.survey()
	y.ahead = math.Max(y.o.Ahead*work/math.Max(y.unit, 1), 1)
	for i := range y.tasks {
		y.priceWaiting(&y.tasks[i])
	}
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
			if d.gpus > 0 {
				each[d.kind] = math.Max(each[d.kind], d.rate/float64(d.gpus))
				best = math.Max(best, each[d.kind])
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

// survey finds for each task the offer that takes least of the yard, and returns
// how much they take in all.
func (y *yard) survey() (work float64) {
	used, tasks := 0.0, 0
	y.mean = 0
	for i := range y.tasks {
		t := &y.tasks[i]
		for k := range t.offers {
			o := &t.offers[k]
			o.size = math.Max(float64(o.gpus)*y.kinds[o.kind].worth*o.time, 1e-3)
			if k == 0 || o.size < t.offers[t.base].size {
				t.base = k
			}
		}
		if len(t.offers) == 0 {
			continue
		}
		b := &t.offers[t.base]
		work += b.size
		used += float64(b.gpus) * y.kinds[b.kind].worth
		y.mean += b.time
		tasks++
	}
	y.mean /= math.Max(float64(tasks), 1)
	y.crowd = math.Min(1, y.o.Crowd*used/math.Max(y.unit, 1))
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
		if rent := float64(max(f.gpus, 1)) * y.kinds[f.kind].share; k == 0 || rent < least {
			least = rent
		}
	}
	if t.dated {
		t.late = least * y.o.Late
		return
	}
	age := math.Max(y.now.Sub(o.Submitted).Seconds(), 0)
	t.late = least * y.o.Wait * (1 + age/math.Max(y.o.Patience.Seconds(), 1))
}

// cost returns what an offer costs that is taken up so many seconds from now.
func (y *yard) cost(t *task, o *offer, delay float64) float64 {
	if y.o.Survival != nil && t.left > 0 {
		return y.expected(t, o, delay)
	}
	if !t.dated {
		return o.bill + t.late*(delay+o.time)
	}
	return o.bill + t.late*overdue(delay+o.time-t.slack, y.o.Hedge*o.time)
}

// overdue returns by how much a job is expected to be late that is planned to end
// so many seconds past its deadline, where plans are off by about spread seconds.
// Below zero it falls off fast; above it is what was planned and the spread.
func overdue(by, spread float64) float64 {
	switch {
	case spread <= 0:
		return math.Max(by, 0)
	case by < 0:
		return spread * math.Exp(by/spread)
	}
	return by + spread
}

// priceWaiting sets what it costs to let a task wait.
func (y *yard) priceWaiting(t *task) {
	if len(t.offers) == 0 {
		return
	}
	b := &t.offers[t.base]
	if !t.dated {
		t.wait = b.cost + b.size*y.patience(t)
		return
	}
	later := func(k int) float64 {
		delay := y.ahead
		if k == t.now {
			delay += t.again
		}
		return y.cost(t, &t.offers[k], delay)
	}
	// When the yard is full, a job that waits will get what it uses best; when it is
	// empty, whatever is best for it.
	full := later(t.base) - b.cost
	free, least := math.Inf(1), math.Inf(1)
	for k := range t.offers {
		free, least = math.Min(free, later(k)), math.Min(least, t.offers[k].cost)
	}
	worth := y.crowd*full + (1-y.crowd)*(free-least)
	t.wait = b.cost + worth*y.mean/y.ahead
}

// patience is what a second of the best GPU is worth to a job without a deadline.
// Those that wait are served in the order of the line; one that runs goes before
// those that wait, so that such jobs do not take turns.
func (y *yard) patience(t *task) float64 {
	worth := t.late / math.Max(float64(t.offers[t.base].gpus), 1)
	if t.run != nil {
		return 2 * worth
	}
	return worth * (1 - float64(t.rank)/float64(2*(y.view.Line.Len()+1)))
}
