package allocate

import (
	"math/bits"
	"slices"
	"sort"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/place"
)

// allocator holds the state of the rooms while requests are served.
type allocator struct {
	view           *place.View
	rooms          []fleet.Room // those of the view, without what movable jobs among the requests hold
	last           int          // index of the room found last
	rank           []int32      // rank of each group of rooms; the group to fill first has rank 0
	matchers       map[fleet.Need]*fleet.Matcher
	requests       []Request
	allocations    []allocation
	candidateSpace []candidate // scratch space for the candidates of the request being served
	seatIn         []int32     // scratch space: number of its seat in each room, from 1; 0 for none
}

// allocation is what a request has been given so far.
type allocation struct {
	seats []seat
	count int  // GPUs, or nodes of a job without
	fixed bool // keeps its present seats, regardless of the request
}

// seat is a set of GPUs of one room.
type seat struct {
	room int32 // index of the room
	gpus uint64
}

func newAllocator(v *place.View, requests []Request) *allocator {
	al := &allocator{view: v, rooms: slices.Clone(v.Rooms), matchers: map[fleet.Need]*fleet.Matcher{},
		requests: requests, allocations: make([]allocation, len(requests)), seatIn: make([]int32, len(v.Rooms))}
	al.rank = fleet.RankGroups(v.Rooms)

	running := make([]*place.Running, 0, len(requests))
	for i := range requests {
		if requests[i].Running != nil {
			running = append(running, requests[i].Running)
		}
	}

	al.vacate(running)

	return al
}

// vacate frees what movable jobs hold. GPUs held twice, by a run and by the one that is to follow
// it, stay held as long as one of the two is not movable.
func (al *allocator) vacate(running []*place.Running) {
	loose := make(map[id.Run]bool, len(running))
	touched := make([]bool, len(al.rooms))
	for _, r := range running {
		if !Movable(r) {
			continue
		}

		loose[r.Run] = true

		for _, s := range r.Allocations {
			if at, found := al.find(s.Node); found {
				touched[at] = true
			}
		}
	}

	for i := range al.rooms {
		if !touched[i] {
			continue
		}

		r := &al.rooms[i]
		r.Free = r.Sound
		r.CPUs = r.Node.Inventory.CPUs
		r.Memory = r.Node.Inventory.Memory
		for k := range r.Holds {
			if h := &r.Holds[k]; !loose[h.Run] {
				r.Free &^= h.GPUs
				r.CPUs -= h.CPUs
				r.Memory -= h.Memory
			}
		}
	}
}

// find returns the room of a node. The nodes of a job are often adjacent in the list, so the room
// after the last one found is tried first.
func (al *allocator) find(n id.Node) (int32, bool) {
	al.last++
	if al.last < len(al.rooms) && al.rooms[al.last].Node.ID == n {
		return int32(al.last), true
	}

	at := sort.Search(len(al.rooms), func(i int) bool { return al.rooms[i].Node.ID >= n })
	al.last = at

	return int32(at), at < len(al.rooms) && al.rooms[at].Node.ID == n
}

// matcher returns the matcher for the need of a request.
func (al *allocator) matcher(w *Request) *fleet.Matcher {
	need := w.Item.Shape.Need
	m := al.matchers[need]
	if m == nil {
		m = fleet.NewMatcher(need)
		al.matchers[need] = m
	}

	return m
}

// keep assigns a running job the seats that it has, up to the requested count, so that no other job
// gets them. It reports whether the request still has to be served.
func (al *allocator) keep(i int) bool {
	w := &al.requests[i]
	r := w.Running
	if r == nil {
		return w.GPUs > 0
	}

	h := &al.allocations[i]
	h.fixed = !Movable(r)
	if !h.fixed && w.GPUs == 0 {
		return false
	}

	gone := false // some of its nodes no longer exist

	own := make([]seat, 0, len(r.Allocations))
	for _, s := range r.Allocations {
		at, found := al.find(s.Node)
		if !found {
			gone = true
			continue
		}

		own = append(own, seat{at, s.GPUs})
	}

	if h.fixed || al.unitsOf(w, own) == w.GPUs && !gone && al.kindAllowed(w, own) {
		h.seats, h.count, h.fixed = own, al.unitsOf(w, own), true

		if Movable(r) {
			al.book(i)
		}

		return false
	}

	own = slices.DeleteFunc(own, func(c seat) bool {
		return !al.rooms[c.room].Open ||
			c.gpus&^al.rooms[c.room].Sound != 0
	})

	if al.kindAllowed(w, own) {
		h.seats = own
		if al.unitsOf(w, own) > w.GPUs {
			h.seats = al.shrink(w, own)
		}

		h.count = al.unitsOf(w, h.seats)
		al.book(i)
	}

	return true
}

// unitsOf counts GPUs, or nodes for a job that asks for no GPUs.
func (al *allocator) unitsOf(w *Request, cards []seat) int {
	if w.Item.Shape.Need.MaxGPUs == 0 {
		return len(cards)
	}

	n := 0
	for _, c := range cards {
		n += count(c.gpus)
	}

	return n
}

// kindAllowed reports whether all seats are on one kind, and on one that the request allows.
func (al *allocator) kindAllowed(w *Request, cards []seat) bool {
	if w.Item.Shape.Need.MaxGPUs == 0 {
		return true
	}

	for _, c := range cards {
		k := al.rooms[c.room].Kind
		if k != al.rooms[cards[0].room].Kind || w.Kinds != nil && !slices.Contains(w.Kinds, k) {
			return false
		}
	}

	return true
}

// book subtracts the seats of a request from the rooms.
func (al *allocator) book(i int) { al.change(i, -1) }

// unbook adds the seats of a request back to the rooms.
func (al *allocator) unbook(i int) { al.change(i, 1) }

func (al *allocator) change(i int, sign int) {
	need := &al.requests[i].Item.Shape.Need
	for _, c := range al.allocations[i].seats {
		r := &al.rooms[c.room]

		if sign < 0 {
			r.Free &^= c.gpus
			r.CPUs -= need.CPUs
			r.Memory -= need.Memory
		} else {
			r.Free |= c.gpus & r.Sound
			r.CPUs += need.CPUs
			r.Memory += need.Memory
		}
	}
}

// result returns the final allocation of a request.
func (al *allocator) result(i int) Allocation {
	h, r := &al.allocations[i], al.requests[i].Running
	g := Allocation{GPUs: h.count, Unchanged: r != nil && h.fixed}
	if g.Unchanged {
		g.Seats = r.Allocations
		return g
	}

	if len(h.seats) == 0 {
		return g
	}

	g.Seats = make([]place.Allocation, len(h.seats))
	for k, c := range h.seats {
		g.Seats[k] = place.Allocation{Node: al.rooms[c.room].Node.ID, GPUs: c.gpus}
	}

	g.Unchanged = r != nil && slices.Equal(g.Seats, r.Allocations)

	return g
}

func count(set uint64) int { return bits.OnesCount64(set) }
