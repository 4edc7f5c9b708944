package andreas

import "math"

// relink walks from the best answer towards each of the others: task after task is
// given what the other answer gives it, always the one that wins most, even if
// that is less than before. What is best on the way is kept.
func (s *search) relink() {
	for i := 1; i < len(s.pool); i++ {
		if !s.more() {
			return
		}
		s.restore(&s.pool[0])
		if a := s.walk(&s.pool[i]); a != nil && a.value > s.pool[0].value {
			s.pool[0] = *a
		}
	}
}

// walk goes from the present answer towards another one, and returns the best that
// it comes by, nil if that is no better than where it began.
func (s *search) walk(to *answer) *answer {
	var left []int32
	for i := range s.tasks {
		if s.tasks[i].at != to.at[i] {
			left = append(left, int32(i))
		}
	}
	value := s.value()
	var best *answer
	for highest := value; len(left) > 0; {
		at, most := -1, math.Inf(-1)
		for k, i := range left {
			t := &s.tasks[i]
			if d := t.worth(to.at[i]) - t.worth(t.at); d > most && (to.at[i] < 0 || s.room(t, to.at[i])) {
				at, most = k, d
			}
		}
		if at < 0 || !s.change(&s.tasks[left[at]], to.at[left[at]]) {
			return best
		}
		left[at] = left[len(left)-1]
		left = left[:len(left)-1]
		if value += most; value > highest*(1+1e-9) {
			highest = value
			a := s.note()
			best = &a
		}
	}
	return best
}
