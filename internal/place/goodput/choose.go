package goodput

import (
	"cmp"
	"container/heap"
	"math"
	"slices"
)

// patience is how long a change is assumed to last, as a multiple of the job's restart time.
// On measured and generated workloads four to six is best; with two or ten the mean
// completion time is one to two percent longer. For the makespan twice as much is better:
// there no other job makes up for one that falls behind.
func (p Policy) patience() float64 {
	if p.Aim == Makespan {
		return 10
	}

	return 5
}

// lastingShare is the share of the time since the last change of a job for which another one is
// assumed to last.
const lastingShare = 0.5

// worthOfStart is the value per second, in job-seconds, of a rate that a job has to start
// for. A queued job has to start sooner or later in any case. A running one makes no progress
// during its restart, and the change is assumed to last for a limited time only: the longer
// nothing has changed for a job whose speed is learned, the longer the next change is assumed to
// last, because only that shows what further ones would bring.
func (t *task) worthOfStart(rate, patience float64) float64 {
	if t.run == nil || rate <= 0 {
		return t.value * t.pace(rate)
	}

	lasts := math.Min(t.remaining/rate, math.Max(patience*t.restart, t.elapsed*lastingShare))

	return t.value * rate * lasts / (lasts + t.restart)
}

// appraise computes the worth of each option.
func (m *market) appraise() {
	patience := m.policy.patience()
	for i := range m.tasks {
		t := &m.tasks[i]
		t.worth = make([]float64, len(t.options)+1)
		if t.current >= 0 { // stopped for now, it has to start again one day
			t.worth[0] = -t.value * t.options[t.current].rate / patience
		}

		for at := range t.options {
			t.worth[at+1] = t.worthOfStart(t.options[at].rate, patience)
			if at == t.current {
				t.worth[at+1] = t.value * t.options[at].rate
			}
		}
	}
}

// choice is an assignment of options to tasks, with the GPUs of each kind that are free.
type choice struct {
	m               *market
	picks           []int // option of each task, -1 for nothing
	free            []float64
	total           float64 // worth
	steps           [][]concession
	stepsValid      []bool       // of each kind: steps are as the picks are
	concessionSpace []concession // space for the answer of room
	budget          int          // how much more may be looked at
}

// emptyChoice returns the choice in which only jobs that have just begun have GPUs.
func (m *market) emptyChoice() *choice {
	c := &choice{
		m: m, picks: make([]int, len(m.tasks)), free: slices.Clone(m.capacity), budget: searchBudget,
		steps: make([][]concession, len(m.kinds)), stepsValid: make([]bool, len(m.kinds)),
	}

	for i := range c.picks {
		c.picks[i] = -1
		if m.tasks[i].recent {
			c.set(i, m.tasks[i].current)
		}
	}

	return c
}

// currentChoice returns the choice in which running jobs keep what they have and queued ones get nothing.
func (m *market) currentChoice() *choice {
	c := m.emptyChoice()
	for i := range m.tasks {
		if h := m.tasks[i].current; h >= 0 {
			c.set(i, h)
		}
	}

	return c
}

// pricedChoice gives each job its preferred option at the prices, in the order of the gain per GPU.
func (m *market) pricedChoice() *choice {
	wants, gain := make([]int, len(m.tasks)), make([]float64, len(m.tasks))
	for i := range m.tasks {
		t := &m.tasks[i]
		most := math.Inf(-1)
		for at := range t.options {
			o := &t.options[at]
			if g := t.worth[at+1] - m.price[o.kind]*float64(o.gpus); g > most {
				wants[i], most, gain[i] = at, g, -g/float64(o.gpus)
			}
		}
	}

	c := m.emptyChoice()
	for _, i := range ascending(gain) {
		if c.fits(i, wants[i]) {
			c.set(i, wants[i])
		}
	}

	return c
}

// set gives a task an option, -1 for none.
func (c *choice) set(i, at int) {
	t := &c.m.tasks[i]
	c.total += t.worth[at+1] - t.worth[c.picks[i]+1]
	if old := c.picks[i]; old >= 0 {
		c.free[t.options[old].kind] += float64(t.options[old].gpus)
		c.stepsValid[t.options[old].kind] = false
	}

	c.picks[i] = at
	if at >= 0 {
		c.free[t.options[at].kind] -= float64(t.options[at].gpus)
		c.stepsValid[t.options[at].kind] = false
	}
}

// shortage is how many GPUs are missing for a task to have an option.
func (c *choice) shortage(i, at int) float64 {
	t := &c.m.tasks[i]
	o := &t.options[at]
	short := float64(o.gpus) - c.free[o.kind]
	if old := c.picks[i]; old >= 0 && t.options[old].kind == o.kind {
		short -= float64(t.options[old].gpus)
	}

	return short
}

// fits reports whether a task could have an option without taking GPUs from others.
func (c *choice) fits(i, at int) bool { return c.shortage(i, at) <= 0 }

// upgrade is something that a task could have of what is left.
type upgrade struct {
	task, at int
	gain     float64 // of worth, for each GPU more
}

// upgradeHeap has the greatest gain in front, then the earlier task.
type upgradeHeap []upgrade

func (h upgradeHeap) Len() int { return len(h) }
func (h upgradeHeap) Less(i, j int) bool {
	return h[i].gain > h[j].gain || h[i].gain == h[j].gain && h[i].task < h[j].task
}
func (h upgradeHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push is part of heap.Interface.
func (h *upgradeHeap) Push(x any) {
	if o, ok := x.(upgrade); ok {
		*h = append(*h, o)
	}
}

// Pop is part of heap.Interface.
func (h *upgradeHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// fill gives the free GPUs to the jobs that gain most from them. Free GPUs only become
// fewer, and with them the possible gains, so an upgrade is checked again only when it is at
// the top of the heap. GPUs released by a job that changes its kind are left for the next call.
func (c *choice) fill() {
	h := make(upgradeHeap, 0, len(c.m.tasks))
	for i := range c.m.tasks {
		if o, ok := c.bestUpgrade(i); ok {
			h = append(h, o)
		}
	}

	heap.Init(&h)
	for len(h) > 0 {
		top := h[0]
		if now, ok := c.bestUpgrade(top.task); !ok {
			heap.Pop(&h)
			continue
		} else if now != top {
			h[0] = now
			heap.Fix(&h, 0)
			continue
		}

		c.set(top.task, top.at)
	}
}

// bestUpgrade is the best that a task could have without taking GPUs from others.
func (c *choice) bestUpgrade(i int) (upgrade, bool) {
	t := &c.m.tasks[i]
	best := upgrade{task: i, at: -1, gain: tiny}

	have, gpus := t.worth[c.picks[i]+1], 0
	if p := c.picks[i]; p >= 0 {
		gpus = t.options[p].gpus
	}

	for at := range t.options {
		if t.worth[at+1] <= have || !c.fits(i, at) {
			continue
		}

		// One that is better with no more GPUs counts as if it took half of one.
		if gain := (t.worth[at+1] - have) / math.Max(float64(t.options[at].gpus-gpus), 0.5); gain > best.gain {
			best.at, best.gain = at, gain
		}
	}

	return best, best.at >= 0
}

// searchBudget bounds the search for improvements to about a tenth of a second.
const searchBudget = 1 << 22

// improve changes one task at a time, with others giving way to it, as long as
// that is better.
func (c *choice) improve() {
	for better := true; better; {
		better = false
		for i := range c.m.tasks {
			if c.budget <= 0 || c.m.enough != nil && c.m.enough() {
				return
			}

			better = c.better(i) || better
		}
	}
}

// better finds the best other option for a task, and lets others give way.
func (c *choice) better(i int) bool {
	t := &c.m.tasks[i]
	have := t.worth[c.picks[i]+1]
	var best []concession

	what, most := -1, tiny*math.Max(1, c.total)
	for at := range t.options {
		gain := t.worth[at+1] - have
		if at == c.picks[i] || gain <= most {
			continue
		}

		give, lost := c.concede(i, at, gain-most)
		if gain-lost > most {
			what, most, best = at, gain-lost, append(best[:0], give...)
		}
	}

	c.budget -= len(t.options)

	if what < 0 {
		return false
	}

	for _, s := range best {
		c.set(s.task, s.at)
	}

	c.set(i, what)

	return true
}

// concession is a step with which a task gives way: it has less then, or nothing.
type concession struct {
	task, at int
	gpus     float64 // freed by the step
	loss     float64 // of worth
}

// concede lists the concessions that let a task have an option, those with the least loss per
// GPU first. It gives up when the total loss exceeds the limit.
func (c *choice) concede(i, at int, limit float64) ([]concession, float64) {
	c.concessionSpace = c.concessionSpace[:0]
	short := c.shortage(i, at)
	if short <= 0 {
		return c.concessionSpace, 0
	}

	lost := 0.0

	for _, s := range c.concessions(c.m.tasks[i].options[at].kind) {
		if s.task == i {
			continue
		}

		c.budget--

		lost += s.loss
		if lost > limit {
			break
		}

		c.concessionSpace = append(c.concessionSpace, s)

		short -= s.gpus
		if short <= 0 {
			return c.concessionSpace, lost
		}
	}

	return nil, math.Inf(1)
}

// concessions lists the steps with which tasks on a kind would give way, the one
// that costs least for each GPU first.
func (c *choice) concessions(kind int) []concession {
	if c.stepsValid[kind] {
		return c.steps[kind]
	}

	list := c.steps[kind][:0]
	for i := range c.m.tasks {
		if p := c.picks[i]; p >= 0 && !c.m.tasks[i].recent && c.m.tasks[i].options[p].kind == kind {
			list = c.ladder(list, i)
		}
	}

	slices.SortStableFunc(list, func(a, b concession) int { return cmp.Compare(a.loss/a.gpus, b.loss/b.gpus) })
	c.steps[kind], c.stepsValid[kind] = list, true

	return list
}

// ladder adds the steps of one task from what it has down to nothing, each the
// cheapest for a GPU, so that they get dearer.
func (c *choice) ladder(list []concession, i int) []concession {
	t := &c.m.tasks[i]
	for from := c.picks[i]; from >= 0; {
		have, held := t.worth[from+1], float64(t.options[from].gpus)
		best := concession{task: i, at: -1, gpus: held, loss: have - t.worth[0]}
		for to := range t.options {
			o := &t.options[to]
			freed := held - float64(o.gpus)
			if o.kind != t.options[from].kind || freed <= 0 {
				continue
			}

			if loss := have - t.worth[to+1]; loss/freed < best.loss/best.gpus {
				best = concession{i, to, freed, loss}
			}
		}

		c.budget -= len(t.options)
		list = append(list, best)
		from = best.at
	}

	return list
}
