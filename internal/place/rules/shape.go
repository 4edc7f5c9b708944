package rules

import (
	"time"

	"trainyard/internal/place/timeline"
	"trainyard/internal/queue"
)

// shape is what is known of all jobs with one need.
type shape struct {
	timeline.Shape
	of   *queue.Shape
	jobs int     // that wait
	base float64 // speed that run times are based on

	// of this round
	round  uint64
	based  bool          // base is known
	stops  int           // so many jobs were stopped when closed was settled
	closed time.Duration // the shortest job for which nothing was free; 0 for none yet
	freed  int           // what had been made free when shut was settled
	shut   time.Duration // the shortest for which nothing was free in any room, of those that are as fast as the GPUs; 0 for none yet
}

// shapeOf returns what is known of a job's shape.
func (e *engine) shapeOf(w *wait) *shape {
	s := w.shape
	e.timeline.Compare(&s.Shape, &s.of.Need)
	if s.round != e.round {
		s.round, s.based, s.closed, s.shut = e.round, false, 0, 0
	}
	return s
}
