package timeline

import (
	"math/bits"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
)

// Request is what a job looks for.
type Request struct {
	Shape *Shape
	Job   id.Job
	Lasts time.Duration
	// Tightest takes the first rooms that fit, those with the fewest GPUs free first.
	// Without it the ends of jobs are compared; see FitNow.
	Tightest bool
}

// Room returns a room as the plan has left it.
func (t *Timeline) Room(at int32) fleet.Room {
	r := t.rooms[at]
	o := &t.open[at]
	r.Free, r.CPUs, r.Memory = o.GPUs, o.CPUs, o.Memory

	return r
}

// Free returns what a room has left in the plan.
func (t *Timeline) Free(at int32) *Free { return &t.open[at] }

// Reserved reports whether a room is reserved for a job from some time on.
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
	first := q.Tightest || need.Nodes > 1
	var found []int32

	best, least, compared := int32(-1), Never, 0

	for gpus := need.GPUs; gpus < len(p.free); gpus++ {
		list := p.free[gpus]
		for i := 0; i < len(list); i++ {
			at := list[i]
			if bits.OnesCount64(t.open[at].GPUs) != gpus { // the plan has listed it elsewhere
				list = slices.Delete(list, i, i+1)
				p.free[gpus] = list
				t.shifts++
				i--

				continue
			}

			if slices.Contains(found, at) { // listed twice: it was taken and vacated
				continue
			}
			if !t.fits(q, at) {
				continue
			}

			if first {
				found = append(found, at)
				if len(found) == need.Nodes {
					return found
				}

				continue
			}

			busy := t.busy(at)
			if delay := max(q.Lasts-busy, 0).Truncate(time.Minute); delay < least {
				best, least = at, delay
			}

			compared++
			if least == 0 || compared == maxCompared {
				return t.single(best)
			}
			if busy == 0 {
				break // the room is empty; mostly so are the others with as many GPUs free
			}
		}
	}

	if best < 0 {
		return nil
	}

	return t.single(best)
}

// maxCompared bounds how many rooms are compared in which a job could start.
const maxCompared = 16

// FitsOn returns the room of a node if it is in a pool and a job can start there now.
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

// fits reports whether a job can start in a room now without delaying a job for which it
// is reserved.
func (t *Timeline) fits(q *Request, at int32) bool {
	if t.closedTo(q.Job, at) {
		return false
	}

	r := t.Room(at)
	if _, ok := q.Shape.Match.Fits(&r); !ok {
		return false
	}

	return !t.Reserved(at) || t.profileOf(t.plan(at)).fits(0, q.Shape.Takes, q.Lasts)
}

// busy returns for how long jobs run in a room or are planned there.
func (t *Timeline) busy(at int32) time.Duration {
	p := t.plans[at]
	if p != nil && p.profile != nil {
		return p.profile[len(p.profile)-1].at
	}

	last := time.Duration(0)
	for i := range t.rooms[at].Holds {
		last = max(last, t.Remaining(&t.rooms[at].Holds[i]))
	}

	if p != nil {
		for _, s := range p.started {
			last = max(last, s.lasts)
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

// Prune drops rooms of a pool from lists in which they are no longer, as a search for so
// many free GPUs does that finds nothing. A policy that knows that a search would be in
// vain calls this instead, so that the lists are the same as if it had searched.
func (t *Timeline) Prune(p *Pool, gpus int) {
	if p.stale == 0 {
		return
	}

	for ; gpus < len(p.free); gpus++ {
		if p.stale&countBit(gpus) == 0 {
			continue
		}

		moved := func(at int32) bool { return bits.OnesCount64(t.open[at].GPUs) != gpus }
		p.free[gpus] = slices.DeleteFunc(p.free[gpus], moved)
		if gpus < fleet.MaxGPUs-1 {
			p.stale &^= countBit(gpus)
		}

		t.shifts++
	}
}

// countBit is the bit of a number of GPUs in Pool.stale; the two largest numbers share one.
func countBit(gpus int) uint64 { return 1 << min(gpus, fleet.MaxGPUs-1) }
