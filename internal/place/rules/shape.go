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
	jobs int // queued

	// Of this round.
	round           uint64
	stopsThen       int           // len(plan.Stops) when shortestBlocked was set
	shortestBlocked time.Duration // the shortest job that found nothing in the pools it may use; 0 for none yet
	freedThen       int           // engine.freed when shortestFull was set
	shortestFull    time.Duration // the shortest unprofiled job that found nothing in any pool; 0 for none yet
}

// shapeOf returns what is known of a job's shape.
func (e *engine) shapeOf(j *queuedJob) *shape { return e.present(j.shape) }

// present returns a shape with what is known of it in this round.
func (e *engine) present(s *shape) *shape {
	e.timeline.Compare(&s.Shape, &s.of.Need)
	if s.round != e.round {
		s.round = e.round
		s.shortestBlocked = 0
		s.shortestFull = 0
	}

	return s
}
