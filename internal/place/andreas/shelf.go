package andreas

import (
	"math/bits"
	"slices"
)

// shelf has the nodes of one kind by how many GPUs they have free, so that the
// tightest that will do is found at once.
type shelf struct {
	free  []int8     // GPUs of each node
	used  []int8     // GPUs of each node
	rows  [][]uint64 // rows[n] is the set of nodes in use with n GPUs free
	idle  [][]uint64 // the same for nodes of which no GPU is in use
	count []int32    // of both rows
	cuts  []cut      // GPUs that jobs share
}

// cut is a GPU of which jobs have parts.
type cut struct {
	node  int32
	left  float64
	tasks int // that have a part of it, and one more if others do; 0 if it is shared no more
}

// tiny is what sums of parts may be off by.
const tiny = 1e-6

func newShelf(nodes, size int) shelf {
	words := (nodes + 63) / 64
	s := shelf{
		free: make([]int8, nodes), used: make([]int8, nodes), count: make([]int32, size+1),
		rows: make([][]uint64, size+1), idle: make([][]uint64, size+1),
	}
	all := make([]uint64, 2*words*(size+1))
	for n := range s.rows {
		s.rows[n], s.idle[n] = all[:words:words], all[words:2*words:2*words]
		all = all[2*words:]
	}
	return s
}

// row is the set that a node is in.
func (s *shelf) row(at int32) []uint64 {
	if s.used[at] > 0 {
		return s.rows[s.free[at]]
	}
	return s.idle[s.free[at]]
}

// put sets what a node has free.
func (s *shelf) put(at int32, free, used int) {
	s.free[at], s.used[at] = int8(free), int8(used)
	s.row(at)[at/64] |= 1 << (at % 64)
	s.count[free]++
}

// move changes what a node has free; n is what is taken, or given back below 0.
func (s *shelf) move(at int32, n int) {
	s.row(at)[at/64] &^= 1 << (at % 64)
	s.count[s.free[at]]--
	s.put(at, int(s.free[at])-n, int(s.used[at])+n)
}

// fit returns the node with the fewest free GPUs of those with at least so many, a
// node that is in use before one that is not, and -1 if there is none.
func (s *shelf) fit(gpus int, skip []int32) int32 {
	for _, rows := range [2][][]uint64{s.rows, s.idle} {
		for n := gpus; n < len(rows); n++ {
			if s.count[n] == 0 {
				continue
			}
			if at := first(rows[n], skip); at >= 0 {
				return at
			}
		}
	}
	return -1
}

// with returns how many nodes have at least so many GPUs free.
func (s *shelf) with(gpus int) (nodes int) {
	for n := gpus; n < len(s.count); n++ {
		nodes += int(s.count[n])
	}
	return nodes
}

// first returns the first node of a set that is not among those to skip.
func first(set []uint64, skip []int32) int32 {
	for w, word := range set {
		for ; word != 0; word &= word - 1 {
			if at := int32(w*64 + bits.TrailingZeros64(word)); !slices.Contains(skip, at) {
				return at
			}
		}
	}
	return -1
}

// cut returns the shared GPU with the least left of those with so much left, on
// one node if that is not -1, and -1 if there is none.
func (s *shelf) cut(part float64, node int32) int {
	best := -1
	for i := range s.cuts {
		c := &s.cuts[i]
		if c.tasks > 0 && c.left+tiny >= part && (node < 0 || c.node == node) && (best < 0 || c.left < s.cuts[best].left) {
			best = i
		}
	}
	return best
}

// share takes a part of a GPU, of one node if that is not -1: one that is shared
// already if there is one, or else a free one. It returns its place among the
// shared ones, -1 if there is no such GPU.
func (s *shelf) share(part float64, node int32) int {
	if i := s.cut(part, node); i >= 0 {
		s.cuts[i].left -= part
		s.cuts[i].tasks++
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
	at := slices.IndexFunc(s.cuts, func(c cut) bool { return c.tasks == 0 })
	if at < 0 {
		s.cuts = append(s.cuts, cut{})
		at = len(s.cuts) - 1
	}
	s.cuts[at] = cut{node, 1 - part, 1}
	return at
}

// unshare gives a part of a shared GPU back, and the GPU if nobody else has any.
func (s *shelf) unshare(part float64, at int) {
	c := &s.cuts[at]
	c.left += part
	if c.tasks--; c.tasks == 0 {
		s.move(c.node, -1)
	}
}

// shelves puts the rooms onto shelves as they are without the loose jobs.
func (y *yard) shelves() []shelf {
	list := make([]shelf, len(y.kinds))
	for k := range y.kinds {
		kd := &y.kinds[k]
		list[k] = newShelf(len(kd.rooms), kd.size)
		for at, room := range kd.rooms {
			r := &y.rooms[room]
			free := bits.OnesCount64(r.Free)
			list[k].put(int32(at), free, bits.OnesCount64(r.Sound)-free)
			for _, p := range r.Parts {
				list[k].cuts = append(list[k].cuts, cut{int32(at), 1 - p.Held, 1})
			}
		}
	}
	return list
}

// take gives a task an offer's GPUs if there is room, and reports whether there is.
func (y *yard) take(t *task, at int) bool {
	o := &t.offers[at]
	s := &y.shelf[o.kind]
	pos := t.pos[:0]
	if o.part > 0 {
		if t.cut = s.share(o.part, -1); t.cut >= 0 {
			t.pos, t.at = append(pos, s.cuts[t.cut].node), at
		}
		return t.cut >= 0
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
	t.pos, t.at = pos, at
	return true
}

// give takes a task's GPUs back.
func (y *yard) give(t *task) {
	if t.at < 0 {
		return
	}
	o := &t.offers[t.at]
	t.at = -1
	if o.part > 0 {
		y.shelf[o.kind].unshare(o.part, t.cut)
		return
	}
	for i, p := range t.pos {
		y.shelf[o.kind].move(p, -o.on(i))
	}
}

// change gives a task another offer than the one it has, and reports whether there
// was room; if not it keeps what it has. An offer of -1 lets it wait.
func (y *yard) change(t *task, to int) bool {
	from := t.at
	y.old = append(y.old[:0], t.pos...)
	y.give(t)
	if to < 0 || y.take(t, to) {
		return true
	}
	t.pos = append(t.pos[:0], y.old...)
	y.hold(t, from)
	return false
}

// hold gives a task an offer on the nodes that it has been written down for. A
// part of a GPU may no longer be there if others have taken their parts in another
// order; then it waits.
func (y *yard) hold(t *task, at int) {
	t.at = at
	if at < 0 {
		return
	}
	o := &t.offers[at]
	if o.part > 0 {
		if t.cut = y.shelf[o.kind].share(o.part, t.pos[0]); t.cut < 0 {
			t.at = -1
		}
		return
	}
	for i, p := range t.pos {
		y.shelf[o.kind].move(p, o.on(i))
	}
}
