package timeline

import (
	"math/bits"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
)

// Request is a job that looks for rooms.
type Request struct {
	Shape *Shape
	Job   id.Job
	Lasts time.Duration
	// Tightest takes the first rooms that fit, those with the fewest free GPUs first. Without it
	// the ends of the jobs are compared as well; see FitNow.
	Tightest bool
}

// Room returns a room in its state under the plan so far.
func (t *Timeline) Room(at int32) fleet.Room {
	r := t.rooms[at]
	o := &t.open[at]
	r.Free, r.CPUs, r.Memory, r.Parts = o.GPUs, o.CPUs, o.Memory, o.Parts

	return r
}

// Free returns what is still free in a room under the plan so far.
func (t *Timeline) Free(at int32) *Free { return &t.open[at] }

// Reserved reports whether a room is reserved for a job from some later time on.
func (t *Timeline) Reserved(at int32) bool {
	p := t.plans[at]
	return p != nil && p.reserved
}

// FitNow returns rooms of a pool on which a job can start at once and stay for as long as
// it lasts, or nil if there are not enough. The rooms with the fewest GPUs free come first.
//
// A job of one node gets, of the first rooms that fit, the one whose last end it delays
// least. Jobs that end together are then on the same node, and whole nodes become free for
// wide jobs.
func (t *Timeline) FitNow(q *Request, p *Pool) []int32 {
	need := &q.Shape.Match.Need
	if q.Tightest || need.Nodes > 1 {
		return t.FitNowAcross(q, p)
	}

	best, least, compared := int32(-1), Never, 0

	for gpus := need.GPUs; gpus < len(p.free); gpus++ {
		for i := 0; i < len(p.free[gpus]); i++ {
			at := p.free[gpus][i]
			if t.dropStale(p, gpus, i) {
				i--
				continue
			}

			if !t.fits(q, at) {
				continue
			}

			if delay := t.delay(q, at); delay < least {
				best, least = at, delay
			}

			compared++
			if least == 0 || compared == maxCompared {
				return t.single(best)
			}
			if t.busy(at) == 0 {
				break // the room is empty; the others with as many free GPUs mostly are too
			}
		}
	}

	if best < 0 {
		return nil
	}

	return t.single(best)
}

// FitsBeside reports whether a job of one node could start at once in another room of a pool than the given one.
func (t *Timeline) FitsBeside(q *Request, p *Pool, room int32) bool {
	for gpus := q.Shape.Match.Need.GPUs; gpus < len(p.free); gpus++ {
		for i := 0; i < len(p.free[gpus]); i++ {
			if t.dropStale(p, gpus, i) {
				i--
				continue
			}

			if at := p.free[gpus][i]; at != room && t.fits(q, at) {
				return true
			}
		}
	}

	return false
}

// FitNowAcross is FitNow for a job that may have rooms of several pools: it takes as many as
// it can of the first pool, then of the next, in each the rooms with the fewest GPUs free
// first. Of a single pool it takes rooms that are near each other, as far as it is known where they are.
func (t *Timeline) FitNowAcross(q *Request, pools ...*Pool) []int32 {
	need := &q.Shape.Match.Need
	var found []int32
	near, wanted := len(pools) == 1 && need.Nodes > 1, need.Nodes

	for _, p := range pools {
		for gpus := need.GPUs; gpus < len(p.free); gpus++ {
			for i := 0; i < len(p.free[gpus]); i++ {
				at := p.free[gpus][i]
				if t.dropStale(p, gpus, i) {
					i--
					continue
				}

				if slices.Contains(found, at) || !t.fits(q, at) { // it is listed twice if it was taken and vacated
					continue
				}

				found = append(found, at)
				if near && t.rooms[at].Node.Inventory.Topology != "" {
					near, wanted = false, max(maxNear, need.Nodes) // look for some more to choose from
				}

				if len(found) == wanted {
					return t.together(found, need.Nodes)
				}
			}
		}
	}

	if len(found) < need.Nodes {
		return nil
	}

	return t.together(found, need.Nodes)
}

// maxNear bounds of how many rooms those are chosen that are near each other.
const maxNear = 512

// together chooses n rooms that are near each other.
func (t *Timeline) together(rooms []int32, n int) []int32 {
	if len(rooms) == 1 {
		return rooms
	}

	where, known := make([]string, len(rooms)), false
	for i, at := range rooms {
		where[i] = t.rooms[at].Node.Inventory.Topology
		known = known || where[i] != ""
	}

	if !known {
		return rooms[:n]
	}

	chosen := make([]int32, 0, n)
	for _, i := range fleet.Together(where, n) {
		chosen = append(chosen, rooms[i])
	}

	return chosen
}

// dropStale removes the i-th room of a list if the plan has changed its free GPUs since it was
// listed, and reports whether it did.
func (t *Timeline) dropStale(p *Pool, gpus, i int) bool {
	if bits.OnesCount64(t.open[p.free[gpus][i]].GPUs) == gpus {
		return false
	}

	p.own(gpus)
	p.free[gpus] = slices.Delete(p.free[gpus], i, i+1)
	t.shifts++

	return true
}

// maxCompared bounds how many rooms FitNow compares for one job.
const maxCompared = 16

// FitsOn returns the room of a node if the node belongs to the pool and the job can start there
// now.
func (t *Timeline) FitsOn(q *Request, p *Pool, n id.Node) (int32, bool) {
	if n == "" {
		return 0, false
	}

	at, found := t.Find(n)
	if !found || t.PoolOf(at) != p || !t.fits(q, at) {
		return 0, false
	}

	return at, true
}

// fits reports whether a job can start in a room now without delaying a job for which the room is
// reserved.
func (t *Timeline) fits(q *Request, at int32) bool {
	if t.closedTo(q.Job, at) {
		return false
	}

	need := &q.Shape.Match.Need
	if o := &t.open[at]; o.CPUs < need.CPUs || o.Memory < need.Memory {
		return false // most rooms that do not fit, and sooner than by a copy of the room
	}

	r := t.Room(at)
	if _, ok := q.Shape.Match.Fits(&r); !ok {
		return false
	}

	return !t.Reserved(at) || t.profileOf(t.plan(at)).fits(0, q.Shape.Takes, q.Lasts)
}

// delay returns by how much a job that starts now would delay the last end of a room, in whole minutes.
func (t *Timeline) delay(q *Request, at int32) time.Duration {
	return max(q.Lasts-t.busy(at), 0).Truncate(time.Minute)
}

// busy returns the time from now until the last running or planned job of a room ends.
func (t *Timeline) busy(at int32) time.Duration {
	p := t.plans[at]
	if p != nil && p.profile != nil {
		return p.profile[len(p.profile)-1].at
	}

	last := time.Duration(0)
	for _, end := range t.states[at].ends {
		last = max(last, end-t.now)
	}

	if p != nil {
		for _, s := range p.started {
			last = max(last, until(s.from, s.lasts))
		}
	}

	return last
}

// single returns a list of one room. It is valid until the next Update.
func (t *Timeline) single(at int32) []int32 {
	t.singles = append(t.singles, at)
	n := len(t.singles)
	return t.singles[n-1 : n : n]
}
