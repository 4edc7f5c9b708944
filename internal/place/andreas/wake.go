package andreas

import (
	"math"
	"time"

	"trainyard/internal/job"
)

// maxWakes is how often at most it asks for that within the time that it looks ahead.
const maxWakes = 4

// wakeAt returns when the policy wants to be asked again although nothing happens:
// when a job that waits by its own choice may have to take what it can get. Zero
// if no job does.
func (y *planner) wakeAt() time.Time {
	soonest := math.Inf(1)
	for i := range y.Tasks {
		t := &y.Tasks[i]
		if t.Assigned >= 0 || !t.HasDeadline {
			continue
		}

		for k := range t.Candidates {
			if b := &t.Candidates[t.Leanest]; y.declines(t, k) && y.fits(int32(i), k) {
				// When what it would cost more is what the rush will be worth.
				more := t.Candidates[k].Cost - b.Cost
				soonest = min(soonest, t.SpareTime-y.o.Dare*b.Duration*math.Log(max(t.LateCost*b.Duration/more, 1)))
			}
		}
	}

	if math.IsInf(soonest, 1) {
		return time.Time{}
	}

	return y.Now.Add(job.Seconds(max(soonest, y.lookahead/maxWakes)))
}
