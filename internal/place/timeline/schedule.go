package timeline

import (
	"cmp"
	"slices"
	"time"
)

// schedule lists the rooms of a pool by the time at which they have a given number of GPUs free if
// nothing more is planned there. The estimates of most rooms remain valid from round to round, and
// those rooms are kept sorted. The estimates of the others move as time passes, because a job there
// is late or its end is unknown; they are entered anew in each round.
type schedule struct {
	steady []entry // sorted
	moving entryHeap
	round  uint64  // the round in which the moving rooms were entered
	first  int     // first steady room without plans
	at     int     // next steady room to return
	passed []entry // moving rooms that were returned
}

// entryHeap is a heap of rooms, the one that is free soonest on top.
type entryHeap []entry

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

func (a *entry) before(b *entry) bool {
	if a.at != b.at {
		return a.at < b.at
	}
	if a.spare != b.spare {
		return a.spare < b.spare
	}

	return a.room < b.room
}

// schedule returns the schedule of a pool for a number of GPUs, and makes it when it is first
// needed.
func (t *Timeline) schedule(p *Pool, gpus int) *schedule {
	for len(p.schedules) <= gpus {
		p.schedules = append(p.schedules, nil)
	}

	c := p.schedules[gpus]
	if c == nil {
		c = &schedule{steady: make([]entry, 0, len(p.rooms))}
		p.schedules[gpus] = c
		for _, at := range p.rooms {
			if s := &t.states[at]; s.moving || !s.open {
				continue
			}

			if when, spare, ok := t.freesAt(at, gpus); ok {
				c.steady = append(c.steady, entry{when, spare, at})
			}
		}

		slices.SortFunc(c.steady, entry.compare)
	}

	if c.round != t.round {
		c.round, c.first, c.at, c.moving = t.round, 0, 0, c.moving[:0]
		for _, at := range p.moving {
			if when, spare, ok := t.freesAt(at, gpus); ok {
				c.moving = append(c.moving, entry{when, spare, at})
			}
		}

		for i := len(c.moving)/2 - 1; i >= 0; i-- {
			c.moving.down(i)
		}
	}

	return c
}

// next returns the room without plans that is free soonest, of those that were not passed yet.
func (c *schedule) next(t *Timeline) (entry, bool) {
	for c.at < len(c.steady) && t.planned(c.steady[c.at].room) {
		if c.first == c.at {
			c.first++
		}

		c.at++
	}

	for len(c.moving) > 0 && t.planned(c.moving[0].room) {
		c.moving.pop()
	}

	switch {
	case c.at < len(c.steady) && (len(c.moving) == 0 || c.steady[c.at].before(&c.moving[0])):
		return c.steady[c.at], true
	case len(c.moving) > 0:
		return c.moving[0], true
	}

	return entry{}, false
}

// pass advances to the room after the one that next returned.
func (c *schedule) pass(x entry) {
	if c.at < len(c.steady) && c.steady[c.at] == x {
		c.at++
		return
	}

	c.passed = append(c.passed, c.moving.pop())
}

// rewind starts again at the first room.
func (c *schedule) rewind() {
	c.at = c.first
	for _, x := range c.passed {
		c.moving.push(x)
	}

	c.passed = c.passed[:0]
}

// remove removes a room from the steady ones.
func (c *schedule) remove(room int32) {
	if at := slices.IndexFunc(c.steady, func(x entry) bool { return x.room == room }); at >= 0 {
		c.steady = slices.Delete(c.steady, at, at+1)
	}
}

// insert adds a room to the steady ones.
func (c *schedule) insert(x entry) {
	at, _ := slices.BinarySearchFunc(c.steady, x, entry.compare)
	c.steady = slices.Insert(c.steady, at, x)
}

func (c *entryHeap) pop() entry {
	h := *c
	top, last := h[0], len(h)-1
	h[0] = h[last]
	*c = h[:last]
	c.down(0)

	return top
}

func (c *entryHeap) push(x entry) {
	*c = append(*c, x)
	h := *c
	for i := len(h) - 1; i > 0; {
		up := (i - 1) / 2
		if !h[i].before(&h[up]) {
			break
		}

		h[i], h[up] = h[up], h[i]
		i = up
	}
}

func (c *entryHeap) down(i int) {
	h := *c

	for {
		least := i
		for k := 2*i + 1; k <= 2*i+2 && k < len(h); k++ {
			if h[k].before(&h[least]) {
				least = k
			}
		}

		if least == i {
			return
		}

		h[i], h[least] = h[least], h[i]
		i = least
	}
}
