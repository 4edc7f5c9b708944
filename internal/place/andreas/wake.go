package andreas

import (
	"math"
	"time"

	"trainyard/internal/job"
)

// maxWakes bounds how often the policy asks to be run again within its look-ahead.
const maxWakes = 4

// wakeAt returns when the policy must run again although nothing happens: when a job that declined
// a candidate may have to accept it. It is zero if there is no such job.
func (y *planner) wakeAt() time.Time {
	soonest := math.Inf(1)
	for i := range y.Tasks {
		t := &y.Tasks[i]
		if t.Assigned >= 0 || !t.HasDeadline {
			continue
		}

		for k := range t.Candidates {
			if b := &t.Candidates[t.Leanest]; y.declines(t, k) && y.fits(int32(i), k) {
				// That is when the additional cost of the candidate equals the urgency of the job.
				more := t.Candidates[k].Cost - b.Cost
				soonest = min(soonest, t.SpareTime-y.o.Dare*b.Duration*math.Log(max(float64(t.LateCost.For(b.Duration)/more), 1)))
			}
		}
	}

	if math.IsInf(soonest, 1) {
		return time.Time{}
	}

	return y.Now.Add(job.Seconds(max(soonest, y.lookahead/maxWakes)))
}
