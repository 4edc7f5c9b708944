package problem

import (
	"slices"

	"trainyard/internal/id"
	"trainyard/internal/place"
	"trainyard/internal/place/allocate"
)

// Plan returns the starts and stops that carry out the assignments of the tasks. why returns the
// reason for the change of a task; takers are the jobs that get GPUs which it holds now.
func (y *Yard) Plan(why func(t *Task, takers []id.Job) string) place.Plan {
	requests := make([]allocate.Request, len(y.Tasks))
	results := make([]allocate.Allocation, len(y.Tasks))

	for i := range y.Tasks {
		t := &y.Tasks[i]
		requests[i] = allocate.Request{Item: t.Item, Running: t.Running}
		results[i] = allocate.Allocation{Seats: t.Seats, Unchanged: t.unchanged()}
	}

	return allocate.Plan(requests, results, func(i int, takers []id.Job) string {
		return why(&y.Tasks[i], takers)
	})
}

// unchanged reports whether a task keeps its seats, or has none and gets none.
func (t *Task) unchanged() bool {
	if t.Running == nil {
		return len(t.Seats) == 0
	}

	return slices.Equal(t.Seats, t.Running.Allocations)
}
