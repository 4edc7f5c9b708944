package baseline

import (
	"math/bits"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
)

// trial is a copy of the rooms on which a plan is tried out, with the rooms in
// the order in which they are to be filled: cheapest class first, then the
// smallest sufficient GPUs, then the fullest node. Rooms that are equal in
// this form a band, and a band whose roomiest room is too small for a need is
// passed over whole.
type trial struct {
	rooms []fleet.Room
	order []int32 // indices of rooms
	bands []band
}

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

// newTrial copies the rooms. The view's own slice stays as it is.
func newTrial(view []fleet.Room) *trial {
	t := &trial{rooms: make([]fleet.Room, len(view)), order: make([]int32, len(view))}
	copy(t.rooms, view)
	groups := map[groupKey]int{}
	var keys []groupKey
	group := make([]int32, len(view))
	for i := range t.rooms {
		k := keyOf(&t.rooms[i])
		g, ok := groups[k]
		if !ok {
			g = len(keys)
			groups[k] = g
			keys = append(keys, k)
		}
		group[i] = int32(g)
	}
	rank := rankGroups(keys)
	// A counting sort: by group, then by the number of free GPUs.
	const width = fleet.MaxGPUs + 1
	counts := make([]int32, len(keys)*width+1)
	slot := make([]int32, len(view))
	for i := range t.rooms {
		slot[i] = rank[group[i]]*width + int32(bits.OnesCount64(t.rooms[i].Free))
		counts[slot[i]+1]++
	}
	for i := 1; i < len(counts); i++ {
		counts[i] += counts[i-1]
	}
	next := append([]int32(nil), counts...)
	for i := range t.rooms {
		t.order[next[slot[i]]] = int32(i)
		next[slot[i]]++
	}
	for s := 0; s+1 < len(counts); s++ {
		if counts[s] < counts[s+1] {
			t.bands = append(t.bands, t.band(counts[s], counts[s+1], s%width))
		}
	}
	return t
}

func (t *trial) band(first, end int32, free int) band {
	b := band{first: first, end: end, free: free, cpus: -1, memory: -1}
	for _, at := range t.order[first:end] {
		if r := &t.rooms[at]; r.Open {
			b.cpus, b.memory = max(b.cpus, r.CPUs), max(b.memory, r.Memory)
		}
	}
	return b
}

// groupKey is what decides, before the free GPUs, which rooms are filled first.
type groupKey struct {
	class  fleet.Class
	memory job.Bytes // of its GPUs, 0 without
}

func keyOf(r *fleet.Room) groupKey {
	k := groupKey{class: r.Node.Class}
	if gpus := r.Node.Inventory.GPUs; len(gpus) > 0 {
		k.memory = gpus[0].Memory
	}
	return k
}

// rankGroups returns each group's place: by class, then by GPU memory, so that
// jobs without GPUs fill nodes without GPUs first.
func rankGroups(keys []groupKey) []int32 {
	classes := map[fleet.Class]int{}
	for i, c := range fleet.Classes() {
		classes[c] = i
	}
	less := func(a, b groupKey) bool {
		if a.class != b.class {
			return classes[a.class] < classes[b.class]
		}
		return a.memory < b.memory
	}
	rank := make([]int32, len(keys))
	for i := range keys {
		for j := range keys {
			if less(keys[j], keys[i]) {
				rank[i]++
			}
		}
	}
	return rank
}

func (t *trial) room(at int32) *fleet.Room { return &t.rooms[at] }

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
