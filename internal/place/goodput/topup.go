package goodput

import (
	"math/bits"
	"slices"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/place"
	"trainyard/internal/place/allocate"
)

// topUp gives GPUs that nobody got, because on the nodes less fits than in
// counts, to jobs that got nothing: to who gains most for each GPU first, and to each
// the most that fits on one node.
func (m *market) topUp(wants []allocate.Request, given []allocate.Allocation) {
	gain := make([]float64, len(m.tasks))
	for i := range m.tasks {
		t := &m.tasks[i]
		gain[i] = -slices.Max(t.worth) / float64(t.options[0].gpus)
	}

	var rooms []fleet.Room
	for _, i := range ascending(gain) {
		if len(given[i].Seats) > 0 {
			continue
		}

		if rooms == nil {
			rooms = m.remainingRooms(wants, given)
		}

		if len(rooms) == 0 {
			return
		}

		given[i] = m.fitOnOneNode(&m.tasks[i], rooms)
	}
}

// remainingRooms is what is free on open nodes when everybody has what was given.
func (m *market) remainingRooms(wants []allocate.Request, given []allocate.Allocation) []fleet.Room {
	leaves := map[id.Run]bool{}
	takes := map[id.Node][]fleet.Hold{}
	for i := range wants {
		if given[i].Unchanged {
			continue
		}

		if r := wants[i].Running; r != nil {
			leaves[r.Run] = true
		}

		need := &wants[i].Item.Shape.Need
		for _, s := range given[i].Seats {
			takes[s.Node] = append(takes[s.Node], fleet.Hold{GPUs: s.GPUs, CPUs: need.CPUs, Memory: need.Memory})
		}
	}

	rooms := make([]fleet.Room, 0, len(m.view.Rooms))

	for _, r := range m.view.Rooms {
		r.Free = r.Sound
		r.CPUs = r.Node.Inventory.CPUs
		r.Memory = r.Node.Inventory.Memory
		for _, list := range [][]fleet.Hold{r.Holds, takes[r.Node.ID]} {
			for _, h := range list {
				if h.Run == "" || !leaves[h.Run] {
					r.Free, r.CPUs, r.Memory = r.Free&^h.GPUs, r.CPUs-h.CPUs, r.Memory-h.Memory
				}
			}
		}

		if r.Open && r.Free != 0 {
			rooms = append(rooms, r)
		}
	}

	return rooms
}

// fitOnOneNode gives a job the most that fits on one of the rooms, the tightest of them.
func (m *market) fitOnOneNode(t *task, rooms []fleet.Room) allocate.Allocation {
	match := fleet.NewMatcher(t.item.Shape.Need)
	what, where, tight := -1, -1, 0
	for at := range t.options {
		o := &t.options[at]
		if o.nodes > 1 || what >= 0 && t.worth[at+1] < t.worth[what+1] {
			continue
		}

		for k := range rooms {
			fits, ok := match.Fits(&rooms[k])
			free := bits.OnesCount64(fits)
			if !ok || free < o.gpus || rooms[k].Kind != m.kinds[o.kind].ID {
				continue
			}

			if what < 0 || t.worth[at+1] > t.worth[what+1] || free < tight {
				what, where, tight = at, k, free
			}
		}
	}

	if what < 0 {
		return allocate.Allocation{}
	}

	r := &rooms[where]
	fits, _ := match.Fits(r)
	s := place.Allocation{Node: r.Node.ID, GPUs: fleet.LowestGPUs(fits, t.options[what].gpus)}
	r.Free, r.CPUs, r.Memory = r.Free&^s.GPUs, r.CPUs-match.Need.CPUs, r.Memory-match.Need.Memory

	return allocate.Allocation{Seats: []place.Allocation{s}, GPUs: t.options[what].gpus}
}
