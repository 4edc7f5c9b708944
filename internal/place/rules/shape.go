package rules

import (
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/queue"
)

// shape is what is known of all jobs with one need.
type shape struct {
	of     *queue.Shape
	jobs   int // that wait
	serial uint64
	match  *fleet.Matcher
	takes  size     // of each node
	able   []*stock // that could run it if they were empty: all of their rooms are of a kind that it wants
	base   float64  // speed that run times are based on

	// of this round
	round  uint64
	based  bool          // base is known
	stops  int           // so many jobs were stopped when closed was settled
	closed time.Duration // the shortest job for which nothing was free; 0 for none yet
	freed  int           // what had been made free when shut was settled
	shut   time.Duration // the shortest for which nothing was free in any room, of those that are as fast as the GPUs; 0 for none yet
	shifts int           // of the round when roomy was settled, one more
	roomy  bool
}

// shapeOf returns what is known of a job's shape.
func (e *engine) shapeOf(w *wait) *shape {
	s := w.shape
	if s.match == nil || s.serial != e.floor.serial {
		e.compare(s)
	}
	if s.round != e.round {
		s.round, s.based, s.closed, s.shut, s.shifts = e.round, false, 0, 0, 0
	}
	return s
}

// compare finds the stocks that could run a shape.
func (e *engine) compare(s *shape) {
	need := s.of.Need
	s.serial, s.match, s.takes, s.able = e.floor.serial, fleet.NewMatcher(need), units(&need), nil
	for _, st := range e.floor.stocks {
		if !st.class.Allows(need.Place) || st.kind >= 0 && need.GPUs > 0 && st.sample.Sound != 0 && s.match.Wanted(st.sample) == 0 {
			continue // nor any other of them
		}
		if slices.ContainsFunc(st.rooms, func(at int32) bool { return e.view.Rooms[at].Open && s.match.Eligible(&e.view.Rooms[at]) }) {
			s.able = append(s.able, st)
		}
	}
}

// mayBeRoom reports whether there may be rooms with as many GPUs free as a shape needs.
func (e *engine) mayBeRoom(s *shape) bool {
	if s.shifts != e.shifts+1 {
		s.shifts = e.shifts + 1
		s.roomy = slices.ContainsFunc(s.able, func(st *stock) bool {
			for n := s.match.Need.GPUs; n < len(st.free); n++ {
				if len(st.free[n]) > 0 {
					return true
				}
			}
			return false
		})
	}
	return s.roomy
}
