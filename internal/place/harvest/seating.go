package harvest

import (
	"cmp"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/place"
)

// seatNodes selects nodes for the jobs on a kind whose unit is the node. A job keeps as many of its
// nodes as possible. Nodes that opened together are likely to be taken together, so they are given
// to the same job where possible: then few jobs are hit at once. The larger a job, the older the
// nodes it gets, because nodes that opened recently are the likeliest to be taken soon.
func (r *round) seatNodes(k int, d Decision, changes []change) {
	kd := &r.kinds[k]
	taken := map[int]bool{} // indices of rooms

	var seekers []int
	for j := range r.jobs {
		b := &r.jobs[j]

		if d.Kind[j] != k {
			continue
		}

		switch {
		case b.kind != k:
			seekers = append(seekers, j)
			continue
		case d.Count[j] == b.count:
			changes[j] = change{seats: b.running.Allocations, stays: true}
		case d.Count[j] < b.count:
			changes[j].seats = r.keep(b.running.Allocations, d.Count[j])
		default:
			changes[j].seats = b.running.Allocations
			seekers = append(seekers, j)
		}

		for _, s := range changes[j].seats {
			if at, found := r.find(s.Node); found {
				taken[at] = true
			}
		}
	}

	free := slices.DeleteFunc(slices.Clone(kd.rooms), func(at int32) bool { return taken[int(at)] })
	classes := fleet.Classes()
	slices.SortStableFunc(free, func(a, b int32) int {
		x, y := r.rooms[a].Node, r.rooms[b].Node
		return cmp.Or(cmp.Compare(slices.Index(classes, x.Class), slices.Index(classes, y.Class)),
			x.Since.Compare(y.Since))
	})

	slices.SortStableFunc(seekers, func(a, b int) int { return cmp.Compare(d.Count[b], d.Count[a]) })
	for _, j := range seekers {
		free = r.seek(&r.jobs[j], &changes[j], d.Count[j], kd, free)
	}
}

// keep returns n of a job's seats, on the nodes that opened first.
func (r *round) keep(held []place.Allocation, n int) []place.Allocation {
	order := make([]int, len(held))
	since := make([]time.Time, len(held))
	for i := range held {
		order[i] = i

		if at, found := r.find(held[i].Node); found {
			since[i] = r.rooms[at].Node.Since
		}
	}

	slices.SortStableFunc(order, func(a, b int) int { return since[a].Compare(since[b]) })
	order = order[:n]
	slices.Sort(order)

	kept := make([]place.Allocation, n)
	for i, at := range order {
		kept[i] = held[at]
	}

	return kept
}

// seek gives a job the nodes that it lacks, and returns those that remain. A job that was to grow
// but cannot have all of its nodes stays as it is; a job that was to start takes what is available,
// if that is enough for it.
func (r *round) seek(b *bidder, c *change, count int, k *kind, free []int32) []int32 {
	own := len(c.seats)
	like := map[time.Time]bool{}
	for _, s := range c.seats {
		if at, found := r.find(s.Node); found {
			like[r.rooms[at].Node.Since] = true
		}
	}

	var got []int32

	m := r.matcher(b.item.Shape.Need)
	for _, wanted := range []bool{true, false} { // first nodes that opened together with its own
		for _, at := range free {
			if own+len(got) == count {
				break
			}
			if like[r.rooms[at].Node.Since] != wanted {
				continue
			}

			if _, ok := m.Fits(&r.rooms[at]); ok {
				got = append(got, at)
			}
		}
	}

	if own+len(got) < count && (own > 0 || len(got) < b.item.Shape.Need.Nodes) {
		c.stays = own > 0 || b.running == nil
		return free
	}

	slices.Sort(got)

	c.seats = slices.Clone(c.seats)
	for _, at := range got {
		gpus, _ := m.Fits(&r.rooms[at])
		c.seats = append(c.seats, place.Allocation{Node: r.rooms[at].Node.ID, GPUs: fleet.LowestGPUs(gpus, k.unit)})
	}

	return slices.DeleteFunc(free, func(at int32) bool {
		_, found := slices.BinarySearch(got, at)
		return found
	})
}
