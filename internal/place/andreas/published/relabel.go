package published

import (
	"cmp"
	"math/bits"
	"slices"

	"trainyard/internal/fleet"
	"trainyard/internal/place"
	"trainyard/internal/place/andreas/problem"
)

// relabel finds seats for a solution. A solution says only which sizes of jobs share a node. Which
// node that is, and which of the jobs of one size it has, makes no difference to the cost, so as
// many jobs as possible stay where they are. A task that cannot have its seats after all, because
// CPUs or memory do not suffice, waits.
func (r *rule) relabel() {
	left := make([][]int32, len(r.y.Kinds))
	for k := range r.y.Kinds {
		left[k] = r.rename(int32(k))
	}

	r.y.ClearSeats()

	var rest []int32
	for i := range r.y.Tasks {
		t := &r.y.Tasks[i]
		t.Seats = nil
		switch {
		case t.Assigned < 0:
		case keepsAssignment(t) && t.Candidates[t.Assigned].Nodes == 1 && r.takePlace(left, t, t.CurrentRooms[0]):
			r.y.RestoreSeats(int32(i), t.Running.Allocations, t.CurrentRooms)
		default:
			rest = append(rest, int32(i))
		}
	}

	for _, i := range rest {
		t := &r.y.Tasks[i]
		if t.Candidates[t.Assigned].Nodes == 1 {
			for _, room := range r.y.Kinds[t.Candidates[t.Assigned].Kind].Rooms {
				if r.takePlace(left, t, room) {
					t.Positions = append(t.Positions[:0], room)
					break
				}
			}
		}

		r.claim(i)
	}
}

// keepsAssignment reports whether a task is assigned what it has now, on any node.
func keepsAssignment(t *problem.Task) bool { return t.Running != nil && t.Assigned == t.Current }

// takePlace takes one of the places that a room has for tasks of this size, and reports whether
// there was one.
func (r *rule) takePlace(left [][]int32, t *problem.Task, room int32) bool {
	o := &t.Candidates[t.Assigned]
	sp := r.y.Positions[room]
	at := int(sp.At)*(r.y.Kinds[o.Kind].Size+1) + int(o.GPUs)
	if sp.Kind != o.Kind || left[o.Kind][at] == 0 {
		return false
	}

	left[o.Kind][at]--

	return true
}

// claim seats a task in the rooms recorded for it.
func (r *rule) claim(i int32) {
	t := &r.y.Tasks[i]
	o := &t.Candidates[t.Assigned]
	match := r.y.ShapeOf(t.Item.Shape).Match
	rooms := slices.Clone(t.Positions)
	masks := make([]uint64, len(rooms))
	for n, room := range rooms {
		fits, ok := match.Fits(&r.y.Rooms[room])
		masks[n] = fleet.LowestGPUs(fits, o.On(n))
		if !ok || bits.OnesCount64(masks[n]) < o.On(n) {
			t.Assigned, t.Positions = -1, t.Positions[:0]
			return
		}
	}

	t.Positions = t.Positions[:0]

	for n, room := range rooms {
		r.y.AddSeat(i, room, place.Allocation{Node: r.y.Rooms[room].Node.ID, GPUs: masks[n]})
	}
}

// rename maps the nodes of the solution to real nodes of a kind, so that most tasks find a place of
// their size where they are. It records the rooms of tasks on several nodes, and returns by size
// how many places for tasks on one node each real node has.
func (r *rule) rename(k int32) []int32 {
	kd := &r.y.Kinds[k]
	sizes := kd.Size + 1
	wanted, held := make([]int32, len(kd.Rooms)*sizes), make([]int32, len(kd.Rooms)*sizes)

	for i := range r.y.Tasks {
		t := &r.y.Tasks[i]
		if t.Assigned < 0 || t.Candidates[t.Assigned].Kind != k || t.Candidates[t.Assigned].Nodes > 1 {
			continue
		}

		g := int(t.Candidates[t.Assigned].GPUs)
		wanted[int(t.Positions[0])*sizes+g]++

		if keepsAssignment(t) {
			held[int(r.y.Positions[t.CurrentRooms[0]].At)*sizes+g]++
		}
	}

	real := matched(wanted, held, sizes, &r.y.NewIndexes()[k])

	places := make([]int32, len(wanted))
	for p, q := range real {
		copy(places[int(q)*sizes:int(q+1)*sizes], wanted[p*sizes:(p+1)*sizes])
	}

	for i := range r.y.Tasks {
		t := &r.y.Tasks[i]
		if t.Assigned < 0 || t.Candidates[t.Assigned].Kind != k {
			continue
		}

		for n, p := range t.Positions {
			t.Positions[n] = kd.Rooms[real[p]]
		}
	}

	return places
}

// matched maps each node of the solution to a real one, those with the most tasks to keep first. It
// maps nodes only to those with equally many GPUs free and in use without the tasks.
func matched(wanted, held []int32, sizes int, s *problem.NodeIndex) []int32 {
	nodes := len(s.Free)
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
			if real[p] >= 0 || s.Free[p] != s.Free[q] || s.Used[p] != s.Used[q] {
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
