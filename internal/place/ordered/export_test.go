package ordered

import (
	"time"

	"trainyard/internal/id"
	"trainyard/internal/place"
	"trainyard/internal/queue"
)

// Reservations returns when each queued job would start under Conservative.
func Reservations(v *place.View) map[id.Job]time.Time {
	c := newCalendar(v)
	times := map[id.Job]time.Time{}
	walk := v.Queue.Walk(v.UsageOf)

	all := func(*queue.Shape) bool { return true }
	for it := walk.Next(all); it != nil; it = walk.Next(all) {
		if at, rooms := c.earliest(it, c.shapes[it.Shape]); rooms != nil {
			times[it.Job] = at
		}

		c.reserve(it)
	}

	return times
}
