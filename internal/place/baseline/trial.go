package baseline

import (
	"math/bits"
	"slices"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
)

// trial is the rooms as they change while a plan is tried out, in
// the order in which they are to be filled: cheapest class first, then the
// smallest sufficient GPUs, then the fullest node. Rooms that are equal in
// this form a band, and a band whose roomiest room is too small for a need is
// passed over whole.
type trial struct {
	view   []fleet.Room  // as they are
	few    []changed     // copies of those that have changed, as long as they are few
	copies []*fleet.Room // and when they are many, by index
	order  []int32       // indices of rooms
	bands  []band
}

// changed is a room that has changed.
type changed struct {
	at   int32
	room *fleet.Room
}

// manyChanged is from how many changed rooms on they are found by index.
const manyChanged = 16

type band struct {
	first, end int32 // of order
	free       int   // free GPUs of each
	cpus       job.CPUs
	memory     job.Bytes // most free of any room in it
}

// cursor is a place in the order.
type cursor struct {
	band int
	at   int32 // offset within the band
}

// back makes the cursor return the last room once more.
func (c *cursor) back() { c.at-- }

// newTrial makes a trial of the view's rooms, which stay as they are.
func newTrial(view []fleet.Room) *trial {
	t := &trial{view: view, order: make([]int32, len(view))}
	rank := rankGroups(view)
	// A counting sort: by group, then by the number of free GPUs.
	const width = fleet.MaxGPUs + 1
	counts := make([]int32, len(rank)*width+1)
	slot := func(i int) int32 { return rank[view[i].Group]*width + int32(bits.OnesCount64(view[i].Free)) }
	for i := range view {
		counts[slot(i)+1]++
	}
	for i := 1; i < len(counts); i++ {
		counts[i] += counts[i-1]
	}
	// Filling moves each start to the start of the next, so the slots end where they began.
	for i := range view {
		s := slot(i)
		t.order[counts[s]] = int32(i)
		counts[s]++
	}
	begin := int32(0)
	for s := 0; s+1 < len(counts); s++ {
		if end := counts[s]; begin < end {
			t.bands = append(t.bands, t.band(begin, end, s%width))
			begin = end
		}
	}
	return t
}

func (t *trial) band(first, end int32, free int) band {
	b := band{first: first, end: end, free: free, cpus: -1, memory: -1}
	for _, at := range t.order[first:end] {
		if r := &t.view[at]; r.Open {
			b.cpus, b.memory = max(b.cpus, r.CPUs), max(b.memory, r.Memory)
		}
	}
	return b
}

// rankGroups returns each group's place: by class, then by GPU memory, so that
// jobs without GPUs fill nodes without GPUs first.
func rankGroups(rooms []fleet.Room) []int32 {
	var first []*fleet.Room // of each group
	for i := range rooms {
		g := int(rooms[i].Group)
		if g >= len(first) {
			first = append(first, make([]*fleet.Room, g+1-len(first))...)
		}
		if first[g] == nil {
			first[g] = &rooms[i]
		}
	}
	classes := fleet.Classes()
	less := func(a, b *fleet.Room) bool {
		if a == nil || b == nil { // a group that has no room any more
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

// room returns a room to look at.
func (t *trial) room(at int32) *fleet.Room {
	if t.copies != nil {
		if r := t.copies[at]; r != nil {
			return r
		}
		return &t.view[at]
	}
	for i := range t.few {
		if t.few[i].at == at {
			return t.few[i].room
		}
	}
	return &t.view[at]
}

// change returns a room that may be changed. Its holds are the view's until bookStarts makes others.
func (t *trial) change(at int32) *fleet.Room {
	old := t.room(at)
	if old != &t.view[at] {
		return old
	}
	r := *old
	if t.copies == nil && len(t.few) == manyChanged {
		t.copies = make([]*fleet.Room, len(t.view))
		for _, c := range t.few {
			t.copies[c.at] = c.room
		}
	}
	if t.copies != nil {
		t.copies[at] = &r
	} else {
		t.few = append(t.few, changed{at, &r})
	}
	return &r
}

// next returns the next room that may have room for the need, or -1.
func (t *trial) next(c *cursor, need *fleet.Need) int32 {
	for c.band < len(t.bands) {
		b := &t.bands[c.band]
		if b.first+c.at >= b.end || b.free < need.GPUs || b.cpus < need.CPUs || b.memory < need.Memory {
			c.band++
			c.at = 0
			continue
		}
		c.at++
		return t.order[b.first+c.at-1]
	}
	return -1
}
