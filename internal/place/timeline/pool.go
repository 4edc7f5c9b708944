package timeline

import (
	"slices"

	"trainyard/internal/fleet"
)

// Pool is a group of nodes of one class with one kind of GPU. Searches go by pool, because the
// nodes of a pool are nearly interchangeable.
type Pool struct {
	Index  int // in Timeline.Pools
	Class  fleet.Class
	Kind   int32   // of the GPUs, as in fleet.Room; negative if there are none or several kinds
	TFLOPS float64 // of one GPU; 0 if unknown

	// Sample is one of the rooms.
	Sample *fleet.Room

	rooms     []int32
	schedules []*schedule // by number of GPUs: the rooms in order of when they have that many free
	present   [][]int32   // the rooms by how many GPUs they have free, without the plan; sorted
	shared    []int32     // the rooms with GPUs that jobs share, without the plan; sorted

	// The fields below are valid for one round.
	churn   int         // rooms that have changed
	free    [][]int32   // present under the plan; may also list rooms that have changed since
	copies  [][]int32   // of the lists of present, for those lists of free that the plan has changed
	copied  []bool      // whether a list of free is such a copy
	changed []*roomPlan // rooms with plans
	cut     []int32     // rooms in which the plan shares the first GPU
}

func newPool(index int, r *fleet.Room) *Pool {
	p := &Pool{Index: index, Class: r.Node.Class, Kind: r.Kind}
	if gpus := r.Node.Inventory.GPUs; len(gpus) > 0 {
		p.TFLOPS, _ = gpus[0].TFLOPS()
	}

	return p
}

// HasGPUs reports whether its nodes have GPUs.
func (p *Pool) HasGPUs() bool { return len(p.Sample.Node.Inventory.GPUs) > 0 }

// begin resets the fields of the last round.
func (p *Pool) begin(sample *fleet.Room) {
	clear(p.changed)
	p.Sample, p.churn, p.changed, p.cut = sample, 0, p.changed[:0], p.cut[:0]
	p.free = append(p.free[:0], p.present...)
	clear(p.copied)
}

// empty forgets which rooms have GPUs free.
func (p *Pool) empty() {
	for i := range p.present {
		p.present[i] = p.present[i][:0]
	}

	p.shared = p.shared[:0]
}

// share lists a room among those with shared GPUs, or no longer.
func (p *Pool) share(room int32, shares bool) {
	at, found := slices.BinarySearch(p.shared, room)

	switch {
	case shares && !found:
		p.shared = slices.Insert(p.shared, at, room)
	case !shares && found:
		p.shared = slices.Delete(p.shared, at, at+1)
	}
}

// grow makes lists for up to a number of free GPUs.
func (p *Pool) grow(gpus int) {
	for len(p.present) <= gpus {
		p.present = append(p.present, nil)
		p.copies = append(p.copies, nil)
		p.copied = append(p.copied, false)
	}

	for len(p.free) <= gpus {
		p.free = append(p.free, nil)
	}
}

// list lists a room under the number of GPUs that it has free without the plan. It is behind those listed already.
func (p *Pool) list(room int32, gpus int) {
	p.grow(gpus)
	p.present[gpus] = append(p.present[gpus], room)
}

// move lists a room under another number of GPUs that it has free without the plan.
func (p *Pool) move(room int32, from, to int) {
	if from == to {
		return
	}

	p.grow(to)

	if at, found := slices.BinarySearch(p.present[from], room); found {
		p.present[from] = slices.Delete(p.present[from], at, at+1)
	}

	at, _ := slices.BinarySearch(p.present[to], room)
	p.present[to] = slices.Insert(p.present[to], at, room)
	p.free[from], p.free[to] = p.present[from], p.present[to]
}

// put lists a room under the number of GPUs that it has free under the plan.
func (p *Pool) put(room int32, gpus int) {
	p.grow(gpus)
	p.own(gpus)
	p.free[gpus] = append(p.free[gpus], room)
	p.copies[gpus] = p.free[gpus]
}

// own makes a list of free a copy, so that the plan may change it.
func (p *Pool) own(gpus int) {
	if !p.copied[gpus] {
		p.copied[gpus] = true
		p.copies[gpus] = append(p.copies[gpus][:0], p.free[gpus]...)
		p.free[gpus] = p.copies[gpus]
	}
}
