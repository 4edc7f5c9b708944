package problem

import (
	"math/bits"
	"slices"
)

// NodeIndex lists the nodes of one kind by how many GPUs they have free, so that the tightest
// suitable node is found without a search.
type NodeIndex struct {
	Free   []int8      // free GPUs of each node
	Used   []int8      // used GPUs of each node
	InUse  [][]uint64  // InUse[n] is the set of nodes in use with n GPUs free
	Idle   [][]uint64  // the same for nodes without a used GPU
	count  []int32     // number of nodes in both rows
	shared []sharedGPU // GPUs that jobs share
}

// sharedGPU is a GPU of which several jobs have parts.
type sharedGPU struct {
	node  int32
	left  float64
	tasks int // tasks that have a part of it, plus one if other jobs have; 0 if it is no longer shared
}

// Epsilon is the rounding error allowed in sums of parts.
const Epsilon = 1e-6

func newNodeIndex(nodes, size int) NodeIndex {
	words := (nodes + 63) / 64
	s := NodeIndex{
		Free: make([]int8, nodes), Used: make([]int8, nodes), count: make([]int32, size+1),
		InUse: make([][]uint64, size+1), Idle: make([][]uint64, size+1),
	}

	all := make([]uint64, 2*words*(size+1))
	for n := range s.InUse {
		s.InUse[n], s.Idle[n] = all[:words:words], all[words:2*words:2*words]
		all = all[2*words:]
	}

	return s
}

// row returns the set that a node belongs to.
func (s *NodeIndex) row(at int32) []uint64 {
	if s.Used[at] > 0 {
		return s.InUse[s.Free[at]]
	}

	return s.Idle[s.Free[at]]
}

// put sets the numbers of free and used GPUs of a node.
func (s *NodeIndex) put(at int32, free, used int) {
	s.Free[at], s.Used[at] = int8(free), int8(used)
	s.row(at)[at/64] |= 1 << (at % 64)
	s.count[free]++
}

// Move takes n GPUs of a node, or gives back -n if n is negative.
func (s *NodeIndex) Move(at int32, n int) {
	s.row(at)[at/64] &^= 1 << (at % 64)
	s.count[s.Free[at]]--
	s.put(at, int(s.Free[at])-n, int(s.Used[at])+n)
}

// Fit returns the node with the fewest free GPUs of those with at least gpus. A node that is in use
// comes before one that is not. It returns -1 if there is none.
func (s *NodeIndex) Fit(gpus int, skip []int32) int32 {
	for _, rows := range [2][][]uint64{s.InUse, s.Idle} {
		for n := gpus; n < len(rows); n++ {
			if s.count[n] == 0 {
				continue
			}
			if at := FirstOf(rows[n], skip); at >= 0 {
				return at
			}
		}
	}

	return -1
}

// CountWith returns how many nodes have at least gpus GPUs free.
func (s *NodeIndex) CountWith(gpus int) (nodes int) {
	for n := gpus; n < len(s.count); n++ {
		nodes += int(s.count[n])
	}

	return nodes
}

// FirstOf returns the first node of a set that is not among those to skip.
func FirstOf(set []uint64, skip []int32) int32 {
	for w, word := range set {
		for ; word != 0; word &= word - 1 {
			if at := int32(w*64 + bits.TrailingZeros64(word)); !slices.Contains(skip, at) {
				return at
			}
		}
	}

	return -1
}

// FindShared returns the shared GPU that has the least left of those with at least part left, on
// the given node unless that is -1. It returns -1 if there is none.
func (s *NodeIndex) FindShared(part float64, node int32) int {
	best := -1
	for i := range s.shared {
		c := &s.shared[i]
		if c.tasks > 0 && c.left+Epsilon >= part && (node < 0 || c.node == node) &&
			(best < 0 || c.left < s.shared[best].left) {
			best = i
		}
	}

	return best
}

// share takes a part of a GPU, on the given node unless that is -1: of a GPU that is shared already
// if possible, or else of a free one. It returns the index among the shared GPUs, -1 if there is
// none.
func (s *NodeIndex) share(part float64, node int32) int {
	if i := s.FindShared(part, node); i >= 0 {
		s.shared[i].left -= part
		s.shared[i].tasks++
		return i
	}

	switch {
	case node < 0:
		node = s.Fit(1, nil)
	case s.Free[node] < 1:
		node = -1
	}

	if node < 0 {
		return -1
	}

	s.Move(node, 1)

	at := slices.IndexFunc(s.shared, func(c sharedGPU) bool { return c.tasks == 0 })
	if at < 0 {
		s.shared = append(s.shared, sharedGPU{})
		at = len(s.shared) - 1
	}

	s.shared[at] = sharedGPU{node, 1 - part, 1}

	return at
}

// unshare gives back a part of a shared GPU, and the GPU itself if no other job has a part.
func (s *NodeIndex) unshare(part float64, at int) {
	c := &s.shared[at]
	c.left += part
	c.tasks--
	if c.tasks == 0 {
		s.Move(c.node, -1)
	}
}

// NewIndexes returns indexes of the rooms without the preemptible jobs.
func (y *Yard) NewIndexes() []NodeIndex {
	list := make([]NodeIndex, len(y.Kinds))
	for k := range y.Kinds {
		kd := &y.Kinds[k]
		list[k] = newNodeIndex(len(kd.Rooms), kd.Size)
		for at, room := range kd.Rooms {
			r := &y.Rooms[room]
			free := bits.OnesCount64(r.Free)
			list[k].put(int32(at), free, bits.OnesCount64(r.Sound)-free)

			for _, p := range r.Parts {
				list[k].shared = append(list[k].shared, sharedGPU{int32(at), 1 - p.Held, 1})
			}
		}
	}

	return list
}

// Assign gives a task the GPUs of a candidate if there is room, and reports whether there is.
func (y *Yard) Assign(t *Task, at int) bool {
	o := &t.Candidates[at]
	s := &y.Indexes[o.Kind]
	pos := t.Positions[:0]

	if o.Share > 0 {
		t.sharedGPU = s.share(o.Share, -1)
		if t.sharedGPU >= 0 {
			t.Positions, t.Assigned = append(pos, s.shared[t.sharedGPU].node), at
		}

		return t.sharedGPU >= 0
	}

	for i := range int(o.Nodes) {
		node := s.Fit(o.On(i), pos)
		if node < 0 {
			for k, p := range pos {
				s.Move(p, -o.On(k))
			}

			return false
		}

		s.Move(node, o.On(i))
		pos = append(pos, node)
	}

	t.Positions, t.Assigned = pos, at

	return true
}

// Unassign takes back a task's GPUs.
func (y *Yard) Unassign(t *Task) {
	if t.Assigned < 0 {
		return
	}

	o := &t.Candidates[t.Assigned]

	t.Assigned = -1
	if o.Share > 0 {
		y.Indexes[o.Kind].unshare(o.Share, t.sharedGPU)
		return
	}

	for i, p := range t.Positions {
		y.Indexes[o.Kind].Move(p, -o.On(i))
	}
}

// Reassign gives a task another candidate, and reports whether there was room; if not it keeps the
// one it has. Candidate -1 means that the task waits.
func (y *Yard) Reassign(t *Task, to int) bool {
	from := t.Assigned
	y.previous = append(y.previous[:0], t.Positions...)
	y.Unassign(t)

	if to < 0 || y.Assign(t, to) {
		return true
	}

	t.Positions = append(t.Positions[:0], y.previous...)
	y.AssignAt(t, from)

	return false
}

// AssignAt gives a task a candidate on the nodes recorded for it. A part of a GPU may no longer be
// available if others have taken their parts in another order; then the task waits.
func (y *Yard) AssignAt(t *Task, at int) {
	t.Assigned = at

	if at < 0 {
		return
	}

	o := &t.Candidates[at]
	if o.Share > 0 {
		t.sharedGPU = y.Indexes[o.Kind].share(o.Share, t.Positions[0])
		if t.sharedGPU < 0 {
			t.Assigned = -1
		}

		return
	}

	for i, p := range t.Positions {
		y.Indexes[o.Kind].Move(p, o.On(i))
	}
}
