package rules

import (
	"math/bits"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
)

// room returns a room as the plan has left it.
func (e *engine) room(at int32) fleet.Room {
	r := e.view.Rooms[at]
	o := &e.floor.open[at]
	r.Free, r.CPUs, r.Memory = o.gpus, o.cpus, o.memory
	return r
}

// fitNow returns rooms of a stock on which the job can start at once and stay for as
// long as it lasts, the tightest first, or nil if there are not enough. Of those for
// which one room will do, the one is taken that is least longer busy with it: what
// ends together is together, and whole rooms come free.
func (e *engine) fitNow(w *wait, s *shape, st *stock, lasts time.Duration) []int32 {
	need := &s.match.Need
	var found []int32
	if at, ok := e.before(w, s, st, lasts); ok {
		return e.only(at)
	}
	best, least, seen := int32(-1), never, 0
	for gpus := need.GPUs; gpus < len(st.free); gpus++ {
		list := st.free[gpus]
		for i := 0; i < len(list); i++ {
			at := list[i]
			if bits.OnesCount64(e.floor.open[at].gpus) != gpus { // it was put elsewhere
				list = slices.Delete(list, i, i+1)
				st.free[gpus] = list
				e.shifts++
				i--
				continue
			}
			if slices.Contains(found, at) { // it was put back
				continue
			}
			if !e.canHave(w, s, at, lasts) {
				continue
			}
			if need.Nodes > 1 || st.rent > 0 { // of a hired room the whole rent counts: the tightest is the cheapest
				if found = append(found, at); len(found) == need.Nodes {
					return found
				}
				continue
			}
			busy := e.busy(at)
			if push := max(lasts-busy, 0).Truncate(time.Minute); push < least {
				best, least = at, push
			}
			if seen++; least == 0 || seen == maxFits {
				return e.only(best)
			}
			if busy == 0 {
				break // and so are those that have as much free, mostly
			}
		}
	}
	if best < 0 {
		return nil
	}
	return e.only(best)
}

// maxFits bounds how many rooms are compared in which a job could start.
const maxFits = 16

// tidy drops rooms of a stock from where they no longer stand, as looking for so many
// free GPUs in vain does.
func (e *engine) tidy(st *stock, gpus int) {
	if st.stood != 0 {
		e.sweep(st, gpus)
	}
}

func (e *engine) sweep(st *stock, gpus int) {
	for ; gpus < len(st.free); gpus++ {
		if st.stood&numbered(gpus) == 0 {
			continue
		}
		st.free[gpus] = slices.DeleteFunc(st.free[gpus], func(at int32) bool { return bits.OnesCount64(e.floor.open[at].gpus) != gpus })
		if gpus < fleet.MaxGPUs-1 {
			st.stood &^= numbered(gpus)
		}
		e.shifts++
	}
}

// numbered is the set of one number of GPUs; the two largest are one.
func numbered(gpus int) uint64 { return 1 << min(gpus, fleet.MaxGPUs-1) }

// busy returns for how long something runs in a room or is planned there.
func (e *engine) busy(at int32) time.Duration {
	s := e.floor.sheets[at]
	if s != nil && s.steps != nil {
		return s.steps[len(s.steps)-1].at
	}
	last := time.Duration(0)
	for i := range e.view.Rooms[at].Holds {
		last = max(last, e.left(&e.view.Rooms[at].Holds[i]))
	}
	if s != nil {
		for _, b := range s.begun {
			last = max(last, b.runs)
		}
	}
	return last
}

// before returns the room that was hired for a job of one node, or where it ran before
// if it can go on there: its checkpoints are there.
func (e *engine) before(w *wait, s *shape, st *stock, lasts time.Duration) (int32, bool) {
	if s.match.Need.Nodes > 1 {
		return 0, false
	}
	for _, l := range w.hired {
		if at, ok := e.suits(w, s, st, l.Node, lasts); ok {
			return at, true
		}
	}
	return e.suits(w, s, st, w.it.Prefer, lasts)
}

// suits returns the room of a node if it is of the stock and the job can start there.
func (e *engine) suits(w *wait, s *shape, st *stock, n id.Node, lasts time.Duration) (int32, bool) {
	if n == "" {
		return 0, false
	}
	at, found := e.find(n)
	if !found || e.stockOf(at) != st || !e.canHave(w, s, at, lasts) {
		return 0, false
	}
	return at, true
}

// canHave reports whether a job can start in a room now without delaying anyone for
// whom it is kept.
func (e *engine) canHave(w *wait, s *shape, at int32, lasts time.Duration) bool {
	if e.taken(w, at) {
		return false
	}
	r := e.room(at)
	if _, ok := s.match.Fits(&r); !ok {
		return false
	}
	return !e.booked(at) || e.profile(at).fits(0, units(&s.match.Need), lasts)
}

// begun is what this plan starts in a room.
type begun struct {
	takes size
	runs  time.Duration
}

// changed enters a room by what it has free now; it stood under another number.
func (e *engine) changed(at int32, stood uint64) {
	st := e.stockOf(at)
	st.put(at, bits.OnesCount64(e.floor.open[at].gpus))
	st.stood |= numbered(bits.OnesCount64(stood))
	e.shifts++
	e.touch(at)
}

// touch remembers that this plan changes something in a room.
func (e *engine) touch(at int32) {
	if s := e.sheet(at); !s.planned {
		s.planned = true
		st := e.stockOf(at)
		st.planned = append(st.planned, s)
	}
}

// profile returns what will be free in a room.
func (e *engine) profile(at int32) *profile { return e.steps(e.sheet(at)) }

// steps is the same by its sheet.
func (e *engine) steps(s *sheet) *profile {
	if s.steps != nil {
		return &s.steps
	}
	at := s.room
	r, o := &e.view.Rooms[at], &e.floor.open[at]
	p := make(profile, 1, len(r.Holds)+8)
	p[0].free = size{bits.OnesCount64(o.gpus), o.cpus, o.memory}
	for i := range r.Holds {
		if n := e.returns(r, i); n != (size{}) {
			p.give(e.left(&r.Holds[i]), n)
		}
	}
	for _, b := range s.begun {
		p.give(b.runs, b.takes)
	}
	s.steps = p
	return &s.steps
}

// returns is what a hold of a room gives back when it ends. One that this plan stops has
// given it back.
func (e *engine) returns(r *fleet.Room, i int) size {
	if len(e.stops) > 0 && e.stops[r.Holds[i].Job] {
		return size{}
	}
	return e.gives(r, i)
}

// gives is what a hold gives back whatever the plan is. The last of those that share a
// GPU gives back all of it.
func (e *engine) gives(r *fleet.Room, i int) size {
	h := &r.Holds[i]
	n := size{bits.OnesCount64(h.GPUs & r.Sound), h.CPUs, h.Memory}
	if h.Share == 0 {
		return n
	}
	for k := range r.Holds {
		o := &r.Holds[k]
		if k != i && o.GPUs&h.GPUs != 0 && (e.left(o) > e.left(h) || e.left(o) == e.left(h) && k > i) {
			n.gpus = 0
		}
	}
	return n
}

// left returns how long a hold is expected to last from now on. One that is past its
// expected end is taken to last as long again as it is late, and one of which nothing
// is known as long again as it has lasted.
func (e *engine) left(h *fleet.Hold) time.Duration {
	if h.Ends.IsZero() {
		if h.Since.IsZero() {
			return e.cfg.Guess
		}
		age := max(e.now-clockOf(h.Since), 0)
		if left := e.view.Past.Left(h.Owner, bits.OnesCount64(h.GPUs), age); left > 0 {
			return left
		}
		return max(age, leastLeft)
	}
	return lasting(clockOf(h.Ends) - e.now)
}

// lasting is the same for what was said to last so long.
func lasting(d time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return max(-d, leastLeft)
}

// leastLeft is how long everything lasts at least that should have ended.
const leastLeft = time.Minute
