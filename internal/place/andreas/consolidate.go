package andreas

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"trainyard/internal/place"
)

// moved is a task that was taken off its seats to try something.
type moved struct {
	task  int32
	seats []place.Allocation
	rooms []int32
}

// undo puts the tasks back where they were.
func (y *yard) undo(list []moved) {
	for _, m := range list {
		if len(y.tasks[m.task].seats) > 0 {
			y.removeSeats(m.task)
		}
	}

	for _, m := range list {
		y.restoreSeats(m.task, m.seats, m.rooms)
	}
}

// restartCost is what it costs to stop a task and to start it again elsewhere, nothing
// if it is not running on its seats. Time that it loses makes it late, and its
// GPUs cost money meanwhile.
func (y *yard) restartCost(i int32) float64 {
	t := &y.tasks[i]
	if t.running == nil || t.assigned != t.current || !slices.Equal(t.seats, t.running.Allocations) {
		return 0
	}

	o := &t.candidates[t.assigned]
	later := y.lateCostAt(t, o.duration+t.restartTime, o.duration)
	now := y.lateCostAt(t, o.duration, o.duration)

	return y.costPerSecond(o)*t.restartTime + later - now
}

// makeRoom moves smaller tasks out of the way of one that finds no node with
// enough GPUs free although there are enough in all. It is done if they find seats
// elsewhere and what the moves cost is less than what the task would lose.
func (y *yard) makeRoom(i int32) bool {
	t := &y.tasks[i]
	o := &t.candidates[t.assigned]
	if !o.plain() {
		return false
	}

	other := 0.0
	for k := range t.candidates {
		if k != t.assigned && y.fits(i, k) {
			other = max(other, t.candidates[k].gain)
		}
	}

	worth := (o.gain - other) * y.horizon(t)
	if t.hasDeadline {
		worth *= t.candidates[t.leanest].duration / y.meanDuration
	}

	s := &y.indexes[o.kind]
	for _, room := range y.kinds[o.kind].rooms {
		free := int(s.free[y.positions[room].at])
		list, cost := y.smaller(room, int(o.gpus)-free, int(o.gpus))
		if list == nil || cost >= worth {
			continue
		}

		if y.relocate(list, []int32{room}) {
			if y.tryAllocate(i, nil) {
				return true
			}

			y.undo(list)
		}
	}

	return false
}

// smaller chooses tasks of a room, each with less than so many GPUs there, that
// together have at least some GPUs, and returns what moving them costs.
func (y *yard) smaller(room int32, gpus, below int) (list []moved, cost float64) {
	there := slices.Clone(y.tasksIn[room])
	slices.SortFunc(there, func(a, b int32) int {
		return cmp.Or(cmp.Compare(y.restartCost(a), y.restartCost(b)), cmp.Compare(a, b))
	})
	for _, i := range there {
		t := &y.tasks[i]
		if n := t.candidates[t.assigned].gpus; t.candidates[t.assigned].plain() && int(n) < below && gpus > 0 {
			list = append(list, moved{task: i})
			cost += y.restartCost(i)
			gpus -= int(n)
		}
	}

	if gpus > 0 {
		return nil, 0
	}

	return list, cost
}

// relocate seats tasks elsewhere, on nodes that are in use, and puts everything
// back if one finds no seat there.
func (y *yard) relocate(list []moved, avoid []int32) bool {
	for k := range list {
		m := &list[k]
		m.seats, m.rooms = y.removeSeats(m.task)
	}

	for k := range list {
		if !y.tryAllocate(list[k].task, avoid) {
			y.undo(list)
			return false
		}
	}

	return true
}

// consolidate empties nodes: the tasks of a node that is little used move to others that
// are in use anyway, and the node is switched off.
func (y *yard) consolidate() {
	for k := range y.kinds {
		for y.kinds[k].powersOff && y.vacateOne(k) {
			continue
		}
	}
}

// maxVacated is how many nodes of a kind are tried before it is left at that.
const maxVacated = 3

// vacateOne empties a node of a kind, one of those that are used least, and
// reports whether it found one.
func (y *yard) vacateOne(k int) bool {
	s := &y.indexes[k]
	var list []int32

	free := 0
	for _, room := range y.kinds[k].rooms {
		at := y.positions[room].at
		if s.used[at] == 0 {
			continue
		}

		free += int(s.free[at])

		if y.movable(room) {
			list = append(list, room)
		}
	}

	used := func(room int32) int8 { return s.used[y.positions[room].at] }
	slices.SortStableFunc(list, func(a, b int32) int { return cmp.Compare(used(a), used(b)) })
	for _, room := range list[:min(len(list), maxVacated)] {
		if free-int(s.free[y.positions[room].at]) >= int(used(room)) && y.vacate(k, room) {
			return true
		}
	}

	return false
}

// stayShare is how long, of the time that they have left, jobs are assumed to stay where
// they are before something else would move them anyway.
const stayShare = 0.5

// vacate moves the tasks of a node to others that are in use, if that saves more
// than the moves cost.
func (y *yard) vacate(k int, room int32) bool {
	before := y.power(k)
	list := make([]moved, 0, len(y.tasksIn[room]))

	cost := 0.0
	for _, i := range y.tasksIn[room] {
		list = append(list, moved{task: i})
		cost += y.restartCost(i)
	}

	lasts := y.busy(room)

	slices.SortStableFunc(list, func(a, b moved) int {
		return cmp.Compare(bits.OnesCount64(y.tasks[b.task].seats[0].GPUs),
			bits.OnesCount64(y.tasks[a.task].seats[0].GPUs))
	})

	until := make([]float64, len(y.kinds[k].rooms)) // of the others
	for at, other := range y.kinds[k].rooms {
		until[at] = y.busy(other)
	}

	if !y.relocate(list, y.excluded(k, room)) {
		return false
	}

	// It saves something only as long as both nodes would have been in use.
	others := 0.0
	for _, m := range list {
		others = max(others, until[y.positions[y.tasks[m.task].positions[0]].at])
	}

	if (before-y.power(k))*min(lasts, others)*stayShare <= cost {
		y.undo(list)
		return false
	}

	return true
}

// busy is how long a room will be in use, for ever if others than the tasks use it.
func (y *yard) busy(room int32) float64 {
	sp := y.positions[room]
	longest, gpus := 0.0, 0
	for _, i := range y.tasksIn[room] {
		t := &y.tasks[i]
		longest = max(longest, t.candidates[t.assigned].duration)
		gpus += bits.OnesCount64(t.seats[slices.Index(t.positions, room)].GPUs)
	}

	if gpus < int(y.indexes[sp.kind].used[sp.at]) {
		return math.Inf(1)
	}

	return longest
}

// movable reports whether all that is on a room are tasks that can be moved alone.
func (y *yard) movable(room int32) bool {
	gpus := int8(0)
	for _, i := range y.tasksIn[room] {
		t := &y.tasks[i]
		if !t.candidates[t.assigned].plain() {
			return false
		}

		gpus += int8(t.candidates[t.assigned].gpus)
	}

	sp := y.positions[room]

	return gpus > 0 && gpus == y.indexes[sp.kind].used[sp.at]
}

// excluded lists the rooms of a kind that tasks may not move to when a room is
// emptied: that one, and those that are not in use.
func (y *yard) excluded(k int, room int32) []int32 {
	list := []int32{room}
	for _, at := range y.kinds[k].rooms {
		if y.indexes[k].used[y.positions[at].at] == 0 {
			list = append(list, at)
		}
	}

	return list
}

// power is what the nodes of a kind cost in a second.
func (y *yard) power(k int) float64 {
	sum := 0.0
	for _, u := range y.indexes[k].used {
		sum += y.kinds[k].cost[u]
	}

	return sum
}
