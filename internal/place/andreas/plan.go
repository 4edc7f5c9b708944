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

// leastAgain is how often at most it asks for that within the time that it looks ahead.
const leastAgain = 4

// again returns when the policy wants to be asked again although nothing happens:
// when a job that waits by its own choice may have to take what it can get. Zero
// if no job does.
func (y *yard) again() time.Time {
	soonest := math.Inf(1)
	for i := range y.tasks {
		t := &y.tasks[i]
		if t.at >= 0 || !t.dated {
			continue
		}
		for k := range t.offers {
			if b := &t.offers[t.base]; y.declines(t, k) && y.fits(int32(i), k) {
				// When what it would cost more is what the rush will be worth.
				more := t.offers[k].bill - b.bill
				soonest = min(soonest, t.spare-y.o.Dare*b.time*math.Log(max(t.late*b.time/more, 1)))
			}
		}
	}
	if math.IsInf(soonest, 1) {
		return time.Time{}
	}
	return y.now.Add(job.Seconds(max(soonest, y.ahead/leastAgain)))
}
