package andreas

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"trainyard/internal/money"
	"trainyard/internal/place"
)

// moved is a task that was taken off its seats tentatively, with what is needed to undo that.
type moved struct {
	task  int32
	seats []place.Allocation
	rooms []int32
}

// undo puts the tasks back where they were.
func (y *planner) undo(list []moved) {
	for _, m := range list {
		if len(y.Tasks[m.task].Seats) > 0 {
			y.RemoveSeats(m.task)
		}
	}

	for _, m := range list {
		y.RestoreSeats(m.task, m.seats, m.rooms)
	}
}

// restartCost returns the cost of stopping a task and starting it again elsewhere, 0 if it is not
// running on its seats. The lost time makes it later, and its GPUs cost money meanwhile.
func (y *planner) restartCost(i int32) money.Amount {
	t := &y.Tasks[i]
	if t.Running == nil || t.Assigned != t.Current || !slices.Equal(t.Seats, t.Running.Allocations) {
		return 0
	}

	o := &t.Candidates[t.Assigned]
	later := y.lateCostAt(t, o.Duration+t.RestartTime, o.Duration)
	now := y.lateCostAt(t, o.Duration, o.Duration)

	return y.costPerSecond(o).For(t.RestartTime) + later - now
}

// makeRoom moves smaller tasks out of the way of one that finds no node with enough free GPUs
// although there are enough in total. The moves are made if the smaller tasks find seats elsewhere
// and the moves cost less than the task would lose.
func (y *planner) makeRoom(i int32) bool {
	t := &y.Tasks[i]
	o := &t.Candidates[t.Assigned]
	if !o.Plain() {
		return false
	}

	other := 0.0
	for k := range t.Candidates {
		if k != t.Assigned && y.fits(i, k) {
			other = max(other, t.Candidates[k].Gain)
		}
	}

	worth := money.Amount((o.Gain - other) * y.horizon(t))
	if t.HasDeadline {
		worth = worth.Times(t.Candidates[t.Leanest].Duration / y.meanDuration)
	}

	s := &y.Indexes[o.Kind]
	for _, room := range y.Kinds[o.Kind].Rooms {
		free := int(s.Free[y.Positions[room].At])
		list, cost := y.smaller(room, int(o.GPUs)-free, int(o.GPUs))
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

// smaller chooses tasks of a room, each with fewer than below GPUs there, that together have at
// least gpus GPUs, and returns what moving them costs.
func (y *planner) smaller(room int32, gpus, below int) (list []moved, cost money.Amount) {
	there := slices.Clone(y.TasksIn[room])
	slices.SortFunc(there, func(a, b int32) int {
		return cmp.Or(cmp.Compare(y.restartCost(a), y.restartCost(b)), cmp.Compare(a, b))
	})
	for _, i := range there {
		t := &y.Tasks[i]
		if n := t.Candidates[t.Assigned].GPUs; t.Candidates[t.Assigned].Plain() && int(n) < below && gpus > 0 {
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

// relocate seats tasks elsewhere, on nodes that are in use. If one of them finds no seat, it undoes
// all moves.
func (y *planner) relocate(list []moved, avoid []int32) bool {
	for k := range list {
		m := &list[k]
		m.seats, m.rooms = y.RemoveSeats(m.task)
	}

	for k := range list {
		if !y.tryAllocate(list[k].task, avoid) {
			y.undo(list)
			return false
		}
	}

	return true
}

// consolidate empties nodes: the tasks of a little used node move to others that are in use anyway,
// so that the node can be switched off.
func (y *planner) consolidate() {
	for k := range y.Kinds {
		for y.Kinds[k].PowersOff && y.vacateOne(k) {
			continue
		}
	}
}

// maxVacated bounds how many nodes of a kind are tried.
const maxVacated = 3

// vacateOne empties one of the least used nodes of a kind, and reports whether it could.
func (y *planner) vacateOne(k int) bool {
	s := &y.Indexes[k]
	var list []int32

	free := 0
	for _, room := range y.Kinds[k].Rooms {
		at := y.Positions[room].At
		if s.Used[at] == 0 {
			continue
		}

		free += int(s.Free[at])

		if y.movable(room) {
			list = append(list, room)
		}
	}

	used := func(room int32) int8 { return s.Used[y.Positions[room].At] }
	slices.SortStableFunc(list, func(a, b int32) int { return cmp.Compare(used(a), used(b)) })
	for _, room := range list[:min(len(list), maxVacated)] {
		if free-int(s.Free[y.Positions[room].At]) >= int(used(room)) && y.vacate(k, room) {
			return true
		}
	}

	return false
}

// stayShare is the fraction of their remaining time for which jobs are assumed to stay where they
// are before something else would move them anyway.
const stayShare = 0.5

// vacate moves the tasks of a node to others that are in use, if that saves more than the moves
// cost.
func (y *planner) vacate(k int, room int32) bool {
	before := y.Power(k)
	list := make([]moved, 0, len(y.TasksIn[room]))

	cost := money.Amount(0)
	for _, i := range y.TasksIn[room] {
		list = append(list, moved{task: i})
		cost += y.restartCost(i)
	}

	lasts := y.busy(room)

	slices.SortStableFunc(list, func(a, b moved) int {
		return cmp.Compare(bits.OnesCount64(y.Tasks[b.task].Seats[0].GPUs),
			bits.OnesCount64(y.Tasks[a.task].Seats[0].GPUs))
	})

	until := make([]float64, len(y.Kinds[k].Rooms)) // how long each of the other nodes will be in use, in seconds
	for at, other := range y.Kinds[k].Rooms {
		until[at] = y.busy(other)
	}

	if !y.relocate(list, y.excluded(k, room)) {
		return false
	}

	// The move saves money only for as long as both nodes would have been in use.
	others := 0.0
	for _, m := range list {
		others = max(others, until[y.Positions[y.Tasks[m.task].Positions[0]].At])
	}

	if (before - y.Power(k)).For(min(lasts, others)*stayShare) <= cost {
		y.undo(list)
		return false
	}

	return true
}

// busy returns how many seconds a room will be in use, infinity if jobs that are not tasks use it.
func (y *planner) busy(room int32) float64 {
	sp := y.Positions[room]
	longest, gpus := 0.0, 0
	for _, i := range y.TasksIn[room] {
		t := &y.Tasks[i]
		longest = max(longest, t.Candidates[t.Assigned].Duration)
		gpus += bits.OnesCount64(t.Seats[slices.Index(t.Positions, room)].GPUs)
	}

	if gpus < int(y.Indexes[sp.Kind].Used[sp.At]) {
		return math.Inf(1)
	}

	return longest
}

// movable reports whether everything in a room is a task on a single node that can be moved.
func (y *planner) movable(room int32) bool {
	gpus := int8(0)
	for _, i := range y.TasksIn[room] {
		t := &y.Tasks[i]
		if !t.Candidates[t.Assigned].Plain() {
			return false
		}

		gpus += int8(t.Candidates[t.Assigned].GPUs)
	}

	sp := y.Positions[room]

	return gpus > 0 && gpus == y.Indexes[sp.Kind].Used[sp.At]
}

// excluded lists the rooms of a kind to which tasks must not move when a room is emptied: the room
// itself, and rooms that are not in use.
func (y *planner) excluded(k int, room int32) []int32 {
	list := []int32{room}
	for _, at := range y.Kinds[k].Rooms {
		if y.Indexes[k].Used[y.Positions[at].At] == 0 {
			list = append(list, at)
		}
	}

	return list
}
