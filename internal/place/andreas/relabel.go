package andreas

import (
	"cmp"
	"math/bits"
	"slices"

	"trainyard/internal/fleet"
	"trainyard/internal/place"
)

// relabel finds seats for a solution as it is: so many jobs of each size together on
// a node. Which node is which, and which of the jobs of one size is where, makes
// no difference to what the solution costs, so as many as possible stay where they
// are. A task that cannot have its seats there after all, because CPUs or memory
// do not suffice, waits.
func (y *yard) relabel() {
	left := make([][]int32, len(y.kinds))
	for k := range y.kinds {
		left[k] = y.rename(int32(k))
	}

	y.clearSeats()

	var rest []int32
	for i := range y.tasks {
		t := &y.tasks[i]
		t.seats = nil
		switch {
		case t.assigned < 0:
		case t.keepsAssignment() && t.candidates[t.assigned].nodes == 1 && y.takePlace(left, t, t.currentRooms[0]):
			y.restoreSeats(int32(i), t.running.Allocations, t.currentRooms)
		default:
			rest = append(rest, int32(i))
		}
	}

	for _, i := range rest {
		t := &y.tasks[i]
		if t.candidates[t.assigned].nodes == 1 {
			for _, room := range y.kinds[t.candidates[t.assigned].kind].rooms {
				if y.takePlace(left, t, room) {
					t.positions = append(t.positions[:0], room)
					break
				}
			}
		}

		y.claim(i)
	}
}

// keepsAssignment reports whether a task is given just what it has, on whatever node.
func (t *task) keepsAssignment() bool { return t.running != nil && t.assigned == t.current }

// takePlace takes one of the places that a room has for tasks of this size, and
// reports whether there is one.
func (y *yard) takePlace(left [][]int32, t *task, room int32) bool {
	o := &t.candidates[t.assigned]
	sp := y.positions[room]
	at := int(sp.at)*(y.kinds[o.kind].size+1) + int(o.gpus)
	if sp.kind != o.kind || left[o.kind][at] == 0 {
		return false
	}

	left[o.kind][at]--

	return true
}

// claim seats a task on the rooms that it has been recorded for.
func (y *yard) claim(i int32) {
	t := &y.tasks[i]
	o := &t.candidates[t.assigned]
	match := y.shapeOf(t.item.Shape).match
	rooms := slices.Clone(t.positions)
	masks := make([]uint64, len(rooms))
	for n, room := range rooms {
		fits, ok := match.Fits(&y.rooms[room])
		masks[n] = fleet.LowestGPUs(fits, o.on(n))
		if !ok || bits.OnesCount64(masks[n]) < o.on(n) {
			t.assigned, t.positions = -1, t.positions[:0]
			return
		}
	}

	t.positions = t.positions[:0]

	for n, room := range rooms {
		y.addSeat(i, room, place.Allocation{Node: y.rooms[room].Node.ID, GPUs: masks[n]})
	}
}

// rename chooses which node of a kind is which, so that most tasks find a place of
// their size where they are. It writes the rooms of tasks on several nodes down,
// and returns how many places for tasks of one node each real node has, by size.
func (y *yard) rename(k int32) []int32 {
	kd := &y.kinds[k]
	sizes := kd.size + 1
	wanted, held := make([]int32, len(kd.rooms)*sizes), make([]int32, len(kd.rooms)*sizes)

	for i := range y.tasks {
		t := &y.tasks[i]
		if t.assigned < 0 || t.candidates[t.assigned].kind != k || t.candidates[t.assigned].nodes > 1 {
			continue
		}

		g := int(t.candidates[t.assigned].gpus)
		wanted[int(t.positions[0])*sizes+g]++

		if t.keepsAssignment() {
			held[int(y.positions[t.currentRooms[0]].at)*sizes+g]++
		}
	}

	real := matched(wanted, held, sizes, &y.newIndexes()[k])

	places := make([]int32, len(wanted))
	for p, q := range real {
		copy(places[int(q)*sizes:int(q+1)*sizes], wanted[p*sizes:(p+1)*sizes])
	}

	for i := range y.tasks {
		t := &y.tasks[i]
		if t.assigned < 0 || t.candidates[t.assigned].kind != k {
			continue
		}

		for n, p := range t.positions {
			t.positions[n] = kd.rooms[real[p]]
		}
	}

	return places
}

// matched gives each node of the solution a real one, those first that have most to
// keep. Nodes are exchanged only for such as have equally many GPUs free and in
// use without the tasks.
func matched(wanted, held []int32, sizes int, s *nodeIndex) []int32 {
	nodes := len(s.free)
	real, taken := make([]int32, nodes), make([]bool, nodes)
	for p := range real {
		real[p] = -1
	}

	keep := func(p, q int) (gpus int32) {
		for g := 1; g < sizes; g++ {
			gpus += int32(g) * min(wanted[p*sizes+g], held[q*sizes+g])
		}

		return gpus
	}

	order := make([]int, nodes)

	total := make([]int32, nodes)
	for q := range order {
		order[q] = q

		for g := 1; g < sizes; g++ {
			total[q] += int32(g) * held[q*sizes+g]
		}
	}

	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(total[b], total[a]) })
	for _, q := range order {
		best, most := -1, int32(0)
		for p := range real {
			if real[p] >= 0 || s.free[p] != s.free[q] || s.used[p] != s.used[q] {
				continue
			}

			if n := keep(p, q); best < 0 || n > most || n == most && p == q {
				best, most = p, n
			}
		}

		if best >= 0 && !taken[q] {
			real[best], taken[q] = int32(q), true
		}
	}

	return real
}
