package andreas

import (
	"math/bits"
	"slices"
)

// nodeIndex has the nodes of one kind by how many GPUs they have free, so that the
// tightest that will do is found at once.
type nodeIndex struct {
	free   []int8      // GPUs of each node
	used   []int8      // GPUs of each node
	inUse  [][]uint64  // rows[n] is the set of nodes in use with n GPUs free
	idle   [][]uint64  // the same for nodes of which no GPU is in use
	count  []int32     // of both rows
	shared []sharedGPU // GPUs that jobs share
}

// sharedGPU is a GPU of which jobs have parts.
type sharedGPU struct {
	node  int32
	left  float64
	tasks int // that have a part of it, and one more if others do; 0 if it is shared no more
}

// epsilon is what sums of parts may be off by.
const epsilon = 1e-6

func newNodeIndex(nodes, size int) nodeIndex {
	words := (nodes + 63) / 64
	s := nodeIndex{
		free: make([]int8, nodes), used: make([]int8, nodes), count: make([]int32, size+1),
		inUse: make([][]uint64, size+1), idle: make([][]uint64, size+1),
	}

	all := make([]uint64, 2*words*(size+1))
	for n := range s.inUse {
		s.inUse[n], s.idle[n] = all[:words:words], all[words:2*words:2*words]
		all = all[2*words:]
	}

	return s
}

// row is the set that a node is in.
func (s *nodeIndex) row(at int32) []uint64 {
	if s.used[at] > 0 {
		return s.inUse[s.free[at]]
	}

	return s.idle[s.free[at]]
}

// put sets what a node has free.
func (s *nodeIndex) put(at int32, free, used int) {
	s.free[at], s.used[at] = int8(free), int8(used)
	s.row(at)[at/64] |= 1 << (at % 64)
	s.count[free]++
}

// move changes what a node has free; n is what is taken, or given back below 0.
func (s *nodeIndex) move(at int32, n int) {
	s.row(at)[at/64] &^= 1 << (at % 64)
	s.count[s.free[at]]--
	s.put(at, int(s.free[at])-n, int(s.used[at])+n)
}

// fit returns the node with the fewest free GPUs of those with at least so many, a
// node that is in use before one that is not, and -1 if there is none.
func (s *nodeIndex) fit(gpus int, skip []int32) int32 {
	for _, rows := range [2][][]uint64{s.inUse, s.idle} {
		for n := gpus; n < len(rows); n++ {
			if s.count[n] == 0 {
				continue
			}
			if at := firstOf(rows[n], skip); at >= 0 {
				return at
			}
		}
	}

	return -1
}

// countWith returns how many nodes have at least so many GPUs free.
func (s *nodeIndex) countWith(gpus int) (nodes int) {
	for n := gpus; n < len(s.count); n++ {
		nodes += int(s.count[n])
	}

	return nodes
}

// firstOf returns the first node of a set that is not among those to skip.
func firstOf(set []uint64, skip []int32) int32 {
	for w, word := range set {
		for ; word != 0; word &= word - 1 {
			if at := int32(w*64 + bits.TrailingZeros64(word)); !slices.Contains(skip, at) {
				return at
			}
		}
	}

	return -1
}

// findShared returns the shared GPU with the least left of those with so much left, on
// one node if that is not -1, and -1 if there is none.
func (s *nodeIndex) findShared(part float64, node int32) int {
	best := -1
	for i := range s.shared {
		c := &s.shared[i]
		if c.tasks > 0 && c.left+epsilon >= part && (node < 0 || c.node == node) &&
			(best < 0 || c.left < s.shared[best].left) {
			best = i
		}
	}

	return best
}

// share takes a share of a GPU, of one node if that is not -1: one that is shared
// already if there is one, or else a free one. It returns its place among the
// shared ones, -1 if there is no such GPU.
func (s *nodeIndex) share(part float64, node int32) int {
	if i := s.findShared(part, node); i >= 0 {
		s.shared[i].left -= part
		s.shared[i].tasks++
		return i
	}

	switch {
	case node < 0:
		node = s.fit(1, nil)
	case s.free[node] < 1:
		node = -1
	}

	if node < 0 {
		return -1
	}

	s.move(node, 1)

	at := slices.IndexFunc(s.shared, func(c sharedGPU) bool { return c.tasks == 0 })
	if at < 0 {
		s.shared = append(s.shared, sharedGPU{})
		at = len(s.shared) - 1
	}

	s.shared[at] = sharedGPU{node, 1 - part, 1}

	return at
}

// unshare gives a part of a shared GPU back, and the GPU if nobody else has any.
func (s *nodeIndex) unshare(part float64, at int) {
	c := &s.shared[at]
	c.left += part
	c.tasks--
	if c.tasks == 0 {
		s.move(c.node, -1)
	}
}

// newIndexes puts the rooms onto indexes as they are without the preemptible jobs.
func (y *yard) newIndexes() []nodeIndex {
	list := make([]nodeIndex, len(y.kinds))
	for k := range y.kinds {
		kd := &y.kinds[k]
		list[k] = newNodeIndex(len(kd.rooms), kd.size)
		for at, room := range kd.rooms {
			r := &y.rooms[room]
			free := bits.OnesCount64(r.Free)
			list[k].put(int32(at), free, bits.OnesCount64(r.Sound)-free)

			for _, p := range r.Parts {
				list[k].shared = append(list[k].shared, sharedGPU{int32(at), 1 - p.Held, 1})
			}
		}
	}

	return list
}

// assign gives a task a candidate's GPUs if there is room, and reports whether there is.
func (y *yard) assign(t *task, at int) bool {
	o := &t.candidates[at]
	s := &y.indexes[o.kind]
	pos := t.positions[:0]

	if o.share > 0 {
		t.sharedGPU = s.share(o.share, -1)
		if t.sharedGPU >= 0 {
			t.positions, t.assigned = append(pos, s.shared[t.sharedGPU].node), at
		}

		return t.sharedGPU >= 0
	}

	for i := range int(o.nodes) {
		node := s.fit(o.on(i), pos)
		if node < 0 {
			for k, p := range pos {
				s.move(p, -o.on(k))
			}

			return false
		}

		s.move(node, o.on(i))
		pos = append(pos, node)
	}

	t.positions, t.assigned = pos, at

	return true
}

// unassign takes a task's GPUs back.
func (y *yard) unassign(t *task) {
	if t.assigned < 0 {
		return
	}

	o := &t.candidates[t.assigned]

	t.assigned = -1
	if o.share > 0 {
		y.indexes[o.kind].unshare(o.share, t.sharedGPU)
		return
	}

	for i, p := range t.positions {
		y.indexes[o.kind].move(p, -o.on(i))
	}
}

// reassign gives a task another candidate than the one it has, and reports whether there
// was room; if not it keeps what it has. A candidate of -1 lets it wait.
func (y *yard) reassign(t *task, to int) bool {
	from := t.assigned
	y.previous = append(y.previous[:0], t.positions...)
	y.unassign(t)

	if to < 0 || y.assign(t, to) {
		return true
	}

	t.positions = append(t.positions[:0], y.previous...)
	y.assignAt(t, from)

	return false
}

// assignAt gives a task a candidate on the nodes that it has been recorded for. A
// part of a GPU may no longer be there if others have taken their parts in another
// order; then it waits.
func (y *yard) assignAt(t *task, at int) {
	t.assigned = at

	if at < 0 {
		return
	}

	o := &t.candidates[at]
	if o.share > 0 {
		t.sharedGPU = y.indexes[o.kind].share(o.share, t.positions[0])
		if t.sharedGPU < 0 {
			t.assigned = -1
		}

		return
	}

	for i, p := range t.positions {
		y.indexes[o.kind].move(p, o.on(i))
	}
}
