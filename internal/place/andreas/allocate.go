package andreas

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"trainyard/internal/fleet"
	"trainyard/internal/place"
)

// allocate finds the nodes and GPUs for what the tasks were given. Who keeps the candidate
// that it has keeps its seats; then the others, the greatest first. Then nodes are
// emptied where that saves more than the moves cost.
func (y *yard) allocate() {
	y.clearSeats()
	var rest []int32
	for i := range y.tasks {
		t := &y.tasks[i]
		t.positions, t.seats = t.positions[:0], nil
		switch {
		case t.assigned < 0:
		case t.running != nil && t.assigned == t.current:
			y.restoreSeats(int32(i), t.running.Allocations, t.currentRooms)
		default:
			rest = append(rest, int32(i))
		}
	}

	slices.SortStableFunc(rest, func(a, b int32) int {
		x, z := &y.tasks[a], &y.tasks[b]
		p, q := &x.candidates[x.assigned], &z.candidates[z.assigned]
		return cmp.Or(cmp.Compare(q.on(0), p.on(0)), cmp.Compare(q.gain, p.gain))
	})

	for _, i := range rest {
		y.allocateTask(i)
	}

	y.consolidate()
}

// clearSeats takes everybody off the nodes, to begin with seats.
func (y *yard) clearSeats() {
	y.indexes = y.newIndexes()
	y.tasksIn = make([][]int32, len(y.rooms))
	space := make([]int32, len(y.rooms)*usualSeats)
	for i := range y.tasksIn {
		y.tasksIn[i] = space[i*usualSeats : i*usualSeats : (i+1)*usualSeats]
	}
}

// usualSeats is how many tasks a node is expected to have at most.
const usualSeats = 8

// addSeat gives a task GPUs of a room.
func (y *yard) addSeat(i int32, room int32, seat place.Allocation) {
	t := &y.tasks[i]
	y.occupy(i, room, seat)
	t.seats = append(t.seats, seat)
	t.positions = append(t.positions, room)
}

// occupy takes a seat out of a room.
func (y *yard) occupy(i int32, room int32, seat place.Allocation) {
	t, r, sp := &y.tasks[i], &y.rooms[room], y.positions[room]
	need := &t.item.Shape.Need
	taken := bits.OnesCount64(seat.GPUs & r.Free) // a GPU that is shared already is taken once
	r.Free &^= seat.GPUs
	r.Share(seat.GPUs, seat.Share)
	r.CPUs -= need.CPUs
	r.Memory -= need.Memory
	y.indexes[sp.kind].move(sp.at, taken)
	y.tasksIn[room] = append(y.tasksIn[room], i)
}

// removeSeats takes a task off its seats, and returns them.
func (y *yard) removeSeats(i int32) (seats []place.Allocation, rooms []int32) {
	t := &y.tasks[i]
	need := &t.item.Shape.Need

	seats, rooms = t.seats, slices.Clone(t.positions)
	for k, room := range rooms {
		r, sp := &y.rooms[room], y.positions[room]
		if seats[k].Share > 0 {
			r.Share(seats[k].GPUs, -seats[k].Share)
		} else {
			r.Free |= seats[k].GPUs
		}

		r.CPUs += need.CPUs
		r.Memory += need.Memory
		y.indexes[sp.kind].move(sp.at, -bits.OnesCount64(seats[k].GPUs&r.Free))
		y.tasksIn[room] = slices.DeleteFunc(y.tasksIn[room], func(o int32) bool { return o == i })
	}

	t.seats, t.positions = nil, t.positions[:0]

	return seats, rooms
}

// restoreSeats puts a task back onto seats that it had.
func (y *yard) restoreSeats(i int32, seats []place.Allocation, rooms []int32) {
	for k, room := range rooms {
		y.occupy(i, room, seats[k])
	}

	t := &y.tasks[i]
	t.seats, t.positions = seats, append(t.positions[:0], rooms...)
}

// allocateTask finds seats for a task. If its candidate cannot be had, because what is free
// is scattered, others make room for it or it takes the best that it can have. One
// that runs and finds nothing else stays where it is if it still can.
func (y *yard) allocateTask(i int32) {
	t := &y.tasks[i]

	if y.tryAllocate(i, nil) || y.makeRoom(i) {
		return
	}

	for {
		best := -1
		for k := range t.candidates {
			if !y.declines(t, k) && (best < 0 || t.candidates[k].gain > t.candidates[best].gain) && y.fits(i, k) {
				best = k
			}
		}

		t.assigned = best

		if best < 0 || y.tryAllocate(i, nil) {
			return
		}

		t.candidates[best].gain = math.Inf(-1) // no room for it
	}
}

// fits reports whether there seems to be room for a candidate.
func (y *yard) fits(i int32, at int) bool {
	t := &y.tasks[i]
	o := &t.candidates[at]
	if math.IsInf(o.gain, -1) {
		return false
	}

	if o.share > 0 {
		_, _, ok := y.sharing(t, o, nil)
		return ok
	}

	return y.indexes[o.kind].countWith(o.on(0)) >= int(o.nodes)
}

// tryAllocate seats a task on the nodes that its candidate fits on most tightly: its own
// first, which it may have to itself anyway. Rooms in avoid are not used.
func (y *yard) tryAllocate(i int32, avoid []int32) bool {
	t := &y.tasks[i]
	o := &t.candidates[t.assigned]

	if avoid == nil && t.running != nil && t.assigned == t.current && y.keepSeats(i) {
		return true
	}

	if o.share > 0 {
		room, gpu, ok := y.sharing(t, o, avoid)
		if ok {
			y.addSeat(i, room, place.Allocation{Node: y.rooms[room].Node.ID, GPUs: gpu, Share: o.share})
		}

		return ok
	}

	rooms := make([]int32, 0, o.nodes)
	masks := make([]uint64, 0, o.nodes)

	match := y.shapeOf(t.item.Shape).match
	for n := range int(o.nodes) {
		room, mask := y.tightest(t, match, o, o.on(n), append(rooms, avoid...))
		if room < 0 {
			return false
		}

		rooms, masks = append(rooms, room), append(masks, mask)
	}

	for n, room := range rooms {
		y.addSeat(i, room, place.Allocation{Node: y.rooms[room].Node.ID, GPUs: masks[n]})
	}

	return true
}

// sharing finds a GPU of which a task can have a part: the one with the least left
// of those that others share, or else a free one on the fullest node.
func (y *yard) sharing(t *task, o *candidate, avoid []int32) (room int32, gpu uint64, ok bool) {
	match := y.shapeOf(t.item.Shape).match
	most := -1.0
	for _, at := range y.kinds[o.kind].rooms {
		r := &y.rooms[at]
		if len(r.Parts) == 0 || slices.Contains(avoid, at) {
			continue
		}

		shared, _, _ := match.FitsPart(r, o.share)
		for _, p := range r.Parts {
			if p.GPU&shared != 0 && p.Held > most {
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
func (y *yard) keepSeats(i int32) bool {
	t := &y.tasks[i]
	need := &t.item.Shape.Need
	for k, s := range t.running.Allocations {
		r := &y.rooms[t.currentRooms[k]]
		if !isFree(r, s) || r.CPUs < need.CPUs || r.Memory < need.Memory {
			return false
		}
	}

	y.restoreSeats(i, t.running.Allocations, t.currentRooms)

	return true
}

// isFree reports whether the GPUs of a seat, or its part of one, are free.
func isFree(r *fleet.Room, s place.Allocation) bool {
	if s.Share == 0 || s.GPUs&r.Free != 0 {
		return s.GPUs&^r.Free == 0
	}

	return slices.ContainsFunc(r.Parts, func(p fleet.Part) bool {
		return p.GPU == s.GPUs &&
			p.Held+s.Share <= 1+epsilon
	})
}

// tightest returns the room of a candidate's kind that has so many GPUs for a task
// and fewest beside them, and which of them. The node where it runs or ran goes
// first if it is in use anyway.
func (y *yard) tightest(t *task, match *fleet.Matcher, o *candidate, gpus int, skip []int32) (int32, uint64) {
	try := func(room int32) (uint64, bool) {
		if slices.Contains(skip, room) {
			return 0, false
		}

		fits, ok := match.Fits(&y.rooms[room])

		return fleet.LowestGPUs(fits, gpus), ok && bits.OnesCount64(fits) >= gpus
	}

	s, rooms := &y.indexes[o.kind], y.kinds[o.kind].rooms
	if at := y.lastRoom(t); at >= 0 && y.positions[at].kind == o.kind &&
		(s.used[y.positions[at].at] > 0 || !y.kinds[o.kind].powersOff) {
		if mask, ok := try(at); ok {
			return at, mask
		}
	}

	for _, rows := range [2][][]uint64{s.inUse, s.idle} {
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

// lastRoom returns the room where a task runs or ran last, -1 if it has not run.
func (y *yard) lastRoom(t *task) int32 {
	switch {
	case t.running != nil:
		return t.currentRooms[0]
	case t.item.Prefer != "":
		return int32(y.find(t.item.Prefer))
	}

	return -1
}
