package andreas

import (
	"math"

	"trainyard/internal/place/andreas/problem"
)

// step is the best next step for a task: to start it, or to give it another candidate. Its value is
// the money saved per second and additional GPU of the best kind.
type step struct {
	task  int32
	to    int32 // index of the candidate
	worth float64
}

// stepBefore reports whether a step comes before another. Equal steps go in the order of
// submission.
func (y *planner) stepBefore(a, b step) bool {
	if a.worth != b.worth {
		return a.worth > b.worth
	}

	return y.Tasks[a.task].Item.Number < y.Tasks[b.task].Item.Number
}

// greedy makes the first solution: it takes the step with the largest value per use of the yard, as
// long as there is room.
func (y *planner) greedy() {
	y.Indexes = y.NewIndexes()
	y.climb(nil)
}

// climb takes steps until none is left. If chance is given, it multiplies the values of the steps,
// so that repeated calls give different solutions.
func (y *planner) climb(chance func() float64) {
	y.heap = y.heap[:0]
	for i := range y.Tasks {
		t := &y.Tasks[i]
		t.RandomFactor = 1
		if chance != nil {
			t.RandomFactor = chance()
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
		t := &y.Tasks[s.task]

		// The free GPUs may have changed since the step was computed; then it is computed anew.
		ok := !y.hasRoom(t, int(s.to)) || y.Reassign(t, int(s.to))

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

// siftDown moves a step of the heap down to its place.
func (y *planner) siftDown(i int) {
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

// bestStep returns the best step for a task of those that there is room for. A waiting task takes
// any step unless it declines it, so that no usable GPU stays idle; a task that has a candidate
// takes only a better one.
func (y *planner) bestStep(i int32) (best step, found bool) {
	t := &y.Tasks[i]
	if t.Leaves {
		return step{}, false
	}

	had := &problem.Candidate{}
	if t.Assigned >= 0 {
		had = &t.Candidates[t.Assigned]
	}

	for k := range t.Candidates {
		o := &t.Candidates[k]

		if k == t.Assigned || t.Assigned < 0 && y.declines(t, k) || !y.hasRoom(t, k) {
			continue
		}

		gain := o.Gain
		if o.ColdGain < gain && y.needsBoot(t, o) {
			gain = o.ColdGain
		}

		if t.Assigned >= 0 && gain <= had.Gain+1e-9*math.Abs(had.Gain) {
			continue
		}

		s := step{task: i, to: int32(k), worth: (gain - had.Gain) / max(o.Usage-had.Usage, 1e-3)}
		if t.Assigned < 0 && !t.HasDeadline {
			s.worth = t.StartValue * gain / max(t.Candidates[t.Leanest].Gain, 1e-12)
		}

		s.worth *= t.RandomFactor
		if !found || s.worth > best.worth || s.worth == best.worth && o.Usage < t.Candidates[best.to].Usage {
			best, found = s, true
		}
	}

	return best, found
}

// needsBoot reports whether a candidate is available only on a node that must be switched
// on first.
func (y *planner) needsBoot(t *problem.Task, o *problem.Candidate) bool {
	if t.Running != nil && y.Positions[t.CurrentRooms[0]].Kind == o.Kind {
		return false
	}

	rows := y.Indexes[o.Kind].InUse
	for n := o.On(0); n < len(rows); n++ {
		if problem.FirstOf(rows[n], nil) >= 0 {
			return false
		}
	}

	return true
}

// hasRoom reports whether there is room for another candidate of a task: on other nodes, or on its
// own together with what it has there.
func (y *planner) hasRoom(t *problem.Task, at int) bool {
	o := &t.Candidates[at]
	s := &y.Indexes[o.Kind]

	had := o // the present candidate, of the same kind
	if t.Assigned >= 0 {
		had = &t.Candidates[t.Assigned]
	}

	own := t.Assigned >= 0 && had.Kind == o.Kind && had.Share == 0
	if o.Share > 0 {
		return own || s.FindShared(o.Share, -1) >= 0 || s.Fit(1, nil) >= 0
	}

	nodes := s.CountWith(o.On(0))
	for i := 0; own && i < len(t.Positions) && nodes < int(o.Nodes); i++ {
		if free := int(s.Free[t.Positions[i]]); free < o.On(0) && free+had.On(i) >= o.On(0) {
			nodes++
		}
	}

	return nodes >= int(o.Nodes)
}

// value returns how much money the solution saves per second.
func (y *planner) value() float64 {
	sum := 0.0
	for i := range y.Tasks {
		sum += gainOf(&y.Tasks[i], y.Tasks[i].Assigned)
	}

	return sum
}

// gainOf returns the gain of a candidate, or of waiting. A candidate without a gain is still
// preferred to idle GPUs.
func gainOf(t *problem.Task, at int) float64 {
	if at < 0 {
		return 0
	}

	return max(t.Candidates[at].Gain, 1e-15)
}

// attempt is a solution and its value.
type attempt struct {
	problem.Solution
	value float64
}

// record returns the current solution and its value.
func (y *planner) record() attempt { return attempt{y.Snapshot(), y.value()} }
