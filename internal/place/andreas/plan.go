package andreas

import (
	"slices"

	"trainyard/internal/place"
)

// plan says what must change for the tasks to have what they were given.
func (y *yard) plan(why func(*task) string) place.Plan {
	var p place.Plan
	for i := range y.tasks {
		t := &y.tasks[i]
		if t.run != nil && slices.Equal(t.seats, t.run.Seats) || t.run == nil && len(t.seats) == 0 {
			continue
		}
		reason := why(t)
		if t.run != nil {
			p.Stops = append(p.Stops, place.Stop{Running: t.run, Reason: reason})
		}
		if len(t.seats) > 0 {
			p.Starts = append(p.Starts, place.Start{Item: t.item, Seats: t.seats, Reason: reason})
		}
	}
	return p
}
func (y *yard) reason(t *task) string                             { return "x" }
func (y *yard) expected(t *task, o *offer, delay float64) float64 { return 0 }

func (y *yard) where(t *task) string { return "x" }
func money(f float64) string         { return "x" }
