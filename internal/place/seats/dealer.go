package seats

import (
	"math/bits"
	"slices"
	"sort"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/place"
)

// dealer has the rooms as they are while they are dealt out.
type dealer struct {
	view  *place.View
	rooms []fleet.Room // those of the view; what loose jobs among the wants hold is free
	last  int          // the room that was found last
	rank  []int32      // of each group of rooms: the one to fill first is 0
	match map[fleet.Need]*fleet.Matcher
	wants []Want
	dealt []hand
	cands []candidate // space for the candidates of the want being served
	seat  []int32     // and for the number of its seat in each room, from 1
}

// hand is what a want has been dealt.
type hand struct {
	cards []card
	count int  // GPUs, or nodes of a job without
	fixed bool // it stays as it is, whatever was wanted
}

// card is one seat.
type card struct {
	at   int32 // index of the room
	gpus uint64
}

func newDealer(v *place.View, wants []Want) *dealer {
	d := &dealer{view: v, rooms: slices.Clone(v.Rooms), match: map[fleet.Need]*fleet.Matcher{}, wants: wants, dealt: make([]hand, len(wants)), seat: make([]int32, len(v.Rooms))}
	d.rank = fleet.RankGroups(v.Rooms)
	running := make([]*place.Running, 0, len(wants))
	for i := range wants {
		if wants[i].Running != nil {
			running = append(running, wants[i].Running)
		}
	}
	d.free(running)
	return d
}

// free takes what loose jobs hold out of the rooms. What is held twice, by a run
// and by one that is to follow it, stays held as long as one of them is not loose.
func (d *dealer) free(running []*place.Running) {
	loose := make(map[id.Run]bool, len(running))
	touched := make([]bool, len(d.rooms))
	for _, r := range running {
		if !Loose(r) {
			continue
		}
		loose[r.Run] = true
		for _, s := range r.Seats {
			if at, found := d.find(s.Node); found {
				touched[at] = true
			}
		}
	}
	for i := range d.rooms {
		if !touched[i] {
			continue
		}
		r := &d.rooms[i]
		r.Free, r.CPUs, r.Memory = r.Sound, r.Node.Inventory.CPUs, r.Node.Inventory.Memory
		for k := range r.Holds {
			if h := &r.Holds[k]; !loose[h.Run] {
				r.Free &^= h.GPUs
				r.CPUs -= h.CPUs
				r.Memory -= h.Memory
			}
		}
	}
}

// find returns the place of a node's room. The nodes of a job often lie side by
// side, so the one behind the last that was asked for is tried first.
func (d *dealer) find(n id.Node) (int32, bool) {
	if d.last++; d.last < len(d.rooms) && d.rooms[d.last].Node.ID == n {
		return int32(d.last), true
	}
	at := sort.Search(len(d.rooms), func(i int) bool { return d.rooms[i].Node.ID >= n })
	d.last = at
	return int32(at), at < len(d.rooms) && d.rooms[at].Node.ID == n
}

// matcher returns the matcher of a want's need.
func (d *dealer) matcher(w *Want) *fleet.Matcher {
	need := w.Item.Shape.Need
	m := d.match[need]
	if m == nil {
		m = fleet.NewMatcher(need)
		d.match[need] = m
	}
	return m
}

// keep deals a running job what it holds now, as much of it as it is to have, so
// that nobody else is given it. It reports whether more is to be done.
func (d *dealer) keep(i int) bool {
	w := &d.wants[i]
	r := w.Running
	if r == nil {
		return w.GPUs > 0
	}
	h := &d.dealt[i]
	h.fixed = !Loose(r)
	if !h.fixed && w.GPUs == 0 {
		return false
	}
	gone := false // some of its seats cannot be used again
	own := make([]card, 0, len(r.Seats))
	for _, s := range r.Seats {
		at, found := d.find(s.Node)
		if !found {
			gone = true
			continue
		}
		own = append(own, card{at, s.GPUs})
	}
	if h.fixed || d.units(w, own) == w.GPUs && !gone && d.kindAllowed(w, own) {
		h.cards, h.count, h.fixed = own, d.units(w, own), true
		if Loose(r) {
			d.book(i)
		}
		return false
	}
	own = slices.DeleteFunc(own, func(c card) bool { return !d.rooms[c.at].Open || c.gpus&^d.rooms[c.at].Sound != 0 })
	if d.kindAllowed(w, own) {
		h.cards = own
		if d.units(w, own) > w.GPUs {
			h.cards = d.shrink(w, own)
		}
		h.count = d.units(w, h.cards)
		d.book(i)
	}
	return true
}

// units counts GPUs, or the nodes of a job that asks for none.
func (d *dealer) units(w *Want, cards []card) int {
	if w.Item.Shape.Need.MaxGPUs == 0 {
		return len(cards)
	}
	n := 0
	for _, c := range cards {
		n += count(c.gpus)
	}
	return n
}

// kindAllowed reports whether all seats are on one kind that the want allows.
func (d *dealer) kindAllowed(w *Want, cards []card) bool {
	if w.Item.Shape.Need.MaxGPUs == 0 {
		return true
	}
	for _, c := range cards {
		k := d.rooms[c.at].Kind
		if k != d.rooms[cards[0].at].Kind || w.Kinds != nil && !slices.Contains(w.Kinds, k) {
			return false
		}
	}
	return true
}

// book takes what a want was dealt out of the rooms.
func (d *dealer) book(i int) { d.change(i, -1) }

// unbook gives it back.
func (d *dealer) unbook(i int) { d.change(i, 1) }

func (d *dealer) change(i int, sign int) {
	need := &d.wants[i].Item.Shape.Need
	for _, c := range d.dealt[i].cards {
		r := &d.rooms[c.at]
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

// given turns a hand into the answer.
func (d *dealer) given(i int) Given {
	h, r := &d.dealt[i], d.wants[i].Running
	g := Given{GPUs: h.count, Stays: r != nil && h.fixed}
	if g.Stays {
		g.Seats = r.Seats
		return g
	}
	if len(h.cards) == 0 {
		return g
	}
	g.Seats = make([]place.Seat, len(h.cards))
	for k, c := range h.cards {
		g.Seats[k] = place.Seat{Node: d.rooms[c.at].Node.ID, GPUs: c.gpus}
	}
	g.Stays = r != nil && slices.Equal(g.Seats, r.Seats)
	return g
}

func count(set uint64) int { return bits.OnesCount64(set) }
