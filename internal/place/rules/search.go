package rules

import (
	"cmp"
	"math/bits"
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
	var best *candidate
	for _, c := range e.nearest(w, s, st, lasts, limit, 1) {
		if c.when > 0 && (best == nil || c.compare(best) < 0) { // else now is not to be had for another reason
			best = &c
		}
	}
	if best == nil {
		return nil, never
	}
	return []int32{best.at}, best.when
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
	var list []candidate
	n := units(&s.match.Need)
	look := func(at int32) *candidate {
		e.visits++
		r := &e.view.Rooms[at]
		if j, hired := e.mine[at]; !r.Open || hired && j != w.it.Job || !s.match.Eligible(r) {
			return nil
		}
		p := e.profile(at)
		t := p.earliest(n, lasts, limit)
		if t == never {
			return nil
		}
		list = append(list, candidate{at, t, p.at(t).gpus - n.gpus, p})
		return &list[len(list)-1]
	}
	for _, at := range st.planned {
		look(at)
	}
	e.among(st, n.gpus, limit, count, look)
	return list
}

// among looks at rooms in which nothing is planned, the soonest first, until as many
// as are wanted are found and no other can be sooner.
func (e *engine) among(st *stock, gpus int, limit time.Duration, count int, look func(int32) *candidate) {
	c := e.calendar(st, gpus)
	var aside []entry
	var last *candidate
	for found := 0; len(*c) > 0; {
		next := (*c)[0]
		if e.planned[next.room] {
			c.pop()
			continue
		}
		if next.at > limit || found >= count && last != nil && next.at >= last.when {
			break
		}
		aside = append(aside, c.pop())
		if got := look(next.room); got != nil && got.when > 0 {
			found++
			if last == nil || got.when < last.when || found <= count {
				last = &candidate{at: got.at, when: got.when, spare: got.spare}
			}
		}
	}
	for _, x := range aside {
		c.push(x)
	}
}

// calendar lists the rooms of a stock by when they will have so many GPUs free if
// nothing more is planned there, as a heap.
type calendar []entry

type entry struct {
	at    time.Duration
	spare int
	room  int32
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

// calendar returns that of a stock, made when it is first asked for.
func (e *engine) calendar(st *stock, gpus int) *calendar {
	if c := st.soon[gpus]; c != nil {
		return c
	}
	c := make(calendar, 0, len(st.rooms))
	for _, at := range st.rooms {
		if e.planned[at] || !e.view.Rooms[at].Open {
			continue
		}
		if t, spare, ok := e.frees(at, gpus); ok {
			c = append(c, entry{t, spare, at})
		}
	}
	for i := len(c)/2 - 1; i >= 0; i-- {
		c.down(i)
	}
	if st.soon == nil {
		st.soon = map[int]*calendar{}
	}
	st.soon[gpus] = &c
	return &c
}

// frees returns when a room has so many GPUs free if what runs there ends as expected,
// and how many more.
func (e *engine) frees(at int32, gpus int) (time.Duration, int, bool) {
	for _, x := range e.endings(at) {
		if x.free >= gpus {
			return x.at, x.free - gpus, true
		}
	}
	return 0, 0, false
}

// ending is how many GPUs a room has free from some time on.
type ending struct {
	at   time.Duration
	free int
}

// span is where the endings of a room are in the list of all; one more than that, so
// that 0 is nowhere.
type span struct{ from, to int32 }

// endings lists when a room will have how many GPUs free as the view has it, worked
// out once in a round.
func (e *engine) endings(at int32) []ending {
	if s := e.spans[at]; s.from > 0 {
		return e.ends[s.from-1 : s.to-1]
	}
	r := &e.view.Rooms[at]
	from := len(e.ends)
	for i := range r.Holds {
		if n := e.returns(r, i).gpus; n > 0 {
			e.ends = append(e.ends, ending{e.left(&r.Holds[i]), n})
		}
	}
	list := e.ends[from:]
	slices.SortFunc(list, func(a, b ending) int { return cmp.Compare(a.at, b.at) })
	e.ends = append(e.ends, ending{}) // now comes first
	list = e.ends[from:]
	copy(list[1:], list)
	list[0] = ending{0, bits.OnesCount64(r.Free)}
	kept := 0
	for i := 1; i < len(list); i++ { // what ends together is one
		free := list[kept].free + list[i].free
		if list[i].at > list[kept].at {
			kept++
		}
		list[kept] = ending{list[i].at, free}
	}
	e.ends = e.ends[:from+kept+1]
	e.spans[at] = span{int32(from) + 1, int32(len(e.ends)) + 1}
	return e.ends[from:]
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
