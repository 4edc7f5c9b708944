package allocate

import (
	"cmp"
	"slices"

	"trainyard/internal/fleet"
)

// candidate is a room in which a request could have a seat.
type candidate struct {
	room     int32
	fits     uint64 // GPUs it could have there
	capacity int    // how many of them it may have; 1 for a job without GPUs
	own      uint64 // GPUs that it holds there now
	current  bool   // it has a seat there now
	occupied uint64 // GPUs in fits that running jobs must release first
}

// bounds are the limits of one request.
type bounds struct {
	minPerNode, maxPerNode int // on each node
	minNodes, maxNodes     int // number of nodes
	min                    int // in all
	gpus                   bool
}

func boundsOf(w *Request) bounds {
	n := &w.Item.Shape.Need
	b := bounds{minPerNode: n.GPUs, maxPerNode: n.MaxGPUs, minNodes: n.Nodes, maxNodes: n.MaxNodes, gpus: n.MaxGPUs > 0}
	if !b.gpus {
		b.minPerNode, b.maxPerNode = 1, 1
	}

	b.minPerNode = max(b.minPerNode, 1)
	b.min = max(w.Min, b.minNodes*b.minPerNode)

	return b
}

// serve assigns seats to a request: either its present seats and more, or others if those need
// fewer nodes or have more GPUs.
func (al *allocator) serve(i int) {
	w, h := &al.requests[i], &al.allocations[i]
	b := boundsOf(w)
	al.unbook(i)

	var best allocation
	if len(h.seats) > 0 {
		best = al.extend(w, b, h.seats)
	}

	// If all seats are on the minimum number of nodes, a fresh start cannot be better.
	if best.count < w.GPUs || len(best.seats) > max(b.minNodes, (w.GPUs+b.maxPerNode-1)/b.maxPerNode) {
		if fresh := al.fromScratch(w, b, h.seats); fresh.count > best.count || fresh.count == best.count &&
			len(fresh.seats) < len(best.seats) {
			best = fresh
		}
	}

	if best.count < b.min {
		best = al.unserved(i)
	}

	*h = best
	al.book(i)
}

// unserved returns what a job gets if it cannot have its minimum: its present seats if it was to
// grow, otherwise nothing.
func (al *allocator) unserved(i int) allocation {
	w := &al.requests[i]
	r := w.Running
	if r == nil || w.GPUs < al.currentCount(w) {
		return allocation{}
	}

	h := allocation{fixed: true}
	for _, s := range r.Allocations {
		at, found := al.find(s.Node)
		if !found || !al.available(at, s.GPUs, &w.Item.Shape.Need) {
			return allocation{}
		}

		h.seats = append(h.seats, seat{at, s.GPUs})
	}

	h.count = al.unitsOf(w, h.seats)

	return h
}

// available reports whether the present share of a job in a room was not given to others.
func (al *allocator) available(at int32, gpus uint64, need *fleet.Need) bool {
	r := &al.rooms[at]
	return gpus&r.Sound&^r.Free == 0 && r.CPUs >= need.CPUs && r.Memory >= need.Memory
}

// currentCount returns the present count of a running job.
func (al *allocator) currentCount(w *Request) int {
	if w.Item.Shape.Need.MaxGPUs == 0 {
		return len(w.Running.Allocations)
	}

	return w.Running.GPUs
}

// shrink keeps the requested number of a job's GPUs, on as few nodes as possible.
func (al *allocator) shrink(w *Request, own []seat) []seat {
	list := make([]candidate, 0, len(own))
	for _, c := range own {
		n := 1
		if c.gpus != 0 {
			n = count(c.gpus)
		}

		list = append(list, candidate{room: c.room, fits: c.gpus, capacity: n, own: c.gpus})
	}

	slices.SortStableFunc(list, func(a, b candidate) int { return cmp.Compare(b.capacity, a.capacity) })

	return split(list, w.GPUs, boundsOf(w)).seats
}

// extend adds to the present seats of a job: first on its nodes, then on others of the same kind.
func (al *allocator) extend(w *Request, b bounds, own []seat) allocation {
	m := al.matcher(w)
	list := make([]candidate, 0, len(own))
	total := 0

	for _, c := range own {
		r := &al.rooms[c.room]
		fits, ok := m.Fits(r)
		if !ok || c.gpus&^fits != 0 {
			return allocation{}
		}

		k := candidate{room: c.room, fits: fits, capacity: 1, own: c.gpus,
			occupied: fits &^ c.gpus &^ al.view.Rooms[c.room].Free}
		if b.gpus {
			k.capacity = min(b.maxPerNode, count(fits))
		}

		if al.unitsOf(w, own) >= w.GPUs && b.gpus {
			k.capacity = count(c.gpus) // has enough already: take nothing more on its nodes
		}

		list = append(list, k)
		total += k.capacity
	}

	if total < w.GPUs && len(list) < b.maxNodes {
		others := al.candidates(w, b, al.rooms[own[0].room].Kind, own)
		others = slices.DeleteFunc(others, func(c candidate) bool { return c.current })
		list = append(list, pick(others, w.GPUs-total, bounds{minPerNode: 1, maxPerNode: b.maxPerNode,
			maxNodes: b.maxNodes - len(list), gpus: b.gpus})...)
	}

	return split(list, w.GPUs, b)
}

// fromScratch finds seats on the first allowed kind that has enough, or else on the kind that has
// most.
func (al *allocator) fromScratch(w *Request, b bounds, own []seat) allocation {
	var best allocation
	for _, kind := range al.kinds(w, own) {
		got := split(pick(al.candidates(w, b, kind, own), w.GPUs, b), w.GPUs, b)
		if got.count > best.count {
			best = got
		}

		if best.count == w.GPUs {
			break
		}
	}

	return best
}

// kinds lists the kinds that a request may use in the order in which to try them: that of its
// present seats, then those of the request in its order, or by rank.
func (al *allocator) kinds(w *Request, own []seat) []int32 {
	if w.Item.Shape.Need.MaxGPUs == 0 {
		return []int32{-1} // a job without GPUs may use any kind
	}

	list := slices.Clone(w.Kinds)
	if list == nil {
		var first []int32 // rank of each kind
		for i := range al.rooms {
			r := &al.rooms[i]
			at := slices.Index(list, r.Kind)
			if at < 0 {
				list, first = append(list, r.Kind), append(first, al.rank[r.Group])
			} else {
				first[at] = min(first[at], al.rank[r.Group])
			}
		}

		place := map[int32]int32{}
		for i, k := range list {
			place[k] = first[i]
		}

		// Kinds of one rank stay in the order of their rooms: their numbers only say which joined first.
		slices.SortStableFunc(list, func(a, b int32) int { return cmp.Compare(place[a], place[b]) })
	}

	if len(own) > 0 {
		if at := slices.Index(list, al.rooms[own[0].room].Kind); at > 0 {
			k := list[at]
			list = slices.Insert(slices.Delete(list, at, at+1), 0, k)
		}
	}

	return list
}

// candidates lists the rooms of a kind in which a request could have a seat, the best first:
// those with the most GPUs for it, then those where it is now, those where it need not wait
// for others to stop, the cheapest, the tightest. A job without GPUs may have rooms of any
// kind.
func (al *allocator) candidates(w *Request, b bounds, kind int32, own []seat) []candidate {
	m := al.matcher(w)
	list := al.candidateSpace[:0]

	for k := range own {
		al.seatIn[own[k].room] = int32(k + 1)
	}

	for i := range al.rooms {
		r := &al.rooms[i]
		if b.gpus && (r.Kind != kind || count(r.Free) < b.minPerNode) {
			continue
		}

		fits, ok := m.Fits(r)
		if !ok || b.gpus && count(fits) < b.minPerNode {
			continue
		}

		c := candidate{room: int32(i), fits: fits, capacity: 1}
		if b.gpus {
			c.capacity = min(b.maxPerNode, count(fits))
		}

		if k := al.seatIn[i]; k > 0 {
			c.current, c.own = true, own[k-1].gpus&fits
		}

		c.occupied = fits &^ c.own &^ al.view.Rooms[i].Free
		list = append(list, c)
	}

	for k := range own {
		al.seatIn[own[k].room] = 0
	}

	al.candidateSpace = list
	prefer := w.Item.Prefer
	slices.SortFunc(list, func(a, c candidate) int {
		x, y := &al.rooms[a.room], &al.rooms[c.room]
		return cmp.Or(cmp.Compare(c.capacity, a.capacity), trueFirst(a.current, c.current),
			trueFirst(a.free(b) >= a.capacity, c.free(b) >= c.capacity),
			trueFirst(x.Node.ID == prefer, y.Node.ID == prefer),
			cmp.Compare(al.rank[x.Group], al.rank[y.Group]), cmp.Compare(count(x.Free), count(y.Free)),
			cmp.Compare(a.room, c.room))
	})

	return list
}

// trueFirst compares two conditions for sorting: true comes before false.
func trueFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}

	return 1
}

// pick selects the fewest rooms that together have enough. The last of them is the tightest that
// suffices for the rest, preferably one where the job need not wait for others to stop.
func pick(list []candidate, want int, b bounds) []candidate {
	sum, k := 0, 0
	for k < len(list) && k < b.maxNodes && (sum < want || k < b.minNodes) {
		sum += list[k].capacity
		k++
	}

	if k == 0 {
		return nil
	}

	picked := list[:k:k]
	if sum < want || k == len(list) {
		return picked
	}

	rest := max(want-(sum-list[k-1].capacity), b.minPerNode, 1)

	last := k - 1
	for i := k; i < len(list) && list[i].capacity >= rest; i++ { // the list is sorted by capacity, the largest first
		x, y := list[i].free(b) >= rest, list[last].free(b) >= rest
		if x && !y || x == y && list[i].capacity < list[last].capacity {
			last = i
		}
	}

	picked = slices.Clone(picked)
	picked[k-1] = list[last]

	return picked
}

// free returns how many GPUs of a room the job can have without waiting for others to stop.
func (c *candidate) free(b bounds) int {
	if !b.gpus {
		return c.capacity
	}

	return count(c.fits &^ c.occupied)
}

// split distributes a count over rooms in their order: to each as many as it can give, and to none
// fewer than the minimum per node.
func split(list []candidate, want int, b bounds) allocation {
	sum := 0
	for k := range list {
		if k >= b.minNodes && sum >= want {
			list = list[:k]
			break
		}

		sum += list[k].capacity
	}

	for len(list) > b.minNodes && len(list)*b.minPerNode > min(want, sum) { // too many nodes for the minimum on each
		sum -= list[len(list)-1].capacity
		list = list[:len(list)-1]
	}

	left := min(want, sum)
	if len(list) == 0 || len(list) < b.minNodes || len(list)*b.minPerNode > left {
		return allocation{}
	}

	h := allocation{seats: make([]seat, 0, len(list)), count: left}
	for k, c := range list {
		n := min(c.capacity, left-(len(list)-1-k)*b.minPerNode)
		left -= n
		h.seats = append(h.seats, seat{c.room, c.take(n, b)})
	}

	h.count -= left

	return h
}

// take chooses n GPUs of a room: those that the job holds there first, then free ones.
func (c *candidate) take(n int, b bounds) uint64 {
	if !b.gpus {
		return 0
	}

	got := fleet.LowestGPUs(c.own, n)
	got |= fleet.LowestGPUs(c.fits&^got&^c.occupied, n-count(got))

	return got | fleet.LowestGPUs(c.fits&^got, n-count(got))
}
