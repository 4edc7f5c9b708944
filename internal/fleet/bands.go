package fleet

import (
	"math/bits"
	"slices"
)

// Band is rooms that are equivalent to a policy that fills nodes in order: of the same class
// and GPU memory, with the same number of free GPUs.
type Band struct {
	Free  int     // GPUs
	Rooms []int32 // indices, in order of the nodes' names
}

// Arrange sorts rooms into the order in which they should be filled: cheapest class
// first, then the smallest GPUs, so that jobs without GPUs fill nodes without GPUs
// first, then the fullest node.
func Arrange(rooms []Room) []Band {
	var a arrangement
	a.fill(rooms)
	return a.bands()
}

// arrangement keeps rooms in that order while they change.
type arrangement struct {
	rank  []int32   // of each group
	slots [][]int32 // rooms by rank and number of free GPUs
	slot  []int32   // of each room
	list  []Band    // reused
}

const slotsOfGroup = MaxGPUs + 1

func (a *arrangement) slotOf(r *Room) int32 {
	return a.rank[r.Group]*slotsOfGroup + int32(bits.OnesCount64(r.Free))
}

func (a *arrangement) fill(rooms []Room) {
	a.rank = RankGroups(rooms)
	for i := range a.slots {
		a.slots[i] = a.slots[i][:0]
	}

	if n := len(a.rank) * slotsOfGroup; n > len(a.slots) {
		a.slots = append(a.slots, make([][]int32, n-len(a.slots))...)
	}

	a.slot = slices.Grow(a.slot[:0], len(rooms))[:len(rooms)]
	for i := range rooms {
		s := a.slotOf(&rooms[i])
		a.slot[i] = s
		a.slots[s] = append(a.slots[s], int32(i))
	}
}

// move moves a room that has changed to its slot.
func (a *arrangement) move(i int, r *Room) {
	from, to := a.slot[i], a.slotOf(r)
	if from == to {
		return
	}

	at, _ := slices.BinarySearch(a.slots[from], int32(i))
	a.slots[from] = slices.Delete(a.slots[from], at, at+1)
	at, _ = slices.BinarySearch(a.slots[to], int32(i))
	a.slots[to] = slices.Insert(a.slots[to], at, int32(i))
	a.slot[i] = to
}

func (a *arrangement) bands() []Band {
	a.list = a.list[:0]
	for s, rooms := range a.slots {
		if len(rooms) > 0 {
			a.list = append(a.list, Band{Free: s % slotsOfGroup, Rooms: rooms})
		}
	}

	return a.list
}

// RankGroups returns the rank of each group: by class, then by GPU memory.
func RankGroups(rooms []Room) []int32 {
	var first []*Room // of each group
	for i := range rooms {
		g := int(rooms[i].Group)
		if g >= len(first) {
			first = append(first, make([]*Room, g+1-len(first))...)
		}

		if first[g] == nil {
			first[g] = &rooms[i]
		}
	}

	classes := Classes()
	less := func(a, b *Room) bool {
		if a == nil || b == nil { // a group without rooms
			return b != nil
		}
		if x, z := slices.Index(classes, a.Node.Class), slices.Index(classes, b.Node.Class); x != z {
			return x < z
		}

		return a.Node.GPUSize() < b.Node.GPUSize()
	}

	rank := make([]int32, len(first))
	for i := range first {
		for j := range first {
			if less(first[j], first[i]) {
				rank[i]++
			}
		}
	}

	return rank
}

// Bands returns the rooms in the order in which they should be filled. The bands share memory
// with the table: they must not be changed, nor used after the table has changed.
func (t *Table) Bands() []Band {
	rooms := t.SharedRooms()
	if !t.arranged {
		t.order.fill(rooms)
		t.arranged = true
	}

	return t.order.bands()
}

// changed marks a room as changed and moves it to its slot.
func (t *Table) changed(i int) {
	t.rooms[i].Mark = new(byte)
	t.changes.add(i)
	t.frozen.drop(i)

	if t.arranged {
		t.order.move(i, &t.rooms[i])
	}
}
