package rules

import (
	"cmp"
	"maps"
	"math/bits"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/timeline"
	"trainyard/internal/share"
)

// count counts the jobs that ask for something.
func count(demands map[share.Demand]int, n *fleet.Need, more int) {
	d := demandOf(n)

	demands[d] += more * n.Nodes
	if demands[d] == 0 {
		delete(demands, d)
	}
}

// countPart counts the jobs on parts of GPUs.
func (l *backlog) countPart(share float64, more int) {
	if share > 0 {
		l.parts += more
	}
}

// demandOf returns what a job asks of each of its nodes, as package share sees it.
func demandOf(n *fleet.Need) share.Demand {
	d := share.Demand{GPUs: float64(n.GPUs), CPUs: n.CPUs, Memory: n.Memory}
	if n.Share > 0 {
		d.GPUs = n.Share
	}

	return d
}

// typical returns what the queued and the running jobs ask for. It is made once a round, and only if somebody wants a
// part of a GPU: what a running job asks for may change at any time. With BestFit it is empty.
func (e *engine) typical() *share.Workload {
	if e.workload == nil && e.cfg.BestFit {
		e.workload = share.NewWorkload(nil)
	}

	if e.workload == nil {
		demands := maps.Clone(e.backlog.demands)
		for _, r := range e.view.Running {
			count(demands, &r.Shape.Need, 1)
		}

		e.workload = share.NewWorkload(demands)
	}

	return e.workload
}

// fitPart completes an option with the GPU of its pool of which the job gets a part now: the one where the least of
// what remains becomes useless to others, then where the least more energy is used, and not beside a job with which it
// does badly.
func (e *engine) fitPart(j *queuedJob, s *shape, o *option) {
	need, cut := &s.Match.Need, place.CutOf(j.item, s.Match.Need.Share)
	demand, workload := demandOf(need), e.typical()
	alone := o.runs

	var best share.Cost

	consider := func(at int32, r *fleet.Room, gpus uint64) {
		e.look(r)
		before := workload.Fragments(&e.host)

		for ; gpus != 0; gpus &= gpus - 1 {
			gpu := gpus & -gpus

			var besides []share.Cut
			if i := r.PartOf(gpu); i >= 0 {
				besides = r.Parts[i].Cuts
			}
			if other := e.view.Beside.PartedFrom(e.view.Now, cut.Kind, besides); other != nil {
				e.apart = other
				continue
			}

			cost := workload.Cost(&e.host, before, bits.OnesCount64(r.Sound&(gpu-1)), &demand)
			if len(besides) == 0 {
				cost.Watts = wattsOf(r, gpu)
			}

			if order := cost.Compare(best); o.rooms == nil || order < 0 || order == 0 && at < o.rooms[0] {
				best = cost
				o.rooms, o.part, o.besides = append(o.rooms[:0], at), gpu, besides
			}
		}
	}

	q := e.request(j, s, o.pool, alone)
	for _, l := range j.leases { // the node that was provisioned for it comes first
		e.timeline.PartsOn(q, o.pool, l.Node, &cut, consider)
	}

	if o.rooms == nil {
		e.timeline.PartsNow(q, o.pool, &cut, consider)
	}

	if o.rooms == nil {
		return
	}

	o.waste = best.Waste
	if e.view.Beside != nil {
		o.runs = time.Duration(float64(alone) / e.view.Beside.Speed(e.view.Now, cut.Kind, o.besides))
	}
}

// fitBesideParts completes an option with the room of its pool where a job that has whole GPUs, or none, leaves the
// least useless to others: where many want parts of GPUs, what is left of a GPU without CPUs and memory is of no use.
func (e *engine) fitBesideParts(q *timeline.Request, o *option) {
	need, workload := &q.Shape.Match.Need, e.typical()
	best, least, soonest := int32(-1), 0.0, time.Duration(0)

	e.timeline.RoomsNow(q, o.pool, func(at int32, delay time.Duration) {
		r := e.timeline.Room(at)
		e.look(&r)

		waste := workload.Whole(&e.host, need.GPUs, need.CPUs, need.Memory)
		if best < 0 || cmp.Or(share.CompareWaste(waste, least), cmp.Compare(delay, soonest)) < 0 {
			best, least, soonest = at, waste, delay
		}
	})

	if best >= 0 {
		o.rooms, o.waste = []int32{best}, least
	}
}

// look makes a room the host of the search.
func (e *engine) look(r *fleet.Room) {
	h := &e.host
	h.Left, h.CPUs, h.Memory = h.Left[:0], r.CPUs, r.Memory

	for set := r.Sound; set != 0; set &= set - 1 {
		gpu, left := set&-set, 0.0
		if r.Free&gpu != 0 {
			left = 1
		} else if i := r.PartOf(gpu); i >= 0 {
			left = max(1-r.Parts[i].Held, 0)
		}

		h.Left = append(h.Left, left)
	}
}

// wattsOf returns how much more a node draws when one more of its GPUs is used: as measured, or else by the power
// limit, and twice that on a node that nobody uses yet and that could be switched off.
func wattsOf(r *fleet.Room, gpu uint64) float64 {
	used := bits.OnesCount64(r.Sound &^ r.Free)
	if draw := r.Node.Inventory.Draw; used+1 < len(draw) && draw[used+1] > draw[used] && draw[used] > 0 {
		return draw[used+1] - draw[used]
	}

	watts := 1.0
	if g := r.Node.Inventory.GPU(bits.TrailingZeros64(gpu)); g != nil {
		watts = cmp.Or(g.Watts, 1)
	}

	if used == 0 {
		watts *= 2
	}

	return watts
}

// startPart starts a job on a part of a GPU of a room: of the one that was chosen, or of a free one.
func (e *engine) startPart(j *queuedJob, o *option, at int32, match *fleet.Matcher) place.Allocation {
	need := &j.item.Shape.Need
	r := e.timeline.Room(at)
	gpu := o.part

	if gpu == 0 {
		gpu = fleet.LowestGPUs(match.MatchingGPUs(&r)&r.Free, 1)
	}

	e.timeline.StartPart(at, gpu, place.CutOf(j.item, need.Share), need, o.runs)

	return place.Allocation{Node: r.Node.ID, GPUs: gpu, Share: need.Share}
}

// reservedPart is a GPU that is reserved for jobs that will share it.
type reservedPart struct {
	room     int32
	startsIn time.Duration
	lasts    time.Duration
	gpu      share.GPU // with the cuts of the jobs that it is reserved for
}

// joinReservation lets a job that shares a GPU wait for one that is reserved for such a job already, if that is no
// later than the GPU that it would have otherwise. Without it each would reserve a whole GPU.
func (e *engine) joinReservation(j *queuedJob, need *fleet.Need, o *option) {
	if need.Share == 0 || len(e.reservedParts) == 0 {
		return
	}

	cut := place.CutOf(j.item, need.Share)

	for i := range e.reservedParts {
		p := &e.reservedParts[i]
		if e.timeline.PoolOf(p.room) != o.pool || o.rooms != nil && p.startsIn > o.startsIn || p.lasts < o.runs ||
			p.gpu.Fits(&cut) != share.NoObstacle {
			continue
		}

		o.rooms, o.startsIn, o.joins = []int32{p.room}, p.startsIn, i+1
	}
}

// keep keeps the nodes of an option for a job from the time at which they will be free.
func (e *engine) keep(j *queuedJob, o *option) {
	cut := place.CutOf(j.item, o.share)

	if o.joins > 0 {
		p := &e.reservedParts[o.joins-1]
		p.gpu.Cuts = append(p.gpu.Cuts, cut)

		return
	}

	n := timeline.SizeOf(&j.item.Shape.Need)
	for _, at := range o.rooms {
		e.timeline.Reserve(at, o.startsIn, n, o.runs)

		if o.share > 0 {
			gpu := share.GPU{Memory: e.sharedMemory(at, &cut), Cuts: []share.Cut{cut}}
			e.reservedParts = append(e.reservedParts, reservedPart{at, o.startsIn, o.runs, gpu})
		}
	}
}

// sharedMemory returns the memory of the smallest GPU of a room of which a job could get a part, 0 if it is unknown.
// Which GPU of the room it will be is not known yet.
func (e *engine) sharedMemory(at int32, c *share.Cut) job.Bytes {
	r := e.timeline.Room(at)
	least := job.Bytes(0)

	for set := r.Sound; set != 0; set &= set - 1 {
		g := share.GPU{Memory: r.MemoryOf(set & -set)}
		if g.Fits(c) == share.NoObstacle && (least == 0 || g.Memory < least) {
			least = g.Memory
		}
	}

	return least
}
