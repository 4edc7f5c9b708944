package problem

import (
	"slices"

	"trainyard/internal/id"
	"trainyard/internal/place"
)

// Plan returns the starts and stops that carry out the assignments of the tasks. why returns the
// reason for the change of a task; takers are the jobs that get GPUs which it holds now.
func (y *Yard) Plan(why func(t *Task, takers []id.Job) string) place.Plan {
	var p place.Plan
	var starts []place.Start

	for i := range y.Tasks {
		if t := &y.Tasks[i]; !t.unchanged() && len(t.Seats) > 0 {
			starts = append(starts, place.Start{Item: t.Item, Allocations: t.Seats})
		}
	}

	takers := place.TakersOf(starts)

	for i := range y.Tasks {
		t := &y.Tasks[i]
		if t.unchanged() {
			continue
		}

		var by []id.Job
		if t.Running != nil {
			by = takers.Of(t.Running)
		}

		reason := why(t, by)
		if t.Running != nil {
			p.Stops = append(p.Stops, place.Stop{Running: t.Running, Reason: reason})
		}

		if len(t.Seats) > 0 {
			p.Starts = append(p.Starts, place.Start{Item: t.Item, Allocations: t.Seats, Reason: reason})
		}
	}

	return p
}

// unchanged reports whether a task keeps its seats, or has none and gets none.
func (t *Task) unchanged() bool {
	if t.Running == nil {
		return len(t.Seats) == 0
	}

	return slices.Equal(t.Seats, t.Running.Allocations)
}
