package problem

import (
	"math/bits"
	"slices"

	"trainyard/internal/place"
)

// ClearSeats removes all tasks from the nodes, before seats are allocated.
func (y *Yard) ClearSeats() {
	y.Indexes = y.NewIndexes()
	y.TasksIn = make([][]int32, len(y.Rooms))
	space := make([]int32, len(y.Rooms)*usualSeats)
	for i := range y.TasksIn {
		y.TasksIn[i] = space[i*usualSeats : i*usualSeats : (i+1)*usualSeats]
	}
}

// usualSeats is the expected largest number of tasks on a node.
const usualSeats = 8

// AddSeat gives a task GPUs of a room.
func (y *Yard) AddSeat(i int32, room int32, seat place.Allocation) {
	t := &y.Tasks[i]
	y.occupy(i, room, seat)
	t.Seats = append(t.Seats, seat)
	t.Positions = append(t.Positions, room)
}

// occupy subtracts a seat from a room.
func (y *Yard) occupy(i int32, room int32, seat place.Allocation) {
	t, r, sp := &y.Tasks[i], &y.Rooms[room], y.Positions[room]
	need := &t.Item.Shape.Need
	taken := bits.OnesCount64(seat.GPUs & r.Free) // a GPU that is shared already was taken before
	r.Free &^= seat.GPUs

	if seat.Share > 0 {
		r.Cut(seat.GPUs, place.CutOf(t.Item, seat.Share))
	}

	r.CPUs -= need.CPUs
	r.Memory -= need.Memory
	y.Indexes[sp.Kind].Move(sp.At, taken)
	y.TasksIn[room] = append(y.TasksIn[room], i)
}

// RemoveSeats removes a task from its seats, and returns them.
func (y *Yard) RemoveSeats(i int32) (seats []place.Allocation, rooms []int32) {
	t := &y.Tasks[i]
	need := &t.Item.Shape.Need

	seats, rooms = t.Seats, slices.Clone(t.Positions)
	for k, room := range rooms {
		r, sp := &y.Rooms[room], y.Positions[room]
		if seats[k].Share > 0 {
			r.Uncut(seats[k].GPUs, t.Item.Job, seats[k].Share)
		} else {
			r.Free |= seats[k].GPUs
		}

		r.CPUs += need.CPUs
		r.Memory += need.Memory
		y.Indexes[sp.Kind].Move(sp.At, -bits.OnesCount64(seats[k].GPUs&r.Free))
		y.TasksIn[room] = slices.DeleteFunc(y.TasksIn[room], func(o int32) bool { return o == i })
	}

	t.Seats, t.Positions = nil, t.Positions[:0]

	return seats, rooms
}

// RestoreSeats puts a task back on seats that it had.
func (y *Yard) RestoreSeats(i int32, seats []place.Allocation, rooms []int32) {
	for k, room := range rooms {
		y.occupy(i, room, seats[k])
	}

	t := &y.Tasks[i]
	t.Seats, t.Positions = seats, append(t.Positions[:0], rooms...)
}
