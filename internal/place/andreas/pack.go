package andreas

import (
	"cmp"
	"math"
	"slices"

	"trainyard/internal/place"
)

// moved is a task that was taken off its seats to try something.
type moved struct {
	task  int32
	seats []place.Seat
	rooms []int32
}

// undo puts the tasks back where they were.
func (y *yard) undo(list []moved) {
	for _, m := range list {
		if len(y.tasks[m.task].seats) > 0 {
			y.rise(m.task)
		}
	}
	for _, m := range list {
		y.back(m.task, m.seats, m.rooms)
	}
}

// restart is what it costs to stop a task and to start it again elsewhere, nothing
// if it is not running on its seats. Time that it loses makes it late, and its
// GPUs cost money meanwhile.
func (y *yard) restart(i int32) float64 {
	t := &y.tasks[i]
	if t.run == nil || t.at != t.now || !slices.Equal(t.seats, t.run.Seats) {
		return 0
	}
	o := t.offers[t.at]
	before := y.cost(t, &o, 0)
	o.time += t.again
	o.bill = float64(o.gpus) * y.kinds[o.kind].share * o.time
	return y.cost(t, &o, 0) - before
}

// makeRoom moves smaller tasks out of the way of one that finds no node with
// enough GPUs free although there are enough in all. It is done if they find seats
// elsewhere and what the moves cost is less than what the task would lose.
func (y *yard) makeRoom(i int32) bool {
	t := &y.tasks[i]
	o := &t.offers[t.at]
	if o.nodes > 1 {
		return false
	}
	worth := t.wait - o.cost
	for k := range t.offers {
		if k != t.at && y.fits(i, k) {
			worth = math.Min(worth, t.offers[k].cost-o.cost)
		}
	}
	s := &y.shelf[o.kind]
	for _, room := range y.kinds[o.kind].rooms {
		free := int(s.free[y.spots[room].at])
		list, cost := y.smaller(room, int(o.gpus)-free, int(o.gpus))
		if list == nil || cost >= worth {
			continue
		}
		if y.relocate(list, []int32{room}) {
			if y.place(i, nil) {
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
	there := slices.Clone(y.there[room])
	slices.SortFunc(there, func(a, b int32) int {
		return cmp.Or(cmp.Compare(y.restart(a), y.restart(b)), cmp.Compare(a, b))
	})
	for _, i := range there {
		t := &y.tasks[i]
		if n := t.offers[t.at].gpus; len(t.seats) == 1 && int(n) < below && gpus > 0 {
			list = append(list, moved{task: i})
			cost += y.restart(i)
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
		m.seats, m.rooms = y.rise(m.task)
	}
	for k := range list {
		if !y.place(list[k].task, avoid) {
			y.undo(list)
			return false
		}
	}
	return true
}

// pack empties nodes: the tasks of a node that is little used move to others that
// are in use anyway, and the node is switched off. The saving lasts about as long
// as the tasks would have stayed; they would not all have stayed to their end.
func (y *yard) pack() {
	for k := range y.kinds {
		if !y.kinds[k].off {
			continue
		}
		for y.vacate(k) {
			continue
		}
	}
}

// stays is how long, of the time that they have left, jobs are taken to stay where
// they are before another change would move them anyway.
const stays = 0.5

// vacate empties the node of a kind whose emptying is worth most, and reports
// whether it found one.
func (y *yard) vacate(k int) bool {
	kd, s := &y.kinds[k], &y.shelf[k]
	room, free := -1, 0
	for _, at := range kd.rooms {
		n := y.spots[at].at
		if s.used[n] == 0 {
			continue
		}
		free += int(s.free[n])
		if mine, ok := y.movable(at); ok && (room < 0 || mine < int(s.used[y.spots[room].at])) && mine == int(s.used[n]) {
			room = int(at)
		}
	}
	if room < 0 {
		return false
	}
	n := y.spots[room].at
	used := int(s.used[n])
	if free-int(s.free[n]) < used {
		return false
	}
	before := y.power(k)
	list := make([]moved, 0, len(y.there[room]))
	cost, lasts := 0.0, 0.0
	for _, i := range y.there[room] {
		list = append(list, moved{task: i})
		cost += y.restart(i)
		t := &y.tasks[i]
		lasts = math.Max(lasts, t.offers[t.at].time)
	}
	slices.SortStableFunc(list, func(a, b moved) int {
		return cmp.Compare(gpusOf(y.tasks[b.task].seats[0]), gpusOf(y.tasks[a.task].seats[0]))
	})
	if !y.relocate(list, y.closed(k, room)) {
		return false
	}
	if (before-y.power(k))*lasts*stays <= cost {
		y.undo(list)
		return false
	}
	return true
}

// movable returns how many GPUs of a room single-node tasks of the plan have, and
// whether they are all that is on it.
func (y *yard) movable(room int32) (gpus int, all bool) {
	for _, i := range y.there[room] {
		t := &y.tasks[i]
		if len(t.seats) != 1 {
			return 0, false
		}
		gpus += gpusOf(t.seats[0])
	}
	return gpus, gpus > 0
}

// closed lists the rooms of a kind that tasks may not move to when a room is
// emptied: that one, and those that are not in use.
func (y *yard) closed(k, room int) []int32 {
	list := []int32{int32(room)}
	for _, at := range y.kinds[k].rooms {
		if y.shelf[k].used[y.spots[at].at] == 0 {
			list = append(list, at)
		}
	}
	return list
}

// power is what the nodes of a kind cost in a second.
func (y *yard) power(k int) float64 {
	sum := 0.0
	for _, u := range y.shelf[k].used {
		sum += y.kinds[k].cost[u]
	}
	return sum
}
