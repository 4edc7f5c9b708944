package problem

import (
	"slices"

	"trainyard/internal/place"
)

// Plan returns the starts and stops that carry out the assignments of the tasks.
func (y *Yard) Plan(why func(*Task) string) place.Plan {
	var p place.Plan

	for i := range y.Tasks {
		t := &y.Tasks[i]
		if t.Running != nil && slices.Equal(t.Seats, t.Running.Allocations) || t.Running == nil && len(t.Seats) == 0 {
			continue
		}

		reason := why(t)
		if t.Running != nil {
			p.Stops = append(p.Stops, place.Stop{Running: t.Running, Reason: reason})
		}

		if len(t.Seats) > 0 {
			p.Starts = append(p.Starts, place.Start{Item: t.Item, Allocations: t.Seats, Reason: reason})
		}
	}

	return p
}
