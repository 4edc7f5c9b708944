package andreas

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"trainyard/internal/fleet"
	"trainyard/internal/place"
	"trainyard/internal/place/andreas/problem"
	"trainyard/internal/queue"
	"trainyard/internal/share"
)

// allocate selects the nodes and GPUs for the assigned candidates. Tasks that keep their present
// candidate keep their seats; then come the others, the largest first. Finally nodes are emptied
// where that saves more than the moves cost.
func (y *planner) allocate() {
	y.ClearSeats()
	var rest []int32
	for i := range y.Tasks {
		t := &y.Tasks[i]
		t.Positions, t.Seats = t.Positions[:0], nil
		switch {
		case t.Assigned < 0:
		case t.Running != nil && t.Assigned == t.Current:
			y.RestoreSeats(int32(i), t.Running.Allocations, t.CurrentRooms)
		default:
			rest = append(rest, int32(i))
		}
	}

	slices.SortStableFunc(rest, func(a, b int32) int {
		x, z := &y.Tasks[a], &y.Tasks[b]
		p, q := &x.Candidates[x.Assigned], &z.Candidates[z.Assigned]
		return cmp.Or(cmp.Compare(q.On(0), p.On(0)), cmp.Compare(q.Gain, p.Gain))
	})

	for _, i := range rest {
		y.allocateTask(i)
	}

	y.consolidate()
}

// allocateTask finds seats for a task. If its candidate does not fit because the free GPUs are
// scattered, other tasks make room or the task takes the best candidate that fits. A running task
// that finds nothing else stays where it is if it still can.
func (y *planner) allocateTask(i int32) {
	t := &y.Tasks[i]

	if y.tryAllocate(i, nil) || y.makeRoom(i) {
		return
	}

	for {
		best := -1
		for k := range t.Candidates {
			if !y.declines(t, k) && (best < 0 || t.Candidates[k].Gain > t.Candidates[best].Gain) && y.fits(i, k) {
				best = k
			}
		}

		t.Assigned = best

		if best < 0 || y.tryAllocate(i, nil) {
			return
		}

		t.Candidates[best].Gain = math.Inf(-1) // it does not fit: do not try it again
	}
}

// fits reports whether there seems to be room for a candidate, by the number of free GPUs alone.
func (y *planner) fits(i int32, at int) bool { return y.roomFor(&y.Tasks[i], at) }

// roomFor is fits for a task.
func (y *planner) roomFor(t *problem.Task, at int) bool {
	o := &t.Candidates[at]
	if math.IsInf(o.Gain, -1) {
		return false
	}

	if o.Share > 0 {
		_, _, ok := y.sharing(t, o, nil)
		return ok
	}

	return y.Indexes[o.Kind].CountWith(o.On(0)) >= int(o.Nodes)
}

// tryAllocate seats a task on the nodes that its candidate fits most tightly. The task's own nodes
// come first, because it may have them to itself already. Rooms in avoid are not used.
func (y *planner) tryAllocate(i int32, avoid []int32) bool {
	t := &y.Tasks[i]
	o := &t.Candidates[t.Assigned]

	if avoid == nil && t.Running != nil && t.Assigned == t.Current && y.keepSeats(i) {
		return true
	}

	if o.Share > 0 {
		room, gpu, ok := y.sharing(t, o, avoid)
		if ok {
			y.AddSeat(i, room, place.Allocation{Node: y.Rooms[room].Node.ID, GPUs: gpu, Share: o.Share})
		}

		return ok
	}

	rooms := make([]int32, 0, o.Nodes)
	masks := make([]uint64, 0, o.Nodes)

	match := y.ShapeOf(t.Item.Shape).Match
	for n := range int(o.Nodes) {
		room, mask := y.tightest(t, match, o, o.On(n), append(rooms, avoid...))
		if room < 0 {
			return false
		}

		rooms, masks = append(rooms, room), append(masks, mask)
	}

	for n, room := range rooms {
		y.AddSeat(i, room, place.Allocation{Node: y.Rooms[room].Node.ID, GPUs: masks[n]})
	}

	return true
}

// sharing finds a GPU of which a task can have a part: of the GPUs that are already shared the one
// with the least left, or else a free one on the fullest node.
func (y *planner) sharing(t *problem.Task, o *problem.Candidate, avoid []int32) (room int32, gpu uint64, ok bool) {
	match := y.ShapeOf(t.Item.Shape).Match
	cut := place.CutOf(t.Item, o.Share)
	most := -1.0
	for _, at := range y.Kinds[o.Kind].Rooms {
		r := &y.Rooms[at]
		if len(r.Parts) == 0 || slices.Contains(avoid, at) {
			continue
		}

		shared, _, _ := match.FitsPart(r, &cut)
		for i := range r.Parts {
			p := &r.Parts[i]
			if p.GPU&shared != 0 && p.Held > most && y.View.Beside.PartedFrom(y.Now, cut.Kind, p.Cuts) == nil {
				room, gpu, most = at, p.GPU, p.Held
			}
		}
	}

	if most >= 0 {
		return room, gpu, true
	}

	room, gpu = y.tightest(t, match, o, 1, avoid)

	return room, gpu, room >= 0
}

// keepSeats seats a running task where it is if that is still free.
func (y *planner) keepSeats(i int32) bool {
	t := &y.Tasks[i]
	need := &t.Item.Shape.Need
	for k, s := range t.Running.Allocations {
		r := &y.Rooms[t.CurrentRooms[k]]
		if !isFree(r, t.Item, s) || r.CPUs < need.CPUs || r.Memory < need.Memory {
			return false
		}
	}

	y.RestoreSeats(i, t.Running.Allocations, t.CurrentRooms)

	return true
}

// isFree reports whether the GPUs of a seat, or its part of one, are free.
func isFree(r *fleet.Room, it *queue.Item, s place.Allocation) bool {
	if s.Share == 0 || s.GPUs&r.Free != 0 {
		return s.GPUs&^r.Free == 0
	}

	at := r.PartOf(s.GPUs)
	if at < 0 {
		return false
	}

	cut, gpu := place.CutOf(it, s.Share), r.Shared(at)

	return gpu.Fits(&cut) == share.NoObstacle
}

// tightest returns the room of a candidate's kind that has enough GPUs for a task and the fewest
// beyond that, and which GPUs. The node where the task runs or ran last comes first if it is in use
// anyway.
func (y *planner) tightest(
	t *problem.Task, match *fleet.Matcher, o *problem.Candidate, gpus int, skip []int32,
) (int32, uint64) {
	try := func(room int32) (uint64, bool) {
		if slices.Contains(skip, room) {
			return 0, false
		}

		fits, ok := match.Fits(&y.Rooms[room])

		return fleet.LowestGPUs(fits, gpus), ok && bits.OnesCount64(fits) >= gpus
	}

	s, rooms := &y.Indexes[o.Kind], y.Kinds[o.Kind].Rooms
	if at := y.lastRoom(t); at >= 0 && y.Positions[at].Kind == o.Kind &&
		(s.Used[y.Positions[at].At] > 0 || !y.Kinds[o.Kind].PowersOff) {
		if mask, ok := try(at); ok {
			return at, mask
		}
	}

	for _, rows := range [2][][]uint64{s.InUse, s.Idle} {
		for n := gpus; n < len(rows); n++ {
			for w, word := range rows[n] {
				for ; word != 0; word &= word - 1 {
					room := rooms[w*64+bits.TrailingZeros64(word)]
					if mask, ok := try(room); ok {
						return room, mask
					}
				}
			}
		}
	}

	return -1, 0
}

// lastRoom returns the room where a task runs or last ran, -1 if it has not run.
func (y *planner) lastRoom(t *problem.Task) int32 {
	switch {
	case t.Running != nil:
		return t.CurrentRooms[0]
	case t.Item.Prefer != "":
		return int32(y.Find(t.Item.Prefer))
	}

	return -1
}
