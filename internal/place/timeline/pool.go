package timeline

import "trainyard/internal/fleet"

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

	// The fields below are valid for one round.
	churn   int         // rooms that have changed
	moving  []int32     // rooms whose estimates move as time passes
	free    [][]int32   // rooms by how many GPUs they have free; may also list rooms that have changed since
	stale   uint64      // bit set of the numbers of GPUs whose lists hold such rooms
	changed []*roomPlan // rooms with plans
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
	p.Sample, p.churn, p.moving, p.stale, p.changed = sample, 0, p.moving[:0], 0, p.changed[:0]
	for i := range p.free {
		p.free[i] = p.free[i][:0]
	}
}

// put lists a room under the number of GPUs that it has free.
func (p *Pool) put(room int32, gpus int) {
	for len(p.free) <= gpus {
		p.free = append(p.free, nil)
	}

	p.free[gpus] = append(p.free[gpus], room)
}
