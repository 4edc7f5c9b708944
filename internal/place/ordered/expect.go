package ordered

import (
	"time"

	"trainyard/internal/id"
	"trainyard/internal/place"
	"trainyard/internal/queue"
)

// tooFar is from when on a start is not worth telling: something ahead of it is of unknown length.
const tooFar = 366 * 24 * time.Hour

// ExpectStarts gives the first jobs of a queue the earliest times at which they can run without delaying a job
// ahead of them, as Conservative does: when they start if all jobs last as long as is expected of them, whatever
// policy decides in the end. A job that has to wait for one of unknown length has no time. It ends early when stop
// reports true.
func ExpectStarts(v *place.View, limit int, stop func() bool) map[id.Job]time.Time {
	starts := map[id.Job]time.Time{}
	c := newCalendar(v)
	walk := v.Queue.Walk(v.UsageOf)
	all := func(*queue.Shape) bool { return true }

	for range limit {
		it := walk.Next(all)
		if it == nil || stop() {
			break
		}

		o := c.shapes[it.Shape]
		at, rooms := c.earliest(it, o)
		if rooms == nil {
			continue
		}

		c.book(it, o, at, rooms)

		if at.Sub(v.Now) < tooFar {
			starts[it.Job] = at
		}
	}

	return starts
}
