package goodput

import (
	"cmp"
	"math"
	"slices"
)

// brings is what an option brings a second, in job-seconds, after what the change
// costs: over the time for which it is taken to last, a job that changes does
// nothing for its pause.
func (t *task) brings(at int) float64 {
	o := &t.opts[at]
	if at == t.held {
		return t.value * o.rate
	}
	return t.after(o.rate)
}

// after is what a rate brings a job that has to start for it.
func (t *task) after(rate float64) float64 {
	if rate <= 0 {
		return 0
	}
	if t.pause == 0 {
		return t.value * rate
	}
	lasts := t.left / rate
	if t.run != nil {
		lasts = math.Min(lasts, t.steady)
	}
	return t.value * rate * lasts / (lasts + t.pause)
}

// choice is who has what, with what is left of each kind.
type choice struct {
	m     *market
	picks []int
	free  []float64
	total float64 // worth
	known []bool  // of each kind: steps are as the picks are
	steps [][]concession
	give  []concession // space for the answer of room
}

// none is the choice in which nobody has anything.
func (m *market) none() *choice {
	c := &choice{m: m, picks: make([]int, len(m.tasks)), free: slices.Clone(m.rooms), known: make([]bool, len(m.kinds)), steps: make([][]concession, len(m.kinds))}
	for i := range c.picks {
		c.picks[i] = -1
		if m.tasks[i].young {
			c.set(i, m.tasks[i].held)
		}
	}
	return c
}

// set gives a task an option, -1 for none.
func (c *choice) set(i, at int) {
	t := &c.m.tasks[i]
	if old := c.picks[i]; old >= 0 {
		c.free[t.opts[old].kind] += float64(t.opts[old].gpus)
		c.total -= t.worth[old+1]
		c.known[t.opts[old].kind] = false
	}
	if c.picks[i] = at; at >= 0 {
		c.free[t.opts[at].kind] -= float64(t.opts[at].gpus)
		c.total += t.worth[at+1]
		c.known[t.opts[at].kind] = false
	}
}

// fits reports whether a task could have an option without anybody giving way.
func (c *choice) fits(i, at int) bool {
	t := &c.m.tasks[i]
	o := &t.opts[at]
	free := c.free[o.kind]
	if old := c.picks[i]; old >= 0 && t.opts[old].kind == o.kind {
		free += float64(t.opts[old].gpus)
	}
	return float64(o.gpus) <= free
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

// priced gives jobs what they want at the prices, who gains most from it first.
func (m *market) priced() *choice {
	type bid struct {
		task, at int
		gain     float64 // above the price, for each GPU
	}
	bids := make([]bid, 0, len(m.tasks))
	for i := range m.tasks {
		t := &m.tasks[i]
		best := bid{i, -1, 0}
		most := 0.0
		for at := range t.opts {
			o := &t.opts[at]
			if gain := t.worth[at+1] - m.price[o.kind]*float64(o.gpus); best.at < 0 || gain > most {
				best.at, most = at, gain
				best.gain = gain / float64(o.gpus)
			}
		}
		bids = append(bids, best)
	}
	slices.SortStableFunc(bids, func(a, b bid) int { return cmp.Compare(b.gain, a.gain) })
	c := m.none()
	for _, b := range bids {
		if !m.tasks[b.task].young && c.fits(b.task, b.at) {
			c.set(b.task, b.at)
		}
	}
	return c
}

// fill gives what is left to who gains most from it for each GPU.
func (c *choice) fill() {
	for {
		who, what, best := -1, -1, 0.0
		for i := range c.m.tasks {
			t := &c.m.tasks[i]
			have, gpus := t.worth[c.picks[i]+1], 0
			if p := c.picks[i]; p >= 0 {
				gpus = t.opts[p].gpus
			}
			for at := range t.opts {
				if at == c.picks[i] || !c.fits(i, at) {
					continue
				}
				if gain := (t.worth[at+1] - have) / math.Max(float64(t.opts[at].gpus-gpus), 0.5); gain > best+tiny {
					who, what, best = i, at, gain
				}
			}
		}
		if who < 0 {
			return
		}
		c.set(who, what)
	}
}

// rounds bounds the search for something better.
const rounds = 200

// improve changes one task at a time, with others giving way to it, as long as
// that is better.
func (c *choice) improve(enough func() bool) {
	for range rounds {
		if enough != nil && enough() {
			return
		}
		better := false
		for i := range c.m.tasks {
			better = c.better(i) || better
		}
		if !better {
			return
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
	t := &c.m.tasks[i]
	o := &t.opts[at]
	short := float64(o.gpus) - c.free[o.kind]
	if old := c.picks[i]; old >= 0 && t.opts[old].kind == o.kind {
		short -= float64(t.opts[old].gpus)
	}
	c.give = c.give[:0]
	lost := 0.0
	if short <= 0 {
		return c.give, 0
	}
	for _, s := range c.concessions(o.kind) {
		if s.task == i {
			continue
		}
		if lost += s.loss; lost > limit {
			break
		}
		c.give = append(c.give, s)
		if short -= s.gpus; short <= 0 {
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
		best := concession{task: i, at: -1, gpus: held, loss: have}
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
		list = append(list, best)
		from = best.at
	}
	return list
}

// appraise works out what each option is worth.
func (t *task) appraise() {
	t.worth = make([]float64, len(t.opts)+1)
	for at := range t.opts {
		t.worth[at+1] = t.brings(at)
	}
}
