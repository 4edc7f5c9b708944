package queue

import (
	"container/heap"
	"iter"
	"time"

	"trainyard/internal/id"
)

// Len returns how many jobs are queued.
func (s *Standing) Len() int {
	n := 0
	for _, l := range s.lines {
		n += l.count
	}

	return n
}

// Order yields the numbers of the queued jobs with their users, in the order of a walk at a time. It may be left early:
// what has not been yielded has cost nothing.
func (s *Standing) Order(now time.Time) iter.Seq2[uint64, id.User] {
	return func(yield func(uint64, id.User) bool) {
		before := map[id.User]float64{} // what users are charged for jobs of higher priorities

		for first := 0; first < len(s.lines); {
			level := turns{}
			next := first

			for ; next < len(s.lines) && s.lines[next].priority == s.lines[first].priority; next++ {
				l := s.lines[next]
				level = append(level, &turn{line: l, charge: s.usage[next].By(now) + before[l.user]})
				before[l.user] += l.cost
			}

			heap.Init(&level)

			for len(level) > 0 {
				t := level[0]
				if !yield(t.job().number, t.line.user) {
					return
				}

				if t.advance() {
					heap.Fix(&level, 0)
				} else {
					heap.Pop(&level)
				}
			}

			first = next
		}
	}
}

// turn is how far a line has come.
type turn struct {
	line     *line
	part, at int
	charge   float64 // of its user, when it is the turn of the next job
}

// job returns the next job of the line.
func (t *turn) job() *charged { return &t.line.parts[t.part].jobs[t.at] }

// advance goes on to the job after the next, and reports whether there is one.
func (t *turn) advance() bool {
	t.charge += t.job().cost
	t.at++

	if t.at == len(t.line.parts[t.part].jobs) {
		t.part, t.at = t.part+1, 0
	}

	return t.part < len(t.line.parts)
}

// turns has the line in front whose turn it is: that of the user who is charged least, then of the earliest job.
type turns []*turn

func (h turns) Len() int { return len(h) }
func (h turns) Less(i, j int) bool {
	if h[i].charge != h[j].charge {
		return h[i].charge < h[j].charge
	}

	return h[i].job().number < h[j].job().number
}
func (h turns) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push is part of heap.Interface.
func (h *turns) Push(x any) {
	if t, ok := x.(*turn); ok {
		*h = append(*h, t)
	}
}

// Pop is part of heap.Interface.
func (h *turns) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]

	return t
}
