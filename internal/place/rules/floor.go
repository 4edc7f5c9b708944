package rules

import (
	"math/bits"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/place"
)

// floor is what is known of the rooms from round to round: which of them are alike, and
// when each will have how many GPUs free. It is dropped as a whole when a node comes,
// goes or changes, or when the tariff does; a room in which something starts or ends is
// looked at again by itself, by its mark, and one in which something is late in each round.
type floor struct {
	serial uint64 // of this floor: what was compared with another is compared anew
	tariff *fleet.Tariff
	spots  []spot // of the rooms, in the order of the view
	stocks []*stock
	open   []free   // what each room has left in this round's plan
	sheets []*sheet // what this round plans in each; nil for nothing
	used   []int32  // rooms that have a sheet
}

// spot is what is known of one room.
type spot struct {
	node   *fleet.Node
	mark   *byte
	sound  uint64
	free   uint64
	holds  int
	kind   int32
	stock  int32
	open   bool
	moving bool          // something there is late, or nobody knows when it ends: that moves as time passes
	moves  time.Duration // if not, it will from then on
	ends   []ending      // when it will have how many GPUs free; empty if not worked out
	round  uint64        // in which that was, if it moves
	plain  bool          // that follows from given alone: nothing is shared, and all ends were said
	given  []ending      // GPUs that what runs there gives back, and when that was said to be
}

// sheet is what this round plans in a room.
type sheet struct {
	room    int32
	most    size    // that the node has in all
	steps   profile // what will be free there; nil while nobody has looked
	begun   []begun // what is started there, as long as nobody has
	planned bool    // something is started, stopped or booked there
	booked  bool    // it is kept for someone from some time on
}

// clockOf is a time as the floor counts it: by the wall, since 1970. The start of what is
// free now is 0, whenever now is.
func clockOf(t time.Time) time.Duration { return t.Sub(time.Unix(0, 0)) }

// update brings the floor up to date with a view.
func (f *floor) update(e *engine) {
	for _, at := range f.used {
		f.sheets[at] = nil
	}
	f.used = f.used[:0]
	v := e.view
	if len(f.spots) != len(v.Rooms) || f.tariff != v.Tariff || !f.refresh(e) {
		f.build(v)
		f.refresh(e)
	}
	for _, st := range f.stocks {
		st.charge(v)
	}
}

// refresh looks at what has changed, and reports whether the floor is still the same.
func (f *floor) refresh(e *engine) bool {
	v := e.view
	for _, st := range f.stocks {
		st.begin(&v.Rooms[st.rooms[0]])
	}
	for i := range v.Rooms {
		r, s := &v.Rooms[i], &f.spots[i]
		if s.node != r.Node || s.open != r.Open || s.sound != r.Sound || s.kind != r.Kind {
			return false
		}
		f.open[i] = free{r.Free, r.CPUs, r.Memory}
		st := f.stocks[s.stock]
		if r.Open {
			st.put(int32(i), bits.OnesCount64(r.Free))
		}
		if s.mark != r.Mark || r.Mark == nil || s.free != r.Free || s.holds != len(r.Holds) || !s.moving && s.moves <= e.now {
			f.reread(e, int32(i))
		}
		if s.moving && s.open {
			st.moving = append(st.moving, int32(i))
		}
	}
	return true
}

// reread takes up a room that has changed, or in which something has become late.
func (f *floor) reread(e *engine, at int32) {
	r, s := &e.view.Rooms[at], &f.spots[at]
	s.mark, s.free, s.holds = r.Mark, r.Free, len(r.Holds)
	s.moves, s.moving, s.plain, s.given = never, false, true, s.given[:0]
	for i := range r.Holds {
		h := &r.Holds[i]
		s.plain = s.plain && h.Share == 0 && !h.Ends.IsZero()
		if h.Ends.IsZero() {
			s.moving = true
			continue
		}
		end := clockOf(h.Ends)
		s.moves = min(s.moves, end)
		if n := bits.OnesCount64(h.GPUs & r.Sound); n > 0 {
			s.given = append(s.given, ending{end, n})
		}
	}
	s.moving = s.moving || s.moves <= e.now
	s.ends = s.ends[:0]
	if !s.open {
		return
	}
	st := f.stocks[s.stock]
	if st.churn++; st.churn > len(st.rooms)/8+8 {
		st.soon = nil // faster made anew
	}
	for gpus, c := range st.soon {
		if c == nil {
			continue
		}
		c.remove(at)
		if t, spare, ok := e.freesAt(at, gpus); ok && !s.moving {
			c.insert(entry{t, spare, at})
		}
	}
}

// build makes the floor anew.
func (f *floor) build(v *place.View) {
	type stockKey struct {
		class fleet.Class
		kind  int32
	}
	*f = floor{
		serial: f.serial + 1, tariff: v.Tariff, spots: make([]spot, len(v.Rooms)), open: make([]free, len(v.Rooms)), sheets: make([]*sheet, len(v.Rooms)),
	}
	index := map[stockKey]int32{}
	for i := range v.Rooms {
		r := &v.Rooms[i]
		k := stockKey{r.Node.Class, r.Kind}
		unlike := r.Kind < 0 && len(r.Node.Inventory.GPUs) > 0 // GPUs of several kinds: a stock of its own
		if unlike {
			k.kind = -2 - int32(i)
		}
		at, ok := index[k]
		if !ok {
			at = int32(len(f.stocks))
			index[k] = at
			f.stocks = append(f.stocks, newStock(v, r))
			f.stocks[at].index = int(at)
		}
		f.spots[i] = spot{node: r.Node, open: r.Open, sound: r.Sound, kind: r.Kind, stock: at, holds: -1}
		f.stocks[at].rooms = append(f.stocks[at].rooms, int32(i))
	}
}

// stock is rooms of one class with one kind of GPU.
type stock struct {
	index  int
	class  fleet.Class
	rank   int // of the class: local first
	kind   int32
	tflops float64 // of one GPU; 0 if unknown
	energy float64 // money for an hour of one GPU in use, beyond the idle node
	rent   float64 // money for an hour of one GPU that is paid for its sake
	tariff float64 // what the books say an hour of one GPU costs by the tariff
	shown  float64 // and what they will say, with the rent
	lease  int     // where the lease of the sample was found
	rooms  []int32
	soon   []*schedule // the rooms by when they have so many GPUs free

	// of this round
	sample  *fleet.Room
	churn   int       // rooms that have changed
	moving  []int32   // rooms that move
	free    [][]int32 // rooms by how many GPUs they have free, and where they once stood
	stood   uint64    // numbers of GPUs under which rooms once stood
	planned []*sheet  // of the rooms with plans
}

func newStock(v *place.View, r *fleet.Room) *stock {
	n := r.Node
	s := &stock{class: n.Class, rank: slices.Index(fleet.Classes(), n.Class), kind: r.Kind}
	gpus := float64(max(len(n.Inventory.GPUs), 1))
	if len(n.Inventory.GPUs) > 0 {
		s.tflops, _ = n.Inventory.GPUs[0].TFLOPS()
	}
	if p := v.Tariff.Of(n); p != nil {
		t := v.Tariff
		all := len(n.Inventory.GPUs)
		s.energy = (t.Power(p, all) - t.Power(p, 0)) / 1000 * t.Energy / gpus
		if len(p.Watts) == 0 && all > 0 { // nobody said what it draws: what its GPUs may
			s.energy = n.Inventory.GPUs[0].Watts / 1000 * t.Energy
		}
		s.tariff = t.Rate(p, all) / gpus
	}
	return s
}

// begin forgets what the last round did in a stock.
func (s *stock) begin(sample *fleet.Room) {
	clear(s.planned)
	s.sample, s.churn, s.moving, s.stood, s.planned = sample, 0, s.moving[:0], 0, s.planned[:0]
	for i := range s.free {
		s.free[i] = s.free[i][:0]
	}
}

// charge says what an hour costs: of hired nodes the rent, by the lease of one of them.
func (s *stock) charge(v *place.View) {
	s.rent, s.shown = 0, s.tariff
	n := s.sample.Node
	if n.Class != fleet.OnDemand {
		return
	}
	if s.lease >= len(v.Leases) || v.Leases[s.lease].ID != n.Lease {
		s.lease = slices.IndexFunc(v.Leases, func(l *fleet.Lease) bool { return l.ID == n.Lease })
	}
	if s.lease < 0 {
		s.lease = len(v.Leases)
		return
	}
	s.rent = float64(v.Leases[s.lease].Offer.Hourly) / 1e6 / float64(max(len(n.Inventory.GPUs), 1))
	s.shown = s.rent
}

// put enters a room by what it has free.
func (s *stock) put(room int32, gpus int) {
	for len(s.free) <= gpus {
		s.free = append(s.free, nil)
	}
	s.free[gpus] = append(s.free[gpus], room)
}
