package rules

import (
	"cmp"
	"slices"
	"time"
)

// candidate is a room that a job could wait for.
type candidate struct {
	at    int32
	when  time.Duration
	spare int // GPUs that are left then
	steps *profile
}

func (c *candidate) compare(o *candidate) int {
	return cmp.Or(cmp.Compare(c.when, o.when), cmp.Compare(c.spare, o.spare), cmp.Compare(c.at, o.at))
}

// single finds the room that is free soonest for a job of one node.
func (e *engine) single(w *wait, s *shape, st *stock, lasts, limit time.Duration) ([]int32, time.Duration) {
	best, list := -1, e.nearest(w, s, st, lasts, limit, 1)
	for i := range list {
		if list[i].when > 0 && (best < 0 || list[i].compare(&list[best]) < 0) { // else now is not to be had for another reason
			best = i
		}
	}
	if best < 0 {
		return nil, never
	}
	return e.only(list[best].at), list[best].when
}

// only returns a list of one room. It is good until options are made again.
func (e *engine) only(at int32) []int32 {
	p := e.policy
	p.only = append(p.only, at)
	return p.only[len(p.only)-1 : len(p.only) : len(p.only)]
}

// gang finds the first time at which enough rooms are free together.
func (e *engine) gang(w *wait, s *shape, st *stock, lasts, limit time.Duration) ([]int32, time.Duration) {
	need := &s.match.Need
	n := units(need)
	list := e.nearest(w, s, st, lasts, limit, need.Nodes)
	if len(list) < need.Nodes {
		return nil, never
	}
	slices.SortFunc(list, func(a, b candidate) int { return cmp.Or(cmp.Compare(a.when, b.when), cmp.Compare(a.at, b.at)) })
	when := max(list[need.Nodes-1].when, time.Nanosecond)
	for range maxGangTries {
		var rooms []int32
		next := never
		for i := range list {
			c := &list[i]
			if c.steps.fits(when, n, lasts) {
				if rooms = append(rooms, c.at); len(rooms) == need.Nodes {
					return rooms, when
				}
				continue
			}
			if t := c.steps.from(when+1).earliest(n, lasts, never); t != never {
				next = min(next, t)
			}
		}
		if next == never || next > limit {
			break
		}
		when = next
	}
	return nil, never
}

// maxGangTries bounds the search for a time at which many rooms are free together.
const maxGangTries = 64

// nearest returns the rooms of a stock of which the soonest for a job can be chosen:
// those in whose future something is planned, and so many of the others. Of those it
// is known when they have how many GPUs, and that they keep them.
func (e *engine) nearest(w *wait, s *shape, st *stock, lasts, limit time.Duration, count int) []candidate {
	e.policy.near = e.policy.near[:0]
	soonest := limit
	for _, x := range st.planned {
		if t := e.look(w, s, st, x, lasts, soonest); count == 1 && t > 0 && t < soonest {
			soonest = t // later ones are of no use
		}
	}
	e.among(w, s, st, lasts, limit, count)
	return e.policy.near
}

// look adds a room to those that a job could wait for, and returns when that would be;
// never if it could not.
func (e *engine) look(w *wait, s *shape, st *stock, x *sheet, lasts, limit time.Duration) time.Duration {
	e.visits++
	n := s.takes
	if !x.most.holds(n) || e.taken(w, x.room) || (st.kind < 0 || s.match.Need.Avoid != "") && !s.match.Eligible(&e.view.Rooms[x.room]) {
		return never
	}
	p := e.steps(x)
	t := p.earliest(n, lasts, limit)
	if t != never {
		e.policy.near = append(e.policy.near, candidate{x.room, t, p.at(t).gpus - n.gpus, p})
	}
	return t
}

// among looks at rooms in which nothing is planned, the soonest first, until as many
// as are wanted are found and no other can be sooner.
func (e *engine) among(w *wait, s *shape, st *stock, lasts, limit time.Duration, count int) {
	c := e.schedule(st, s.match.Need.GPUs)
	last := never // when the last of those is free that are wanted
	for found := 0; ; {
		next, ok := c.next(e)
		if !ok || next.from(e.now) > limit || found >= count && next.from(e.now) >= last {
			break
		}
		c.pass(next)
		if when := e.look(w, s, st, e.sheet(next.room), lasts, limit); when > 0 && when != never {
			if found++; found <= count || when < last {
				last = when
			}
		}
	}
	c.back()
}
