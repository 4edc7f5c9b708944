package goodput

import (
	"cmp"
	"container/heap"
	"math"
	"slices"
)

// patience is how many times what it costs a change is assumed to last. On measured
// and generated workloads four to six is best; with two or ten the mean completion
// is one or two in a hundred longer. Where the last end counts twice as much is
// better: there a job that falls behind is not made up for by others.
func (p Policy) patience() float64 {
	if p.Makespan {
		return 10
	}

	return 5
}

// after is what a rate brings a second, in job-seconds, to a job that has to start
// for it. One that waits has to start one day in any case. One that runs does
// nothing for its pause, and the change is assumed to last for some time only.
func (t *task) after(rate, patience float64) float64 {
	if t.run == nil || rate <= 0 {
		return t.value * t.pace(rate)
	}

	lasts := math.Min(t.left/rate, patience*t.pause)

	return t.value * rate * lasts / (lasts + t.pause)
}

// appraise works out what each option is worth.
func (m *market) appraise() {
	patience := m.policy.patience()
	for i := range m.tasks {
		t := &m.tasks[i]
		t.worth = make([]float64, len(t.opts)+1)
		if t.held >= 0 { // stopped for now, it has to start again one day
			t.worth[0] = -t.value * t.opts[t.held].rate / patience
		}

		for at := range t.opts {
			t.worth[at+1] = t.after(t.opts[at].rate, patience)
			if at == t.held {
				t.worth[at+1] = t.value * t.opts[at].rate
			}
		}
	}
}

// choice is who has what, with what is left of each kind.
type choice struct {
	m     *market
	picks []int // option of each task, -1 for nothing
	free  []float64
	total float64 // worth
	steps [][]concession
	known []bool       // of each kind: steps are as the picks are
	give  []concession // space for the answer of room
	looks int          // how much more may be looked at
}

// none is the choice in which only those who have just begun have anything.
func (m *market) none() *choice {
	c := &choice{
		m: m, picks: make([]int, len(m.tasks)), free: slices.Clone(m.rooms), looks: looks,
		steps: make([][]concession, len(m.kinds)), known: make([]bool, len(m.kinds)),
	}

	for i := range c.picks {
		c.picks[i] = -1
		if m.tasks[i].young {
			c.set(i, m.tasks[i].held)
		}
	}

	return c
}

// present is what is: who runs has what it has, and nobody else anything.
func (m *market) present() *choice {
	c := m.none()
	for i := range m.tasks {
		if h := m.tasks[i].held; h >= 0 {
			c.set(i, h)
		}
	}

	return c
}

// priced gives jobs what they want at the prices, who gains most for each GPU first.
func (m *market) priced() *choice {
	wants, gain := make([]int, len(m.tasks)), make([]float64, len(m.tasks))
	for i := range m.tasks {
		t := &m.tasks[i]
		most := math.Inf(-1)
		for at := range t.opts {
			o := &t.opts[at]
			if g := t.worth[at+1] - m.price[o.kind]*float64(o.gpus); g > most {
				wants[i], most, gain[i] = at, g, -g/float64(o.gpus)
			}
		}
	}

	c := m.none()
	for _, i := range rising(gain) {
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
		c.free[t.opts[old].kind] += float64(t.opts[old].gpus)
		c.known[t.opts[old].kind] = false
	}

	c.picks[i] = at
	if at >= 0 {
		c.free[t.opts[at].kind] -= float64(t.opts[at].gpus)
		c.known[t.opts[at].kind] = false
	}
}

// short is how many GPUs are missing for a task to have an option.
func (c *choice) short(i, at int) float64 {
	t := &c.m.tasks[i]
	o := &t.opts[at]
	short := float64(o.gpus) - c.free[o.kind]
	if old := c.picks[i]; old >= 0 && t.opts[old].kind == o.kind {
		short -= float64(t.opts[old].gpus)
	}

	return short
}

// fits reports whether a task could have an option without anybody giving way.
func (c *choice) fits(i, at int) bool { return c.short(i, at) <= 0 }

// offer is something that a task could have of what is left.
type offer struct {
	task, at int
	gain     float64 // of worth, for each GPU more
}

// offers has the greatest gain in front, then the earlier task.
type offers []offer

func (h offers) Len() int { return len(h) }
func (h offers) Less(i, j int) bool {
	return h[i].gain > h[j].gain || h[i].gain == h[j].gain && h[i].task < h[j].task
}
func (h offers) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push is part of heap.Interface.
func (h *offers) Push(x any) {
	if o, ok := x.(offer); ok {
		*h = append(*h, o)
	}
}

// Pop is part of heap.Interface.
func (h *offers) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// fill gives what is left to who gains most from it. What is left only gets less,
// and with it what each could gain, so that an offer is looked at again only when
// its turn comes. What a job gives back that changes its kind is left for the next
// time.
func (c *choice) fill() {
	h := make(offers, 0, len(c.m.tasks))
	for i := range c.m.tasks {
		if o, ok := c.offer(i); ok {
			h = append(h, o)
		}
	}

	heap.Init(&h)
	for len(h) > 0 {
		top := h[0]
		if now, ok := c.offer(top.task); !ok {
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

// offer is the best that a task could have without anybody giving way.
func (c *choice) offer(i int) (offer, bool) {
	t := &c.m.tasks[i]
	best := offer{task: i, at: -1, gain: tiny}

	have, gpus := t.worth[c.picks[i]+1], 0
	if p := c.picks[i]; p >= 0 {
		gpus = t.opts[p].gpus
	}

	for at := range t.opts {
		if t.worth[at+1] <= have || !c.fits(i, at) {
			continue
		}

		// One that is better with no more GPUs counts as if it took half of one.
		if gain := (t.worth[at+1] - have) / math.Max(float64(t.opts[at].gpus-gpus), 0.5); gain > best.gain {
			best.at, best.gain = at, gain
		}
	}

	return best, best.at >= 0
}

// looks bounds the search for something better: it is a tenth of a second's work.
const looks = 1 << 22

// improve changes one task at a time, with others giving way to it, as long as
// that is better.
func (c *choice) improve() {
	for better := true; better; {
		better = false
		for i := range c.m.tasks {
			if c.looks <= 0 || c.m.enough != nil && c.m.enough() {
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
	for at := range t.opts {
		gain := t.worth[at+1] - have
		if at == c.picks[i] || gain <= most {
			continue
		}

		give, lost := c.room(i, at, gain-most)
		if gain-lost > most {
			what, most, best = at, gain-lost, append(best[:0], give...)
		}
	}

	c.looks -= len(t.opts)

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

// room finds who gives way so that a task can have an option, who loses least for
// each GPU first. It gives up when more than a limit is lost.
func (c *choice) room(i, at int, limit float64) ([]concession, float64) {
	c.give = c.give[:0]
	short := c.short(i, at)
	if short <= 0 {
		return c.give, 0
	}

	lost := 0.0

	for _, s := range c.concessions(c.m.tasks[i].opts[at].kind) {
		if s.task == i {
			continue
		}

		c.looks--

		lost += s.loss
		if lost > limit {
			break
		}

		c.give = append(c.give, s)

		short -= s.gpus
		if short <= 0 {
			return c.give, lost
		}
	}

	return nil, math.Inf(1)
}

// concessions lists the steps with which tasks on a kind would give way, the one
// that costs least for each GPU first.
func (c *choice) concessions(kind int) []concession {
	if c.known[kind] {
		return c.steps[kind]
	}

	list := c.steps[kind][:0]
	for i := range c.m.tasks {
		if p := c.picks[i]; p >= 0 && !c.m.tasks[i].young && c.m.tasks[i].opts[p].kind == kind {
			list = c.ladder(list, i)
		}
	}

	slices.SortStableFunc(list, func(a, b concession) int { return cmp.Compare(a.loss/a.gpus, b.loss/b.gpus) })
	c.steps[kind], c.known[kind] = list, true

	return list
}

// ladder adds the steps of one task from what it has down to nothing, each the
// cheapest for a GPU, so that they get dearer.
func (c *choice) ladder(list []concession, i int) []concession {
	t := &c.m.tasks[i]
	for from := c.picks[i]; from >= 0; {
		have, held := t.worth[from+1], float64(t.opts[from].gpus)
		best := concession{task: i, at: -1, gpus: held, loss: have - t.worth[0]}
		for to := range t.opts {
			o := &t.opts[to]
			freed := held - float64(o.gpus)
			if o.kind != t.opts[from].kind || freed <= 0 {
				continue
			}

			if loss := have - t.worth[to+1]; loss/freed < best.loss/best.gpus {
				best = concession{i, to, freed, loss}
			}
		}

		c.looks -= len(t.opts)
		list = append(list, best)
		from = best.at
	}

	return list
}
