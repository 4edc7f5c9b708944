package allocate

import (
	"cmp"
	"slices"
)

// holder is a request that has a seat in a room.
type holder struct {
	request int
	gpus    uint64
}

// makeRoom moves smaller jobs out of the way of a request that got less than it asked for. The
// moves are kept only if the request gets more and each of the others gets all it had; otherwise
// they are undone. Only smaller jobs are moved, so this terminates.
func (al *allocator) makeRoom(i int) {
	w := &al.requests[i]
	b := boundsOf(w)

	rooms, dealt, before := slices.Clone(al.rooms), slices.Clone(al.allocations), al.allocations[i].count
	for _, kind := range al.kinds(w, al.allocations[i].seats) {
		moved := al.evict(i, b, kind)
		if len(moved) > 0 {
			al.serve(i)

			if al.serveAgain(moved, dealt) && al.allocations[i].count > before {
				return
			}
		}

		copy(al.rooms, rooms)
		copy(al.allocations, dealt)
	}
}

// serveAgain serves the requests that were moved, and reports whether each has as much as before.
func (al *allocator) serveAgain(moved []int, had []allocation) bool {
	slices.SortStableFunc(moved, func(a, b int) int {
		return cmp.Or(cmp.Compare(had[b].count, had[a].count),
			cmp.Compare(a, b))
	})

	for _, j := range moved {
		al.serve(j)

		if al.allocations[j].count < had[j].count {
			return false
		}
	}

	return true
}

// evict removes smaller jobs from rooms of a kind until the request fits there, first from rooms
// where the fewest GPUs have to be moved. It returns the requests that it removed.
func (al *allocator) evict(i int, b bounds, kind int32) []int {
	w := &al.requests[i]
	there := al.holders(w.GPUs)
	m := al.matcher(w)
	al.unbook(i)
	al.allocations[i] = allocation{}

	type option struct {
		at        int32
		cap, cost int // GPUs that the request could have there, and how many of them others hold
	}

	var list []option

	for at := range al.rooms {
		r := al.rooms[at]
		if b.gpus && r.Kind != kind {
			continue
		}

		now, _ := m.Fits(&r)

		for _, h := range there[at] {
			need := &al.requests[h.request].Item.Shape.Need
			r.Free |= h.gpus & r.Sound
			r.CPUs += need.CPUs
			r.Memory += need.Memory
		}

		fits, ok := m.Fits(&r)
		if !ok || b.gpus && count(fits) < b.minPerNode {
			continue
		}

		c := option{at: int32(at), cap: 1}
		if b.gpus {
			c.cap = min(b.maxPerNode, count(fits))
		}

		c.cost = max(0, min(c.cap, w.GPUs)-count(now))
		list = append(list, c)
	}

	slices.SortFunc(list, func(x, y option) int {
		return cmp.Or(cmp.Compare(min(y.cap, w.GPUs), min(x.cap, w.GPUs)), cmp.Compare(x.cost, y.cost),
			cmp.Compare(x.at, y.at))
	})

	var moved []int

	left := w.GPUs
	for k := 0; k < len(list) && k < b.maxNodes && left > 0; k++ {
		want := min(list[k].cap, left)
		moved = append(moved, al.clearRoom(i, list[k].at, want, there[list[k].at])...)
		left -= want
	}

	return moved
}

// clearRoom removes jobs from a room, the smallest first, until the request fits there with the wanted
// number of GPUs.
func (al *allocator) clearRoom(i int, at int32, want int, there []holder) []int {
	m := al.matcher(&al.requests[i])
	var moved []int

	for _, h := range there {
		fits, ok := m.Fits(&al.rooms[at])
		if ok && (m.Need.MaxGPUs == 0 || count(fits) >= want) {
			break
		}
		if len(al.allocations[h.request].seats) == 0 {
			continue // removed already, with another room
		}

		al.unbook(h.request)
		al.allocations[h.request] = allocation{}
		moved = append(moved, h.request)
	}

	return moved
}

// holders lists for each room the movable jobs with a seat there that have fewer than below GPUs in
// total, the smallest first.
func (al *allocator) holders(below int) [][]holder {
	there := make([][]holder, len(al.rooms))
	for j := range al.allocations {
		r := al.requests[j].Running
		if al.allocations[j].count >= below || r != nil && !Movable(r) {
			continue
		}

		for _, c := range al.allocations[j].seats {
			there[c.room] = append(there[c.room], holder{j, c.gpus})
		}
	}

	for at := range there {
		slices.SortStableFunc(there[at], func(a, b holder) int {
			return cmp.Compare(al.allocations[a.request].count, al.allocations[b.request].count)
		})
	}

	return there
}
