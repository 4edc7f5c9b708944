package rules

import (
	"cmp"
	"math/bits"
	"slices"
	"time"
)

// schedule lists the rooms of a stock by when they will have so many GPUs free if
// nothing more is planned there. Rooms in which everything ends when that was said stay
// where they are from round to round; the others move as time passes and are entered
// anew in each.
type schedule struct {
	steady []entry // sorted
	moving calendar
	round  uint64  // in which the moving ones were entered
	first  int     // of the steady ones without plans
	at     int     // of the steady ones to be handed out next
	aside  []entry // moving ones that were handed out
}

// calendar is rooms by when they are free, as a heap.
type calendar []entry

type entry struct {
	at    time.Duration // by the clock; 0 for now
	spare int
	room  int32
}

// from returns how long that is from now on.
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

// schedule returns that of a stock, made when it is first asked for.
func (e *engine) schedule(st *stock, gpus int) *schedule {
	for len(st.soon) <= gpus {
		st.soon = append(st.soon, nil)
	}
	c := st.soon[gpus]
	if c == nil {
		c = &schedule{steady: make([]entry, 0, len(st.rooms))}
		st.soon[gpus] = c
		for _, at := range st.rooms {
			if s := &e.floor.spots[at]; s.moving || !s.open {
				continue
			}
			if t, spare, ok := e.freesAt(at, gpus); ok {
				c.steady = append(c.steady, entry{t, spare, at})
			}
		}
		slices.SortFunc(c.steady, entry.compare)
	}
	if c.round != e.round {
		c.round, c.first, c.at, c.moving = e.round, 0, 0, c.moving[:0]
		for _, at := range st.moving {
			if t, spare, ok := e.freesAt(at, gpus); ok {
				c.moving = append(c.moving, entry{t, spare, at})
			}
		}
		for i := len(c.moving)/2 - 1; i >= 0; i-- {
			c.moving.down(i)
		}
	}
	return c
}

// next returns the room without plans that is free soonest of those that were not
// handed out yet.
func (c *schedule) next(e *engine) (entry, bool) {
	for c.at < len(c.steady) && e.planned(c.steady[c.at].room) {
		if c.first == c.at {
			c.first++
		}
		c.at++
	}
	for len(c.moving) > 0 && e.planned(c.moving[0].room) {
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

// pass goes on to the one after what next returned.
func (c *schedule) pass(x entry) {
	if c.at < len(c.steady) && c.steady[c.at] == x {
		c.at++
		return
	}
	c.aside = append(c.aside, c.moving.pop())
}

// back begins from the first again.
func (c *schedule) back() {
	c.at = c.first
	for _, x := range c.aside {
		c.moving.push(x)
	}
	c.aside = c.aside[:0]
}

// remove takes a room out of the steady ones.
func (c *schedule) remove(room int32) {
	if at := slices.IndexFunc(c.steady, func(x entry) bool { return x.room == room }); at >= 0 {
		c.steady = slices.Delete(c.steady, at, at+1)
	}
}

// insert enters a room among the steady ones.
func (c *schedule) insert(x entry) {
	at, _ := slices.BinarySearchFunc(c.steady, x, entry.compare)
	c.steady = slices.Insert(c.steady, at, x)
}

func (c *calendar) pop() entry {
	h := *c
	top, last := h[0], len(h)-1
	h[0] = h[last]
	*c = h[:last]
	c.down(0)
	return top
}

func (c *calendar) push(x entry) {
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

func (c *calendar) down(i int) {
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

// frees returns when a room has so many GPUs free if what runs there ends as expected,
// and how many more.
func (e *engine) frees(at int32, gpus int) (time.Duration, int, bool) {
	t, spare, ok := e.freesAt(at, gpus)
	return max(t-e.now, 0), spare, ok
}

// freesAt is the same by the clock.
func (e *engine) freesAt(at int32, gpus int) (time.Duration, int, bool) {
	for _, x := range e.endings(at) {
		if x.free >= gpus {
			return x.at, x.free - gpus, true
		}
	}
	return 0, 0, false
}

// ending is how many GPUs a room has free from some time on.
type ending struct {
	at   time.Duration // by the clock; 0 for now
	free int
}

// endings lists when a room will have how many GPUs free as the view has it. That is
// worked out once, or if it moves once in a round.
func (e *engine) endings(at int32) []ending {
	s := &e.floor.spots[at]
	if len(s.ends) > 0 && (!s.moving || s.round == e.round) {
		return s.ends
	}
	list := append(s.ends[:0], ending{0, bits.OnesCount64(s.free)})
	if s.plain {
		for _, x := range s.given {
			list = sortIn(list, ending{until(e.now, lasting(x.at-e.now)), x.free})
		}
	} else {
		r := &e.view.Rooms[at]
		for i := range r.Holds {
			if n := e.gives(r, i).gpus; n > 0 { // whatever is planned: it is kept for other rounds
				list = sortIn(list, ending{until(e.now, e.left(&r.Holds[i])), n})
			}
		}
	}
	kept := 0
	for i := 1; i < len(list); i++ { // what ends together is one
		free := list[kept].free + list[i].free
		if list[i].at > list[kept].at {
			kept++
		}
		list[kept] = ending{list[i].at, free}
	}
	s.ends, s.round = list[:kept+1], e.round
	return s.ends
}

// sortIn adds an ending where it belongs. They are few, and mostly in order.
func sortIn(list []ending, x ending) []ending {
	at := len(list)
	list = append(list, x)
	for ; at > 1 && list[at-1].at > x.at; at-- {
		list[at] = list[at-1]
	}
	list[at] = x
	return list
}
