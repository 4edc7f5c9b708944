package andreas

import (
	"math"
	"slices"
)

// step is the best next thing to do for a task: to start it, or to give it
// another offer than it has. Its worth is what that saves for each second of the
// best GPU that it takes more.
type step struct {
	task  int32
	to    int32 // offer
	worth float64
}

// before reports whether a step is to be taken before another. Equal ones go by
// the order of submission.
func (y *yard) before(a, b step) bool {
	if a.worth != b.worth {
		return a.worth > b.worth
	}
	return y.tasks[a.task].item.Number < y.tasks[b.task].item.Number
}

// begin is the first answer: step by step whatever is worth most for what it
// takes, as long as there is room.
func (y *yard) begin() {
	y.shelf = y.shelves()
	y.climb(nil)
}

// climb takes steps until none is left. chance, if there is one, makes some steps
// look better or worse than they are.
func (y *yard) climb(chance func() float64) {
	y.heap = y.heap[:0]
	for i := range y.tasks {
		t := &y.tasks[i]
		t.luck = 1
		if chance != nil {
			t.luck = chance()
		}
		if s, ok := y.next(int32(i)); ok {
			y.heap = append(y.heap, s)
		}
	}
	for i := len(y.heap)/2 - 1; i >= 0; i-- {
		y.sink(i)
	}
	for len(y.heap) > 0 {
		s := y.heap[0]
		t := &y.tasks[s.task]
		// What is free has changed since the step was thought of.
		ok := !y.room(t, int(s.to)) || y.change(t, int(s.to))
		again, more := y.next(s.task)
		if !ok || !more {
			last := len(y.heap) - 1
			y.heap[0] = y.heap[last]
			y.heap = y.heap[:last]
		} else {
			y.heap[0] = again
		}
		if len(y.heap) > 0 {
			y.sink(0)
		}
	}
}

// sink puts a step of the heap into its place below those that go before it.
func (y *yard) sink(i int) {
	h := y.heap
	for {
		best := 2*i + 1
		if best >= len(h) {
			return
		}
		if best+1 < len(h) && y.before(h[best+1], h[best]) {
			best++
		}
		if !y.before(h[best], h[i]) {
			return
		}
		h[i], h[best] = h[best], h[i]
		i = best
	}
}

// next returns the best step for a task of those that there is room for. A task
// that waits takes any step, so that nothing stands idle that someone could use,
// unless it had better wait; one that has an offer takes only a better one.
func (y *yard) next(i int32) (best step, found bool) {
	t := &y.tasks[i]
	had := &offer{}
	if t.at >= 0 {
		had = &t.offers[t.at]
	}
	for k := range t.offers {
		o := &t.offers[k]
		if k == t.at || t.at < 0 && y.declines(t, k) || !y.room(t, k) {
			continue
		}
		gain := o.gain
		if o.cold < gain && y.cold(t, o) {
			gain = o.cold
		}
		if t.at >= 0 && gain <= had.gain+1e-9*math.Abs(had.gain) {
			continue
		}
		s := step{task: i, to: int32(k), worth: (gain - had.gain) / max(o.weight-had.weight, 1e-3)}
		if t.at < 0 && !t.dated {
			s.worth = t.turn * gain / max(t.offers[t.base].gain, 1e-12)
		}
		s.worth *= t.luck
		if !found || s.worth > best.worth || s.worth == best.worth && o.weight < t.offers[best.to].weight {
			best, found = s, true
		}
	}
	return best, found
}

// cold reports whether an offer is to be had only on a node that must be switched
// on first.
func (y *yard) cold(t *task, o *offer) bool {
	if t.run != nil && y.spots[t.home[0]].kind == o.kind {
		return false
	}
	rows := y.shelf[o.kind].rows
	for n := o.on(0); n < len(rows); n++ {
		if first(rows[n], nil) >= 0 {
			return false
		}
	}
	return true
}

// room reports whether there is room for another offer of a task: on some nodes,
// or on its own with what it has there.
func (y *yard) room(t *task, at int) bool {
	o := &t.offers[at]
	s := &y.shelf[o.kind]
	had := o // of the same kind
	if t.at >= 0 {
		had = &t.offers[t.at]
	}
	own := t.at >= 0 && had.kind == o.kind && had.part == 0
	if o.part > 0 {
		return own || s.cut(o.part, -1) >= 0 || s.fit(1, nil) >= 0
	}
	nodes := s.with(o.on(0))
	for i := 0; own && i < len(t.pos) && nodes < int(o.nodes); i++ {
		if free := int(s.free[t.pos[i]]); free < o.on(0) && free+had.on(i) >= o.on(0) {
			nodes++
		}
	}
	return nodes >= int(o.nodes)
}

// value is what the answer wins in a second.
func (y *yard) value() float64 {
	sum := 0.0
	for i := range y.tasks {
		sum += y.tasks[i].worth(y.tasks[i].at)
	}
	return sum
}

// worth is what an offer wins, or waiting. Doing something that wins nothing is
// still better than to let GPUs stand idle.
func (t *task) worth(at int) float64 {
	if at < 0 {
		return 0
	}
	return max(t.offers[at].gain, 1e-15)
}

// answer is what each task is given: its offer and its nodes.
type answer struct {
	at    []int
	pos   [][]int32
	value float64
}

// note writes down the answer as it is now.
func (y *yard) note() answer {
	a := answer{at: make([]int, len(y.tasks)), pos: make([][]int32, len(y.tasks)), value: y.value()}
	for i := range y.tasks {
		a.at[i], a.pos[i] = y.tasks[i].at, slices.Clone(y.tasks[i].pos)
	}
	return a
}

// restore goes back to an answer.
func (y *yard) restore(a *answer) {
	for i := range y.tasks {
		y.give(&y.tasks[i])
	}
	for i := range y.tasks {
		t := &y.tasks[i]
		t.pos = append(t.pos[:0], a.pos[i]...)
		y.hold(t, a.at[i])
	}
}
