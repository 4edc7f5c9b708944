package ordered

import (
	"math/bits"
	"slices"
	"sort"
	"strings"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/queue"
)

// reservation is the first job in the queue that cannot start, and the nodes kept for it.
type reservation struct {
	job   id.Job
	at    time.Time        // when it is expected to start; zero if unknown
	rooms map[int32]*spare // kept rooms
	order []int32          // the same, in a fixed order
	ids   []id.Node
}

// spare is what a kept room has over when the held-back job has started on it.
type spare struct {
	gpus   int
	cpus   job.CPUs
	memory job.Bytes
}

// candidate is a room that could be kept.
type candidate struct {
	at    int32
	when  time.Time // zero if unknown
	sure  bool
	holds int
}

// before reports whether the room is the better choice. Among nodes of unknown
// end the emptiest is kept: it only gets emptier, so the choice stays.
func (c *candidate) before(o *candidate) bool {
	if c.when.IsZero() != o.when.IsZero() {
		return o.when.IsZero()
	}
	if d := c.when.Compare(o.when); d != 0 {
		return d < 0
	}

	return c.holds < o.holds
}

// reserve keeps the nodes on which the job can start soonest. It returns nil if
// there are not enough open nodes that could run it: keeping some would help
// nobody, and a job behind it may need them more.
func (f *planner) reserve(it *queue.Item, st *shapeState) *reservation {
	f.bookStarts()
	need := &st.match.Need
	best := make([]candidate, 0, need.Nodes+1)

	for i := range f.trial.view {
		room := f.trial.room(int32(i))
		if !room.Open || !st.match.Eligible(room) {
			continue
		}

		var worst *candidate
		if len(best) == need.Nodes {
			worst = &best[len(best)-1]
		}

		c := candidate{at: int32(i), holds: len(room.Holds) + f.endless[int32(i)]}
		c.when, c.sure = f.freeAt(room, st.match, worst)
		if worst != nil && !c.before(worst) {
			continue
		}

		at := sort.Search(len(best), func(k int) bool { return c.before(&best[k]) })
		best = slices.Insert(best, at, c)
		best = best[:min(len(best), need.Nodes)]
	}

	if len(best) < need.Nodes {
		return nil
	}

	h := &reservation{job: it.Job, rooms: map[int32]*spare{}}

	sure := true
	for _, c := range best {
		sure = sure && c.sure

		if c.when.After(h.at) {
			h.at = c.when
		}
	}

	if !sure {
		h.at = time.Time{}
	}

	for _, c := range best {
		room := f.trial.room(c.at)
		h.rooms[c.at] = f.spareAt(room, st.match, h.at)
		h.order = append(h.order, c.at)
		h.ids = append(h.ids, room.Node.ID)
	}

	slices.Sort(h.order)

	return h
}

// bookStarts adds what this round has started to the holds of the trial's
// rooms: it will end too, and that may be where the held-back job goes.
func (f *planner) bookStarts() {
	if f.holds == nil {
		f.holds = make([]bool, len(f.trial.view))
	}

	for ; f.booked < len(f.plan.Starts); f.booked++ {
		s := &f.plan.Starts[f.booked]
		hold := fleet.Hold{Job: s.Item.Job, CPUs: s.Item.Shape.Need.CPUs, Memory: s.Item.Shape.Need.Memory}

		takes := place.RunTimeOn(s.Item, s.Allocations, f.node)
		if takes == 0 { // its end is unknown: it holds its nodes without a time
			if f.endless == nil {
				f.endless = map[int32]int{}
			}

			for _, at := range f.rooms[f.booked] {
				f.endless[at]++
			}

			continue
		}

		hold.Ends = f.view.Now.Add(takes)

		for k, seat := range s.Allocations {
			at := f.rooms[f.booked][k]
			room := f.trial.change(at)
			if !f.holds[at] { // the view's stay as they are
				room.Holds, f.holds[at] = slices.Grow(slices.Clone(room.Holds), 8), true
			}

			hold.GPUs = seat.GPUs
			i, _ := slices.BinarySearchFunc(room.Holds, hold, fleet.CompareHolds)
			room.Holds = slices.Insert(room.Holds, i, hold)
		}
	}
}

// node returns a node of the view.
func (f *planner) node(name id.Node) *fleet.Node {
	at, found := slices.BinarySearchFunc(f.view.Rooms, name, func(r fleet.Room, n id.Node) int {
		return strings.Compare(string(r.Node.ID), string(n))
	})
	if !found {
		return nil
	}

	return f.view.Rooms[at].Node
}

// freeAt returns when the room will fit the need, and whether that is sure. It
// is zero if it depends on an end that nobody knows. A run that is past its
// expected end is assumed to last as long again as it is late: the node stays
// the first choice for a while, and not for ever. The search is given up where
// the room cannot become better than the worst that will do.
func (f *planner) freeAt(room *fleet.Room, m *fleet.Matcher, worst *candidate) (when time.Time, sure bool) {
	need := &m.Need
	wanted := m.MatchingGPUs(room)
	free := room.Free & wanted
	cpus := room.CPUs
	memory := room.Memory

	when, sure = f.view.Now, true
	for i := 0; ; i++ {
		if bits.OnesCount64(free) >= need.GPUs && cpus >= need.CPUs && memory >= need.Memory {
			return when, sure
		}
		if i == len(room.Holds) || room.Holds[i].Ends.IsZero() {
			return time.Time{}, false
		}

		h := &room.Holds[i]
		ends := h.Ends
		if late := f.view.Now.Sub(h.Ends); late > 0 {
			ends, sure = f.view.Now.Add(late), false
		}

		if worst != nil && !worst.when.IsZero() && ends.After(worst.when) {
			return time.Time{}, false
		}

		free |= h.GPUs & wanted
		cpus += h.CPUs
		memory += h.Memory

		if ends.After(when) {
			when = ends
		}
	}
}

// spareAt returns what the room has over at that time with the job on it.
// Where the time is unknown, or the GPUs are of several kinds, there is nothing to spare.
func (f *planner) spareAt(room *fleet.Room, m *fleet.Matcher, at time.Time) *spare {
	if at.IsZero() || room.Kind < 0 && room.Sound != 0 {
		return &spare{}
	}

	s := &spare{gpus: bits.OnesCount64(room.Free), cpus: room.CPUs, memory: room.Memory}

	for i := range room.Holds {
		h := &room.Holds[i]
		if h.Ends.IsZero() || h.Ends.After(at) || h.Ends.Before(f.view.Now) {
			continue
		}

		s.gpus += bits.OnesCount64(h.GPUs & room.Sound)
		s.cpus += h.CPUs
		s.memory += h.Memory
	}

	s.gpus -= min(s.gpus, m.Need.MaxGPUs)
	s.cpus -= m.Need.CPUs
	s.memory -= m.Need.Memory

	return s
}

func (h *reservation) report() *place.Reservation {
	return &place.Reservation{Job: h.job, Nodes: h.ids, At: h.at}
}

// keeps reports whether the room is kept. Nothing is kept before a job is held back.
func (h *reservation) keeps(at int32) bool {
	if h == nil {
		return false
	}

	_, ok := h.rooms[at]

	return ok
}

// mayBackfill reports whether a job of a shape with no room elsewhere might still
// go onto a kept node: then each such job must be looked at, because they last
// differently long.
func (h *reservation) mayBackfill(st *shapeState) bool {
	return h != nil && len(h.rooms) >= st.match.Need.Nodes && !h.at.IsZero() && !st.full
}

// backfill finds kept rooms that the job may use without delaying the one they are kept for.
func (h *reservation) backfill(f *planner, it *queue.Item, st *shapeState) []int32 {
	if !h.mayBackfill(st) {
		return nil
	}

	need := &st.match.Need

	if st.tight && !h.anyInTime(f, it, st) {
		return nil
	}

	var seats []int32
	fit := 0

	for _, at := range h.order {
		gpus, ok := st.match.Fits(f.trial.room(at))
		if !ok {
			continue
		}

		fit++
		s := h.rooms[at]

		take := min(need.MaxGPUs, bits.OnesCount64(gpus))
		inTime := h.inTime(f, it, at)
		if !inTime && (s.gpus < take || s.cpus < need.CPUs || s.memory < need.Memory) {
			continue
		}

		seats = append(seats, at)
		if len(seats) == need.Nodes {
			return seats
		}
	}

	// What is free and to spare only gets less. So if this job, which would be in
	// time, found no room, no other of its shape will; and if it would not be, only
	// those that would be may.
	st.tight = st.tight || !h.anyInTime(f, it, st)
	st.full = fit < need.Nodes || !h.shortestInTime(f, it, st)

	return nil
}

// inTime reports whether a job that starts now in a kept room will have ended when the room is needed.
func (h *reservation) inTime(f *planner, it *queue.Item, at int32) bool {
	if h.at.IsZero() {
		return false
	}

	room := f.trial.room(at)

	return h.endsBefore(f, place.RunTimeIn(it, room.Node, f.shapes[it.Shape].match.MatchingGPUs(room)))
}

// anyInTime reports whether the job would be in time in any of the kept rooms that are of a kind for it.
func (h *reservation) anyInTime(f *planner, it *queue.Item, st *shapeState) bool {
	return slices.ContainsFunc(h.order, func(at int32) bool {
		return st.match.Eligible(f.trial.room(at)) && h.inTime(f, it, at)
	})
}

// shortestInTime reports whether any job of the shape might be in time in any of the kept rooms.
func (h *reservation) shortestInTime(f *planner, it *queue.Item, st *shapeState) bool {
	need := &st.match.Need

	return slices.ContainsFunc(h.order, func(at int32) bool {
		room := f.trial.room(at)
		gpu := place.FirstGPU(room.Node, st.match.MatchingGPUs(room))

		return h.endsBefore(f, it.Shape.Shortest(place.HardwareOf(gpu, need.GPUs*need.Nodes)))
	})
}

// endsBefore reports whether what starts now and takes so long has ended when the kept nodes are needed.
func (h *reservation) endsBefore(f *planner, takes time.Duration) bool {
	return takes > 0 && !h.at.IsZero() && !f.view.Now.Add(takes).After(h.at)
}

// take takes what was placed on a kept room off what it has to spare. A job
// that will have ended by then takes nothing.
func (h *reservation) take(f *planner, it *queue.Item, at int32, gpus int) {
	if !h.keeps(at) || h.inTime(f, it, at) {
		return
	}

	need := &it.Shape.Need
	s := h.rooms[at]
	s.gpus -= gpus
	s.cpus -= need.CPUs
	s.memory -= need.Memory
}
