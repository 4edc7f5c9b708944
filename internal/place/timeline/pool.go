package timeline

import "trainyard/internal/fleet"

// Pool is the nodes of one class with one kind of GPU: what is true of one of them is
// mostly true of all.
type Pool struct {
	Index  int // in Timeline.Pools
	Class  fleet.Class
	Kind   int32   // of the GPUs, as fleet.Room has it; negative if there are none, or several kinds
	TFLOPS float64 // of one GPU; 0 if unknown

	// Sample is one of the rooms.
	Sample *fleet.Room

	rooms     []int32
	schedules []*schedule // by number of GPUs: the rooms by when they have that many free

	// Of this round.
	churn   int         // rooms that have changed
	moving  []int32     // rooms whose estimates move as time passes
	free    [][]int32   // rooms by how many GPUs they have free; a room may be left in lists it was in before
	stale   uint64      // numbers of GPUs whose lists hold such rooms
	changed []*roomPlan // rooms with plans
}

func newPool(index int, r *fleet.Room) *Pool {
	p := &Pool{Index: index, Class: r.Node.Class, Kind: r.Kind}
	if gpus := r.Node.Inventory.GPUs; len(gpus) > 0 {
		p.TFLOPS, _ = gpus[0].TFLOPS()
	}

	return p
}

// begin forgets what the last round did in a pool.
func (p *Pool) begin(sample *fleet.Room) {
	clear(p.changed)
	p.Sample, p.churn, p.moving, p.stale, p.changed = sample, 0, p.moving[:0], 0, p.changed[:0]
	for i := range p.free {
		p.free[i] = p.free[i][:0]
	}
}

// put lists a room by the number of GPUs it has free.
func (p *Pool) put(room int32, gpus int) {
	for len(p.free) <= gpus {
		p.free = append(p.free, nil)
	}

	p.free[gpus] = append(p.free[gpus], room)
}
