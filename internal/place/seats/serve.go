package seats

import (
	"cmp"
	"slices"

	"trainyard/internal/fleet"
)

// candidate is a room in which a want could have a seat.
type candidate struct {
	at   int32
	fits uint64 // GPUs it could have there
	cap  int    // how many of them it may have; 1 for a job without GPUs
	own  uint64 // what it holds there now
	here bool   // it has a seat there now
	soon uint64 // what of it others must let go first
}

// bounds are the limits of one want.
type bounds struct {
	lo, hi      int // on each node
	nodes, most int // number of nodes
	least       int // in all
	gpus        bool
}

func boundsOf(w *Want) bounds {
	n := &w.Item.Shape.Need
	b := bounds{lo: n.GPUs, hi: n.MaxGPUs, nodes: n.Nodes, most: n.MaxNodes, gpus: n.MaxGPUs > 0}
	if !b.gpus {
		b.lo, b.hi = 1, 1
	}
	b.lo = max(b.lo, 1)
	b.least = max(w.Least, b.nodes*b.lo)
	return b
}

// serve deals a want its seats: what it holds and more, or others if that takes
// fewer nodes or gives more.
func (d *dealer) serve(i int) {
	w, h := &d.wants[i], &d.dealt[i]
	b := boundsOf(w)
	d.unbook(i)
	var best hand
	if len(h.cards) > 0 {
		best = d.extend(w, b, h.cards)
	}
	// No other seats can be better than all on as few nodes as there can be.
	if best.count < w.GPUs || len(best.cards) > max(b.nodes, (w.GPUs+b.hi-1)/b.hi) {
		if fresh := d.anew(w, b, h.cards); fresh.count > best.count || fresh.count == best.count && len(fresh.cards) < len(best.cards) {
			best = fresh
		}
	}
	if best.count < b.least {
		best = d.refused(i)
	}
	*h = best
	d.book(i)
}

// refused is what a want has that cannot have enough: what it has now, if it was
// to grow.
func (d *dealer) refused(i int) hand {
	w := &d.wants[i]
	r := w.Running
	if r == nil || w.GPUs < d.held(w) {
		return hand{}
	}
	h := hand{fixed: true}
	for _, s := range r.Seats {
		at, found := d.find(s.Node)
		if !found || !d.still(at, s.GPUs, &w.Item.Shape.Need) {
			return hand{}
		}
		h.cards = append(h.cards, card{at, s.GPUs})
	}
	h.count = d.units(w, h.cards)
	return h
}

// still reports whether nobody was given what a job has of a room.
func (d *dealer) still(at int32, gpus uint64, need *fleet.Need) bool {
	r := &d.rooms[at]
	return gpus&r.Sound&^r.Free == 0 && r.CPUs >= need.CPUs && r.Memory >= need.Memory
}

// held is what a running job has now.
func (d *dealer) held(w *Want) int {
	if w.Item.Shape.Need.MaxGPUs == 0 {
		return len(w.Running.Seats)
	}
	return w.Running.GPUs
}

// shrink keeps as much of a job's seats as it is to have, on as few nodes as
// possible.
func (d *dealer) shrink(w *Want, own []card) []card {
	list := make([]candidate, 0, len(own))
	for _, c := range own {
		n := 1
		if c.gpus != 0 {
			n = count(c.gpus)
		}
		list = append(list, candidate{at: c.at, fits: c.gpus, cap: n, own: c.gpus})
	}
	slices.SortStableFunc(list, func(a, b candidate) int { return cmp.Compare(b.cap, a.cap) })
	return split(list, w.GPUs, boundsOf(w)).cards
}

// extend adds to the seats that a job has: first on its nodes, then on others of
// the same kind.
func (d *dealer) extend(w *Want, b bounds, own []card) hand {
	m := d.matcher(w)
	list := make([]candidate, 0, len(own))
	total := 0
	for _, c := range own {
		r := &d.rooms[c.at]
		fits, ok := m.Fits(r)
		if !ok || c.gpus&^fits != 0 {
			return hand{}
		}
		k := candidate{at: c.at, fits: fits, cap: 1, own: c.gpus, soon: fits &^ c.gpus &^ d.view.Rooms[c.at].Free}
		if b.gpus {
			k.cap = min(b.hi, count(fits))
		}
		if d.units(w, own) >= w.GPUs && b.gpus {
			k.cap = count(c.gpus) // it only shrinks; elsewhere there is no need for more
		}
		list = append(list, k)
		total += k.cap
	}
	if total < w.GPUs && len(list) < b.most {
		others := d.candidates(w, b, d.rooms[own[0].at].Kind, own)
		others = slices.DeleteFunc(others, func(c candidate) bool { return c.here })
		list = append(list, pick(others, w.GPUs-total, bounds{lo: 1, hi: b.hi, most: b.most - len(list), gpus: b.gpus})...)
	}
	return split(list, w.GPUs, b)
}

// anew finds seats on the first allowed kind that has enough, or on the one that has most.
func (d *dealer) anew(w *Want, b bounds, own []card) hand {
	var best hand
	for _, kind := range d.kinds(w, own) {
		got := split(pick(d.candidates(w, b, kind, own), w.GPUs, b), w.GPUs, b)
		if got.count > best.count {
			best = got
		}
		if best.count == w.GPUs {
			break
		}
	}
	return best
}

// kinds lists the kinds that a want may have, the one to try first in front: that
// of its present seats, then as the want says, or by rank.
func (d *dealer) kinds(w *Want, own []card) []int32 {
	if w.Item.Shape.Need.MaxGPUs == 0 {
		return []int32{-1} // any will do
	}
	list := slices.Clone(w.Kinds)
	if list == nil {
		var first []int32 // rank of each kind
		for i := range d.rooms {
			r := &d.rooms[i]
			at := slices.Index(list, r.Kind)
			if at < 0 {
				list, first = append(list, r.Kind), append(first, d.rank[r.Group])
			} else {
				first[at] = min(first[at], d.rank[r.Group])
			}
		}
		place := map[int32]int32{}
		for i, k := range list {
			place[k] = first[i]
		}
		slices.SortFunc(list, func(a, b int32) int { return cmp.Or(cmp.Compare(place[a], place[b]), cmp.Compare(a, b)) })
	}
	if len(own) > 0 {
		if at := slices.Index(list, d.rooms[own[0].at].Kind); at > 0 {
			k := list[at]
			list = slices.Insert(slices.Delete(list, at, at+1), 0, k)
		}
	}
	return list
}

// candidates lists the rooms of a kind in which a want could have a seat, the
// best first: those that can give most, then those where it is now, those where it
// need not wait for others to stop, the cheapest, the tightest. A job without GPUs
// may have rooms of any kind.
func (d *dealer) candidates(w *Want, b bounds, kind int32, own []card) []candidate {
	m := d.matcher(w)
	list := d.cands[:0]
	for k := range own {
		d.seat[own[k].at] = int32(k + 1)
	}
	for i := range d.rooms {
		r := &d.rooms[i]
		if b.gpus && (r.Kind != kind || count(r.Free) < b.lo) {
			continue
		}
		fits, ok := m.Fits(r)
		if !ok || b.gpus && count(fits) < b.lo {
			continue
		}
		c := candidate{at: int32(i), fits: fits, cap: 1}
		if b.gpus {
			c.cap = min(b.hi, count(fits))
		}
		if k := d.seat[i]; k > 0 {
			c.here, c.own = true, own[k-1].gpus&fits
		}
		c.soon = fits &^ c.own &^ d.view.Rooms[i].Free
		list = append(list, c)
	}
	for k := range own {
		d.seat[own[k].at] = 0
	}
	d.cands = list
	prefer := w.Item.Prefer
	slices.SortFunc(list, func(a, c candidate) int {
		x, y := &d.rooms[a.at], &d.rooms[c.at]
		return cmp.Or(cmp.Compare(c.cap, a.cap), first(a.here, c.here), first(a.free(b) >= a.cap, c.free(b) >= c.cap), first(x.Node.ID == prefer, y.Node.ID == prefer),
			cmp.Compare(d.rank[x.Group], d.rank[y.Group]), cmp.Compare(count(x.Free), count(y.Free)), cmp.Compare(a.at, c.at))
	})
	return list
}

// first orders what is so before what is not.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// pick takes the fewest rooms that give enough. The last is the tightest that will
// do, if there is one where the job need not wait among those.
func pick(list []candidate, want int, b bounds) []candidate {
	sum, k := 0, 0
	for k < len(list) && k < b.most && (sum < want || k < b.nodes) {
		sum += list[k].cap
		k++
	}
	if k == 0 {
		return nil
	}
	picked := list[:k:k]
	if sum < want || k == len(list) {
		return picked
	}
	rest := max(want-(sum-list[k-1].cap), b.lo, 1)
	last := k - 1
	for i := k; i < len(list) && list[i].cap >= rest; i++ { // the list falls with the capacity
		x, y := list[i].free(b) >= rest, list[last].free(b) >= rest
		if x && !y || x == y && list[i].cap < list[last].cap {
			last = i
		}
	}
	picked = slices.Clone(picked)
	picked[k-1] = list[last]
	return picked
}

// free is how many GPUs of a room the job can have at once.
func (c *candidate) free(b bounds) int {
	if !b.gpus {
		return c.cap
	}
	return count(c.fits &^ c.soon)
}

// split shares a count out over rooms, in their order: each as much as it may
// have, and none less than it must have.
func split(list []candidate, want int, b bounds) hand {
	sum := 0
	for k := range list {
		if k >= b.nodes && sum >= want {
			list = list[:k]
			break
		}
		sum += list[k].cap
	}
	for len(list) > b.nodes && len(list)*b.lo > min(want, sum) { // one too many for so little
		sum -= list[len(list)-1].cap
		list = list[:len(list)-1]
	}
	left := min(want, sum)
	if len(list) == 0 || len(list) < b.nodes || len(list)*b.lo > left {
		return hand{}
	}
	h := hand{cards: make([]card, 0, len(list)), count: left}
	for k, c := range list {
		n := min(c.cap, left-(len(list)-1-k)*b.lo)
		left -= n
		h.cards = append(h.cards, card{c.at, c.take(n, b)})
	}
	h.count -= left
	return h
}

// take chooses n GPUs of a room: those the job has there first, then free ones.
func (c *candidate) take(n int, b bounds) uint64 {
	if !b.gpus {
		return 0
	}
	got := fleet.Take(c.own, n)
	got |= fleet.Take(c.fits&^got&^c.soon, n-count(got))
	return got | fleet.Take(c.fits&^got, n-count(got))
}
