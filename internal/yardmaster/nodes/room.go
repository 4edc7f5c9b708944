package nodes

import (
	"slices"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/queue"
	"trainyard/internal/share"
)

// Fits reports whether enough nodes could meet a need if they were empty.
func (r *Nodes) Fits(need fleet.Need) bool {
	need.Owner = ""
	m := fleet.NewMatcher(need)

	var found []*fleet.Room
	for _, n := range r.byName {
		if room, ok := r.Rooms.Get(n.ID); ok && n.State != fleet.Removed && m.Eligible(room) {
			found = append(found, room)
		}

		// As a rule the first few nodes are enough, and every submission asks.
		if !need.SameGPU && len(found) >= need.Nodes {
			return true
		}
	}

	return need.MostAlike(found) >= need.Nodes
}

// FitsSome reports whether some node that is not lost could meet the need of a job with one node if it were empty.
func (r *Nodes) FitsSome(need fleet.Need) bool {
	need.Owner = ""
	m := fleet.NewMatcher(need)
	for _, n := range r.byName {
		room, ok := r.Rooms.Get(n.ID)
		if ok && n.State != fleet.Removed && n.State != fleet.Lost && m.Eligible(room) {
			return true
		}
	}

	return false
}

// HomeFree reports whether a node that was not provisioned has room for a rank of a job, so that it might come home.
func (r *Nodes) HomeFree(need fleet.Need) bool {
	m := fleet.NewMatcher(need)
	for _, n := range r.byName {
		room, ok := r.Rooms.Get(n.ID)
		if ok && n.Class != fleet.OnDemand && m.Eligible(room) && (room.Free != 0 || len(n.Inventory.GPUs) == 0) {
			return true
		}
	}

	return false
}

// Vacant reports whether all allocations of a start are free.
func (r *Nodes) Vacant(s *place.Start) bool {
	need := &s.Item.Shape.Need

	for _, allocation := range s.Allocations {
		room, ok := r.Rooms.Get(allocation.Node)
		if !ok || room.CPUs < need.CPUs || room.Memory < need.Memory {
			return false
		}

		free := room.Free

		if allocation.Share > 0 {
			cut := place.CutOf(s.Item, allocation.Share)
			shared, whole, _ := fleet.NewMatcher(*need).FitsPart(room, &cut)
			free = shared | whole
			for i := range room.Holds { // a share may be promised of a GPU that a run still holds
				if h := &room.Holds[i]; h.Share == 0 {
					free &^= h.GPUs
				}
			}
		}

		if allocation.GPUs&^free != 0 {
			return false
		}
	}

	return true
}

// CheckPromise reports whether the allocations of a promised start, which are booked for it,
// have been left by all runs (ready), and whether its job may still get them (possible). state tells
// runs that are live from other promises, and which of them are about to leave.
func (r *Nodes) CheckPromise(
	s *place.Start,
	at job.Place,
	state func(id.Run) (live, leaving bool),
) (ready, possible bool) {
	ready = true

	for _, allocation := range s.Allocations {
		room, ok := r.Rooms.Get(allocation.Node)
		if !ok || !room.Open || allocation.GPUs&^room.Sound != 0 || !room.Node.Class.Allows(at) {
			return false, false
		}

		vacant, awaited := vacated(room, &allocation, s.Item, state)
		if !vacant && !awaited {
			return false, false // what it waited for stays
		}

		ready = ready && vacant
	}

	return ready, true
}

// vacated reports whether no run still holds what an allocation needs, and whether some run there is about to leave.
func vacated(
	room *fleet.Room,
	allocation *place.Allocation,
	it *queue.Item,
	state func(id.Run) (live, leaving bool),
) (vacant, awaited bool) {
	need := &it.Shape.Need
	vacant = true
	beside := share.GPU{Memory: room.MemoryOf(allocation.GPUs)} // of a GPU that is shared: those who have it still
	cpus, memory := room.Node.Inventory.CPUs-need.CPUs, room.Node.Inventory.Memory-need.Memory

	for i := range room.Holds {
		h := &room.Holds[i]
		live, leaving := state(h.Run)
		if !live {
			continue // another promise: the plan was checked as a whole
		}

		awaited = awaited || leaving
		cpus -= h.CPUs
		memory -= h.Memory

		if h.GPUs&allocation.GPUs == 0 {
			continue
		}

		if allocation.Share == 0 || h.Share == 0 {
			vacant = false
			continue
		}

		beside.Cuts = append(beside.Cuts, h.Cut())
	}

	if cut := place.CutOf(it, allocation.Share); allocation.Share > 0 && beside.Fits(&cut) != share.NoObstacle {
		vacant = false
	}

	return vacant && cpus >= 0 && memory >= 0, awaited
}

// GPUMemory returns the memory of the smallest GPU that a rank has, 0 if it has none.
func (r *Nodes) GPUMemory(k *job.Rank) job.Bytes {
	var smallest job.Bytes
	for _, g := range r.gpus(k) {
		if smallest == 0 || g.Memory < smallest {
			smallest = g.Memory
		}
	}

	return smallest
}

// Fake reports whether a rank has GPUs that are declared, not real.
func (r *Nodes) Fake(k *job.Rank) bool {
	return slices.ContainsFunc(r.gpus(k), func(g *fleet.GPU) bool { return g.Fake })
}

// gpus returns the GPUs of a rank.
func (r *Nodes) gpus(k *job.Rank) []*fleet.GPU {
	n, ok := r.byName[k.Node]
	if !ok {
		return nil
	}

	var list []*fleet.GPU
	for _, index := range k.GPUs {
		if g := n.Inventory.GPU(index); g != nil {
			list = append(list, g)
		}
	}

	return list
}

// Weigh returns the fair-share weight of the ranks of a run that have not ended. The weight of
// a rank is fixed the first time, because the worth of a GPU may change while it runs.
func (r *Nodes) Weigh(run *job.Run) float64 {
	total := 0.0
	for i := range run.Ranks {
		k := &run.Ranks[i]
		if k.State == job.RunEnded || k.Lends() {
			continue
		}

		if k.Weight == 0 {
			k.Weight = queue.Weight(k.GPUCount(), 1, float64(k.CPUs)/1000, r.worth(k))
		}

		total += k.Weight
	}

	return total
}

// worth is what each GPU of a rank counts for fair share.
func (r *Nodes) worth(k *job.Rank) float64 {
	n, ok := r.byName[k.Node]
	if !ok || len(k.GPUs) == 0 {
		return 1
	}

	speed := 0.0
	if g := n.Inventory.GPU(k.GPUs[0]); g != nil {
		speed, _ = g.TFLOPS()
	}

	return queue.Worth(speed, k.Hourly.EachOf(k.GPUCount()))
}
