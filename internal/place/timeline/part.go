package timeline

import (
	"math/bits"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/share"
)

// PartsNow yields the GPUs of a pool of which a job can get a part at once and keep it for as long as it lasts, without
// delaying a job for which the room is reserved: those that are shared already, and one free GPU of each of
// some rooms. The room is in its state under the plan so far.
func (t *Timeline) PartsNow(q *Request, p *Pool, c *share.Cut, yield func(at int32, r *fleet.Room, gpus uint64)) {
	for _, list := range [2][]int32{p.shared, p.cut} {
		for _, at := range list {
			t.partsOf(q, at, c, yield)
		}
	}

	t.sample(p, 1, func(at int32) bool { return len(t.open[at].Parts) == 0 && t.partsOf(q, at, c, yield) })
}

// RoomsNow yields some rooms of a pool in which a job of one node can start at once and stay for as long as it lasts,
// those with the fewest free GPUs first, with the time by which it would delay their last end.
func (t *Timeline) RoomsNow(q *Request, p *Pool, yield func(at int32, delay time.Duration)) {
	t.sample(p, q.Shape.Match.Need.GPUs, func(at int32) bool {
		if !t.fits(q, at) {
			return false
		}

		yield(at, t.delay(q, at))

		return true
	})
}

// maxSampled is about how many rooms of a pool are compared. The first so many would be the same for every job, and
// each would be filled with whatever comes; those spread over all of them are nearly as good as all.
const maxSampled = 64

// sample visits rooms of a pool with so many free GPUs or more, those with the fewest first. After each that visit
// finds fit, it leaves some out if there are many.
func (t *Timeline) sample(p *Pool, gpus int, visit func(at int32) bool) {
	rooms := 0
	for _, list := range p.free[min(gpus, len(p.free)):] {
		rooms += len(list)
	}

	for step := max(1, rooms/maxSampled); gpus < len(p.free); gpus++ {
		for i := 0; i < len(p.free[gpus]); {
			switch {
			case t.dropStale(p, gpus, i):
			case visit(p.free[gpus][i]):
				i += step
			default:
				i++
			}
		}
	}
}

// PartsOn is PartsNow for one node, if it is of the pool.
func (t *Timeline) PartsOn(
	q *Request, p *Pool, n id.Node, c *share.Cut, yield func(at int32, r *fleet.Room, gpus uint64),
) {
	if at, found := t.Find(n); found && t.rooms[at].Open && t.PoolOf(at) == p {
		t.partsOf(q, at, c, yield)
	}
}

// partsOf yields the GPUs of a room of which a job can get a part, and reports whether there are any.
func (t *Timeline) partsOf(
	q *Request, at int32, c *share.Cut, yield func(at int32, r *fleet.Room, gpus uint64),
) bool {
	need := &q.Shape.Match.Need
	if o := &t.open[at]; o.CPUs < need.CPUs || o.Memory < need.Memory || t.closedTo(q.Job, at) {
		return false
	}

	r := t.Room(at)

	shared, free, ok := q.Shape.Match.FitsPart(&r, c)
	if !ok {
		return false
	}

	if t.Reserved(at) {
		profile := t.profileOf(t.plan(at))
		if !profile.fits(0, q.Shape.Takes, q.Lasts) {
			free = 0
		}

		for set := shared; set != 0; set &= set - 1 {
			if gpu := set & -set; !t.delaysNone(q, profile, at, gpu) {
				shared &^= gpu
			}
		}
	}

	if free != 0 { // they are alike, unless the node has several kinds
		shared |= fleet.LowestGPUs(free, 1)
	}
	if shared == 0 {
		return false
	}

	yield(at, &r, shared)

	return true
}

// delaysNone reports whether a job on a part of a shared GPU takes nothing of what is reserved: CPUs and memory for as
// long as it lasts, and the GPU from when the others that share it have ended.
func (t *Timeline) delaysNone(q *Request, p *profile, at int32, gpu uint64) bool {
	takes := q.Shape.Takes
	if !p.fits(0, Size{0, takes.CPUs, takes.Memory}, q.Lasts) {
		return false
	}

	last := t.lastShare(at, gpu)

	return q.Lasts <= last || p.fits(last, Size{GPUs: bits.OnesCount64(gpu)}, q.Lasts-last)
}
