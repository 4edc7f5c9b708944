package timeline

import (
	"cmp"
	"slices"
	"time"
)

// schedule lists the rooms of a pool by the time at which they have a given number of GPUs free if
// nothing more is planned there. The order holds from round to round; a room whose estimates have
// changed is moved.
type schedule struct {
	rooms []entry // sorted
	round uint64  // of the timeline in which first and at are valid
	first int     // first room without plans
	at    int     // next room to return
}

// entry is a room in a schedule.
type entry struct {
	at    time.Duration // by the clock; 0 for now
	spare int
	room  int32
}

// from returns the time from now until the room is free, 0 if it is free already.
func (a *entry) from(now time.Duration) time.Duration { return max(a.at-now, 0) }

func (a entry) compare(b entry) int {
	return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.spare, b.spare), cmp.Compare(a.room, b.room))
}

// schedule returns the schedule of a pool for a number of GPUs, and makes it when it is first
// needed.
func (t *Timeline) schedule(p *Pool, gpus int) *schedule {
	for len(p.schedules) <= gpus {
		p.schedules = append(p.schedules, nil)
	}

	c := p.schedules[gpus]
	if c == nil {
		c = &schedule{rooms: make([]entry, 0, len(p.rooms))}
		p.schedules[gpus] = c
		for _, at := range p.rooms {
			if when, spare, ok := freesAt(t.releasesOf(at), gpus); ok && t.states[at].open {
				c.rooms = append(c.rooms, entry{when, spare, at})
			}
		}

		slices.SortFunc(c.rooms, entry.compare)
	}

	if c.round != t.round {
		c.round, c.first, c.at = t.round, 0, 0
	}

	return c
}

// next returns the room without plans that is free soonest, of those that were not passed yet.
func (c *schedule) next(t *Timeline) (entry, bool) {
	for ; c.at < len(c.rooms); c.at++ {
		if !t.planned(c.rooms[c.at].room) {
			return c.rooms[c.at], true
		}

		if c.first == c.at {
			c.first++
		}
	}

	return entry{}, false
}

// pass advances to the room after the one that next returned.
func (c *schedule) pass() { c.at++ }

// rewind starts again at the first room.
func (c *schedule) rewind() { c.at = c.first }

// remove removes a room.
func (c *schedule) remove(x entry) {
	if at, found := slices.BinarySearchFunc(c.rooms, x, entry.compare); found {
		c.rooms = slices.Delete(c.rooms, at, at+1)
	}
}

// insert adds a room.
func (c *schedule) insert(x entry) {
	at, _ := slices.BinarySearchFunc(c.rooms, x, entry.compare)
	c.rooms = slices.Insert(c.rooms, at, x)
}
