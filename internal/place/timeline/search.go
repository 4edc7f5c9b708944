package timeline

import (
	"cmp"
	"slices"
	"time"
)

// candidate is a room that a job could wait for.
type candidate struct {
	at      int32
	when    time.Duration
	spare   int // GPUs that remain free at that time
	pool    int // index of its pool in the search
	profile *profile
}

func (c *candidate) compare(o *candidate) int {
	return cmp.Or(cmp.Compare(c.when, o.when), cmp.Compare(c.spare, o.spare), cmp.Compare(c.at, o.at))
}

// Earliest returns the rooms of a pool in which a job can start soonest after now, and the time
// from now until then. It returns nil and Never if the job cannot start by latest.
func (t *Timeline) Earliest(q *Request, p *Pool, latest time.Duration) ([]int32, time.Duration) {
	if q.Shape.Match.Need.Nodes > 1 {
		return t.EarliestAcross(q, latest, p)
	}

	return t.earliestSingle(q, p, latest)
}

// earliestSingle finds the room that is free soonest for a job on one node.
func (t *Timeline) earliestSingle(q *Request, p *Pool, latest time.Duration) ([]int32, time.Duration) {
	t.candidates = t.candidates[:0]
	t.nearest(q, p, latest, 1)

	list := t.candidates
	best := -1
	for i := range list {
		if list[i].when == 0 { // free now, but FitNow did not take it
			continue
		}

		if best < 0 || list[i].compare(&list[best]) < 0 {
			best = i
		}
	}

	if best < 0 {
		return nil, Never
	}

	return t.single(list[best].at), list[best].when
}

// EarliestAcross is Earliest for a job on several nodes that may have rooms of several pools: it
// finds the first time at which enough rooms are free together. Of those that are free then, it
// takes as many as it can of the first pool, then of the next.
func (t *Timeline) EarliestAcross(q *Request, latest time.Duration, pools ...*Pool) ([]int32, time.Duration) {
	nodes, takes := q.Shape.Match.Need.Nodes, q.Shape.Takes

	t.candidates = t.candidates[:0]
	for i, p := range pools {
		first := len(t.candidates)
		t.nearest(q, p, latest, nodes)
		for k := first; k < len(t.candidates); k++ {
			t.candidates[k].pool = i
		}
	}

	list := t.candidates
	if len(list) < nodes {
		return nil, Never
	}

	when := max(t.nthSoonest(list, nodes), time.Nanosecond)
	open := 0 // the first so many candidates are those whose first time has come, in order

	for range maxGangTries {
		open = advance(list, open, when)

		var rooms []int32
		next := Never
		for i := range list[:open] {
			c := &list[i]
			if c.profile.fits(when, takes, q.Lasts) {
				rooms = append(rooms, c.at)
				if len(rooms) == nodes {
					return rooms, when
				}

				continue
			}

			if at := c.profile.earliestFrom(when+1, takes, q.Lasts, Never); at != Never {
				next = min(next, at)
			}
		}

		for i := open; i < len(list); i++ {
			next = min(next, list[i].when)
		}

		if next == Never || next > latest {
			break
		}

		when = next
	}

	return nil, Never
}

// nthSoonest returns the first time by which so many candidates have had theirs.
func (t *Timeline) nthSoonest(list []candidate, n int) time.Duration {
	soonest := t.soonest[:0]
	for i := range list {
		when := list[i].when
		if len(soonest) == n {
			if when >= soonest[n-1] {
				continue
			}

			soonest = soonest[:n-1]
		}

		at, _ := slices.BinarySearch(soonest, when)
		soonest = slices.Insert(soonest, at, when)
	}

	t.soonest = soonest

	return soonest[n-1]
}

// advance moves the candidates whose first time has come to the front, where the first so many are already, and sorts
// these in the order in which they are taken. It returns how many they are. The others are mostly many.
func advance(list []candidate, open int, when time.Duration) int {
	before := open

	for i := open; i < len(list); i++ {
		if list[i].when <= when {
			list[i], list[open] = list[open], list[i]
			open++
		}
	}

	if open > before {
		slices.SortFunc(list[:open], func(a, b candidate) int {
			return cmp.Or(cmp.Compare(a.pool, b.pool), cmp.Compare(a.when, b.when), cmp.Compare(a.at, b.at))
		})
	}

	return open
}

// maxGangTries bounds the number of times at which EarliestAcross tries to find enough rooms.
const maxGangTries = 64

// nearest adds candidates for the soonest start of a job: all rooms that this plan has changed, and
// the first count of the others. Rooms without plans only gain free GPUs as time passes, so the
// schedule of the pool has them in the right order.
func (t *Timeline) nearest(q *Request, p *Pool, latest time.Duration, count int) {
	soonest := latest
	for _, x := range p.changed {
		when := t.consider(q, p, x, soonest)
		if count == 1 && when > 0 && when < soonest {
			soonest = when // a later one would not be taken
		}
	}

	t.nearestUnchanged(q, p, latest, count)
}

// consider adds a room to the candidates and returns when the job could start there, Never if not
// by latest.
func (t *Timeline) consider(q *Request, p *Pool, x *roomPlan, latest time.Duration) time.Duration {
	t.visits++
	takes, match := q.Shape.Takes, q.Shape.Match
	if !x.total.Holds(takes) || t.closedTo(q.Job, x.room) {
		return Never
	}

	// The rooms of an able pool are interchangeable, except for what single nodes have and in pools of mixed GPUs.
	if (p.Kind < 0 || match.Need.Particular()) && !match.Eligible(&t.rooms[x.room]) {
		return Never
	}

	profile := t.profileOf(x)
	when := profile.earliest(takes, q.Lasts, latest)
	if when != Never {
		spare := profile.at(when).GPUs - takes.GPUs
		t.candidates = append(t.candidates, candidate{at: x.room, when: when, spare: spare, profile: profile})
	}

	return when
}

// nearestUnchanged adds rooms without plans, the soonest first, until it has found count rooms and
// no other can be sooner.
func (t *Timeline) nearestUnchanged(q *Request, p *Pool, latest time.Duration, count int) {
	c := t.schedule(p, q.Shape.Match.Need.GPUs)
	last := Never // when the last of the count soonest rooms is free

	for found := 0; ; {
		next, ok := c.next(t)
		if !ok || next.from(t.now) > latest || found >= count && next.from(t.now) >= last {
			break
		}

		c.pass()

		when := t.consider(q, p, t.plan(next.room), latest)
		if when == 0 || when == Never {
			continue
		}

		found++
		if found <= count || when < last {
			last = when
		}
	}

	c.rewind()
}
