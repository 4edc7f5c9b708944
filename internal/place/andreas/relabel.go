package andreas

import (
	"cmp"
	"math/bits"
	"slices"

	"trainyard/internal/fleet"
	"trainyard/internal/place"
)

// relabel finds seats for an answer without changing which tasks share a node: it
// chooses which node is which, so that as many as possible stay where they are. A
// task that cannot have its seats there after all, because CPUs or memory do not
// suffice, waits.
func (y *yard) relabel() {
	real := y.rename()
	y.shelf = y.shelves()
	y.there = make([][]int32, len(y.rooms))
	late := make([]int32, 0, len(y.tasks))
	for i := range y.tasks {
		t := &y.tasks[i]
		t.seats = nil
		if t.at < 0 {
			continue
		}
		o := &t.offers[t.at]
		for n, p := range t.pos {
			t.pos[n] = real[o.kind][p]
		}
		if t.run != nil && t.at == t.now && y.same(t) {
			t.pos = t.pos[:0]
			y.back(int32(i), t.run.Seats, t.home)
			continue
		}
		late = append(late, int32(i))
	}
	for _, i := range late {
		y.claim(i)
	}
}

// same reports whether a task's nodes are those that it runs on.
func (y *yard) same(t *task) bool {
	for _, room := range t.home {
		if !slices.Contains(t.pos, room) {
			return false
		}
	}
	return len(t.pos) == len(t.home)
}

// claim seats a task on the rooms that it has been written down for.
func (y *yard) claim(i int32) {
	t := &y.tasks[i]
	o := &t.offers[t.at]
	match := y.shapeOf(t.item.Shape).match
	rooms := slices.Clone(t.pos)
	masks := make([]uint64, len(rooms))
	for n, room := range rooms {
		fits, ok := match.Fits(&y.rooms[room])
		masks[n] = fleet.Take(fits, o.on(n))
		if !ok || bits.OnesCount64(masks[n]) < o.on(n) {
			t.at, t.pos = -1, t.pos[:0]
			return
		}
	}
	t.pos = t.pos[:0]
	for n, room := range rooms {
		y.sit(i, room, place.Seat{Node: y.rooms[room].Node.ID, GPUs: masks[n]})
	}
}

// link is how many GPUs a real node holds now of what an answer puts onto one of
// its nodes.
type link struct {
	node, real int32
	gpus       int
}

// rename chooses for each node of the answer, by kind and place on the shelf, the
// room that it shall be. Nodes are exchanged only for such as have equally many
// GPUs free and in use without the tasks.
func (y *yard) rename() [][]int32 {
	fresh := y.shelves()
	links := make([][]link, len(y.kinds))
	for i := range y.tasks {
		t := &y.tasks[i]
		if t.run == nil || t.at != t.now || t.at < 0 {
			continue
		}
		for n, s := range t.run.Seats {
			k := t.offers[t.at].kind
			if sp := y.spots[t.home[n]]; sp.kind == k && n < len(t.pos) {
				links[k] = append(links[k], link{t.pos[n], sp.at, gpusOf(s)})
			}
		}
	}
	real := make([][]int32, len(y.kinds))
	for k := range y.kinds {
		real[k] = matched(links[k], &fresh[k])
		for p, q := range real[k] {
			real[k][p] = y.kinds[k].rooms[q]
		}
	}
	return real
}

// matched gives each node of a shelf a real one, those with the most to keep first.
func matched(links []link, s *shelf) []int32 {
	slices.SortFunc(links, func(a, b link) int { return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.real, b.real)) })
	sums := links[:0]
	for _, l := range links {
		if n := len(sums); n > 0 && sums[n-1].node == l.node && sums[n-1].real == l.real {
			sums[n-1].gpus += l.gpus
		} else {
			sums = append(sums, l)
		}
	}
	slices.SortStableFunc(sums, func(a, b link) int { return cmp.Compare(b.gpus, a.gpus) })
	real, taken := make([]int32, len(s.free)), make([]bool, len(s.free))
	for p := range real {
		real[p] = -1
	}
	give := func(p, q int32) {
		if real[p] < 0 && !taken[q] && s.free[p] == s.free[q] && s.used[p] == s.used[q] {
			real[p], taken[q] = q, true
		}
	}
	for _, l := range sums {
		give(l.node, l.real)
	}
	for p := range real {
		give(int32(p), int32(p))
	}
	for p := range real {
		for q := 0; real[p] < 0; q++ {
			give(int32(p), int32(q))
		}
	}
	return real
}
