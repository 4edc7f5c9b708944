package andreas

import (
	"math"
	"slices"
)

// step is the best next thing to do for a task: to start it, or to give it
// another candidate than it has. Its worth is what that saves for each second of the
// best GPU that it takes more.
type step struct {
	task  int32
	to    int32 // candidate
	worth float64
}

// stepBefore reports whether a step is to be taken before another. Equal ones go by
// the order of submission.
func (y *yard) stepBefore(a, b step) bool {
	if a.worth != b.worth {
		return a.worth > b.worth
	}

	return y.tasks[a.task].item.Number < y.tasks[b.task].item.Number
}

// greedy is the first solution: step by step whatever is worth most for what it
// takes, as long as there is room.
func (y *yard) greedy() {
	y.indexes = y.newIndexes()
	y.climb(nil)
}

// climb takes steps until none is left. chance, if there is one, makes some steps
// look better or worse than they are.
func (y *yard) climb(chance func() float64) {
	y.heap = y.heap[:0]
	for i := range y.tasks {
		t := &y.tasks[i]
		t.randomFactor = 1
		if chance != nil {
			t.randomFactor = chance()
		}

		if s, ok := y.bestStep(int32(i)); ok {
			y.heap = append(y.heap, s)
		}
	}

	for i := len(y.heap)/2 - 1; i >= 0; i-- {
		y.siftDown(i)
	}

	for len(y.heap) > 0 {
		s := y.heap[0]
		t := &y.tasks[s.task]

		// What is free has changed since the step was thought of.
		ok := !y.hasRoom(t, int(s.to)) || y.reassign(t, int(s.to))

		again, more := y.bestStep(s.task)
		if !ok || !more {
			last := len(y.heap) - 1
			y.heap[0] = y.heap[last]
			y.heap = y.heap[:last]
		} else {
			y.heap[0] = again
		}

		if len(y.heap) > 0 {
			y.siftDown(0)
		}
	}
}

// siftDown puts a step of the heap into its place below those that go before it.
func (y *yard) siftDown(i int) {
	h := y.heap

	for {
		best := 2*i + 1
		if best >= len(h) {
			return
		}

		if best+1 < len(h) && y.stepBefore(h[best+1], h[best]) {
			best++
		}

		if !y.stepBefore(h[best], h[i]) {
			return
		}

		h[i], h[best] = h[best], h[i]
		i = best
	}
}

// bestStep returns the best step for a task of those that there is room for. A task
// that waits takes any step, so that nothing stands idle that someone could use,
// unless it had better wait; one that has a candidate takes only a better one.
func (y *yard) bestStep(i int32) (best step, found bool) {
	t := &y.tasks[i]
	had := &candidate{}
	if t.assigned >= 0 {
		had = &t.candidates[t.assigned]
	}

	for k := range t.candidates {
		o := &t.candidates[k]

		if k == t.assigned || t.assigned < 0 && y.declines(t, k) || !y.hasRoom(t, k) {
			continue
		}

		gain := o.gain
		if o.coldGain < gain && y.needsBoot(t, o) {
			gain = o.coldGain
		}

		if t.assigned >= 0 && gain <= had.gain+1e-9*math.Abs(had.gain) {
			continue
		}

		s := step{task: i, to: int32(k), worth: (gain - had.gain) / max(o.usage-had.usage, 1e-3)}
		if t.assigned < 0 && !t.hasDeadline {
			s.worth = t.startValue * gain / max(t.candidates[t.leanest].gain, 1e-12)
		}

		s.worth *= t.randomFactor
		if !found || s.worth > best.worth || s.worth == best.worth && o.usage < t.candidates[best.to].usage {
			best, found = s, true
		}
	}

	return best, found
}

// needsBoot reports whether a candidate is available only on a node that must be switched
// on first.
func (y *yard) needsBoot(t *task, o *candidate) bool {
	if t.running != nil && y.positions[t.currentRooms[0]].kind == o.kind {
		return false
	}

	rows := y.indexes[o.kind].inUse
	for n := o.on(0); n < len(rows); n++ {
		if firstOf(rows[n], nil) >= 0 {
			return false
		}
	}

	return true
}

// hasRoom reports whether there is room for another candidate of a task: on some nodes,
// or on its own with what it has there.
func (y *yard) hasRoom(t *task, at int) bool {
	o := &t.candidates[at]
	s := &y.indexes[o.kind]

	had := o // of the same kind
	if t.assigned >= 0 {
		had = &t.candidates[t.assigned]
	}

	own := t.assigned >= 0 && had.kind == o.kind && had.share == 0
	if o.share > 0 {
		return own || s.findShared(o.share, -1) >= 0 || s.fit(1, nil) >= 0
	}

	nodes := s.countWith(o.on(0))
	for i := 0; own && i < len(t.positions) && nodes < int(o.nodes); i++ {
		if free := int(s.free[t.positions[i]]); free < o.on(0) && free+had.on(i) >= o.on(0) {
			nodes++
		}
	}

	return nodes >= int(o.nodes)
}

// value is what the solution wins in a second.
func (y *yard) value() float64 {
	sum := 0.0
	for i := range y.tasks {
		sum += y.tasks[i].gain(y.tasks[i].assigned)
	}

	return sum
}

// gain is what a candidate wins, or waiting. Doing something that wins nothing is
// still better than to let GPUs stand idle.
func (t *task) gain(at int) float64 {
	if at < 0 {
		return 0
	}

	return max(t.candidates[at].gain, 1e-15)
}

// solution is what each task is given: its candidate and its nodes.
type solution struct {
	assigned  []int
	positions [][]int32
	value     float64
}

// snapshot records the solution as it is now.
func (y *yard) snapshot() solution {
	a := solution{assigned: make([]int, len(y.tasks)), positions: make([][]int32, len(y.tasks)), value: y.value()}
	for i := range y.tasks {
		a.assigned[i], a.positions[i] = y.tasks[i].assigned, slices.Clone(y.tasks[i].positions)
	}

	return a
}

// restore restores a solution.
func (y *yard) restore(a *solution) {
	for i := range y.tasks {
		y.unassign(&y.tasks[i])
	}

	for i := range y.tasks {
		t := &y.tasks[i]
		t.positions = append(t.positions[:0], a.positions[i]...)
		y.assignAt(t, a.assigned[i])
	}
}
