package andreas

import (
	"math"
	"slices"
	"time"

	"trainyard/internal/job"
	"trainyard/internal/place"
)

// plan says what must change for the tasks to have what they were given.
func (y *yard) plan(why func(*task) string) place.Plan {
	var p place.Plan

	for i := range y.tasks {
		t := &y.tasks[i]
		if t.running != nil && slices.Equal(t.seats, t.running.Allocations) || t.running == nil && len(t.seats) == 0 {
			continue
		}

		reason := why(t)
		if t.running != nil {
			p.Stops = append(p.Stops, place.Stop{Running: t.running, Reason: reason})
		}

		if len(t.seats) > 0 {
			p.Starts = append(p.Starts, place.Start{Item: t.item, Allocations: t.seats, Reason: reason})
		}
	}

	return p
}

// maxWakes is how often at most it asks for that within the time that it looks ahead.
const maxWakes = 4

// wakeAt returns when the policy wants to be asked again although nothing happens:
// when a job that waits by its own choice may have to take what it can get. Zero
// if no job does.
func (y *yard) wakeAt() time.Time {
	soonest := math.Inf(1)
	for i := range y.tasks {
		t := &y.tasks[i]
		if t.assigned >= 0 || !t.hasDeadline {
			continue
		}

		for k := range t.candidates {
			if b := &t.candidates[t.leanest]; y.declines(t, k) && y.fits(int32(i), k) {
				// When what it would cost more is what the rush will be worth.
				more := t.candidates[k].cost - b.cost
				soonest = min(soonest, t.spareTime-y.o.Dare*b.duration*math.Log(max(t.lateCost*b.duration/more, 1)))
			}
		}
	}

	if math.IsInf(soonest, 1) {
		return time.Time{}
	}

	return y.now.Add(job.Seconds(max(soonest, y.lookahead/maxWakes)))
}
