package andreas

import (
	"math"

	"trainyard/internal/place/andreas/problem"
)

// relink follows paths from the best solution to each of the others (path relinking). Task by task
// it takes over the assignment of the other solution, always the one that gains most, even if the
// value falls. The best solution on the way is kept.
func (s *search) relink() {
	for i := 1; i < len(s.pool); i++ {
		if !s.nextRound() {
			return
		}

		s.Restore(&s.pool[0].Solution)
		if a := s.walk(&s.pool[i].Solution); a != nil && a.value > s.pool[0].value {
			s.pool[0] = *a
		}
	}
}

// walk goes from the current solution towards another one. It returns the best solution on the way,
// nil if none is better than the start.
func (s *search) walk(to *problem.Solution) *attempt {
	var left []int32
	for i := range s.Tasks {
		if s.Tasks[i].Assigned != to.Assigned[i] {
			left = append(left, int32(i))
		}
	}

	value := s.value()
	var best *attempt

	for highest := value; len(left) > 0; {
		at, most := -1, math.Inf(-1)
		for k, i := range left {
			t := &s.Tasks[i]
			if d := gainOf(t, to.Assigned[i]) - gainOf(t, t.Assigned); d > most &&
				(to.Assigned[i] < 0 || s.hasRoom(t, to.Assigned[i])) {
				at, most = k, d
			}
		}

		if at < 0 || !s.Reassign(&s.Tasks[left[at]], to.Assigned[left[at]]) {
			return best
		}

		left[at] = left[len(left)-1]
		left = left[:len(left)-1]

		value += most
		if value > highest*(1+1e-9) {
			highest = value
			a := s.record()
			best = &a
		}
	}

	return best
}
