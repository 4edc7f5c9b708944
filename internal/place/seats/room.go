package seats

import (
	"cmp"
	"slices"
)

// holder is a want with a seat in a room.
type holder struct {
	want int
	gpus uint64
}

// makeRoom moves smaller jobs out of the way of a want that got less than it is
// to have. It is done if the want gets more and each of the others gets all it
// had; else everything stays as it was. Only smaller ones are moved, so that this
// comes to an end.
func (d *dealer) makeRoom(i int) {
	w := &d.wants[i]
	b := boundsOf(w)
	rooms, dealt, before := slices.Clone(d.rooms), slices.Clone(d.dealt), d.dealt[i].count
	for _, kind := range d.kinds(w, d.dealt[i].cards) {
		moved := d.evict(i, b, kind)
		if len(moved) > 0 {
			d.serve(i)
			if d.resettle(moved, dealt) && d.dealt[i].count > before {
				return
			}
		}
		copy(d.rooms, rooms)
		copy(d.dealt, dealt)
	}
}

// resettle serves those that were moved, and reports whether each has what it had.
func (d *dealer) resettle(moved []int, had []hand) bool {
	slices.SortStableFunc(moved, func(a, b int) int { return cmp.Or(cmp.Compare(had[b].count, had[a].count), cmp.Compare(a, b)) })
	for _, j := range moved {
		if d.serve(j); d.dealt[j].count < had[j].count {
			return false
		}
	}
	return true
}

// evict takes smaller jobs off rooms of a kind until the want fits there, those
// rooms first where least is moved. It returns whom it took off.
func (d *dealer) evict(i int, b bounds, kind int32) []int {
	w := &d.wants[i]
	there := d.holders(w.GPUs)
	m := d.matcher(w)
	d.unbook(i)
	d.dealt[i] = hand{}
	type chance struct {
		at        int32
		cap, cost int // what it could have there, and how much of that others have
	}
	var list []chance
	for at := range d.rooms {
		r := d.rooms[at]
		if b.gpus && r.Kind != kind {
			continue
		}
		now, _ := m.Fits(&r)
		for _, h := range there[at] {
			need := &d.wants[h.want].Item.Shape.Need
			r.Free |= h.gpus & r.Sound
			r.CPUs += need.CPUs
			r.Memory += need.Memory
		}
		fits, ok := m.Fits(&r)
		if !ok || b.gpus && count(fits) < b.lo {
			continue
		}
		c := chance{at: int32(at), cap: 1}
		if b.gpus {
			c.cap = min(b.hi, count(fits))
		}
		c.cost = max(0, min(c.cap, w.GPUs)-count(now))
		list = append(list, c)
	}
	slices.SortFunc(list, func(x, y chance) int {
		return cmp.Or(cmp.Compare(min(y.cap, w.GPUs), min(x.cap, w.GPUs)), cmp.Compare(x.cost, y.cost), cmp.Compare(x.at, y.at))
	})
	var moved []int
	left := w.GPUs
	for k := 0; k < len(list) && k < b.most && left > 0; k++ {
		want := min(list[k].cap, left)
		moved = append(moved, d.clear(i, list[k].at, want, there[list[k].at])...)
		left -= want
	}
	return moved
}

// clear takes jobs off a room, the smallest first, until the want has so much there.
func (d *dealer) clear(i int, at int32, want int, there []holder) []int {
	m := d.matcher(&d.wants[i])
	var moved []int
	for _, h := range there {
		fits, ok := m.Fits(&d.rooms[at])
		if ok && (m.Need.MaxGPUs == 0 || count(fits) >= want) {
			break
		}
		if len(d.dealt[h.want].cards) == 0 {
			continue // it was on a room that was cleared before
		}
		d.unbook(h.want)
		d.dealt[h.want] = hand{}
		moved = append(moved, h.want)
	}
	return moved
}

// holders lists for each room the jobs with a seat there that may be moved and
// have less than so many GPUs in all, the smallest first.
func (d *dealer) holders(below int) [][]holder {
	there := make([][]holder, len(d.rooms))
	for j := range d.dealt {
		r := d.wants[j].Running
		if d.dealt[j].count >= below || r != nil && !Loose(r) {
			continue
		}
		for _, c := range d.dealt[j].cards {
			there[c.at] = append(there[c.at], holder{j, c.gpus})
		}
	}
	for at := range there {
		slices.SortStableFunc(there[at], func(a, b holder) int {
			return cmp.Compare(d.dealt[a.want].count, d.dealt[b.want].count)
		})
	}
	return there
}
