package baseline

import (
	"cmp"
	"math/bits"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/queue"
)

// heldBack is the first job in line that cannot start, and the nodes kept for it.
type heldBack struct {
	job   id.Job
	at    time.Time        // when it is expected to start; zero if unknown
	rooms map[int32]*spare // kept rooms; empty if the job fits on no open node
	ids   []id.Node
}

// spare is what a kept room has over when the held-back job has started on it.
type spare struct {
	gpus   int
	cpus   job.CPUs
	memory job.Bytes
}

// hold keeps the nodes on which the job can start soonest.
func (f *fifo) hold(it *queue.Item, st *shapeState) *heldBack {
	h := &heldBack{job: it.Job, rooms: map[int32]*spare{}}
	need := &st.match.Need
	type candidate struct {
		at    int32
		when  time.Time // zero if unknown
		holds int
	}
	var found []candidate
	for i := range f.trial.rooms {
		room := &f.trial.rooms[i]
		if !room.Open || !st.match.Eligible(room) {
			continue
		}
		when, _ := f.freeAt(room, st.match)
		found = append(found, candidate{int32(i), when, len(room.Holds)})
	}
	if len(found) < need.Nodes {
		return h
	}
	// Among nodes of unknown end the emptiest is kept: it only gets emptier, so the choice stays.
	slices.SortStableFunc(found, func(a, b candidate) int {
		if a.when.IsZero() != b.when.IsZero() {
			if a.when.IsZero() {
				return 1
			}
			return -1
		}
		return cmp.Or(a.when.Compare(b.when), cmp.Compare(a.holds, b.holds))
	})
	known := true
	for _, c := range found[:need.Nodes] {
		known = known && !c.when.IsZero()
		if c.when.After(h.at) {
			h.at = c.when
		}
	}
	if !known {
		h.at = time.Time{}
	}
	for _, c := range found[:need.Nodes] {
		room := f.trial.room(c.at)
		h.rooms[c.at] = f.spareAt(room, st.match, h.at)
		h.ids = append(h.ids, room.Node.ID)
	}
	return h
}

// freeAt returns when the room will fit the need, and zero if that depends on an unknown end.
func (f *fifo) freeAt(room *fleet.Room, m *fleet.Matcher) (time.Time, bool) {
	r := *room
	when := f.view.Now
	for i := 0; ; i++ {
		if _, ok := m.Fits(&r); ok {
			return when, true
		}
		if i == len(r.Holds) {
			return time.Time{}, false
		}
		h := &r.Holds[i]
		// A run that is past its expected end may end at any time or never: unknown.
		if h.Ends.IsZero() || h.Ends.Before(f.view.Now) {
			return time.Time{}, false
		}
		r.Free |= h.GPUs & r.Sound
		r.CPUs += h.CPUs
		r.Memory += h.Memory
		when = h.Ends
	}
}

// spareAt returns what the room has over at that time with the job on it.
// Where the time is unknown, or the GPUs are of several kinds, there is nothing to spare.
func (f *fifo) spareAt(room *fleet.Room, m *fleet.Matcher, at time.Time) *spare {
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

func (h *heldBack) reservation(it *queue.Item) *place.Reservation {
	return &place.Reservation{Job: it.Job, Nodes: h.ids, At: h.at}
}

// keeps reports whether the room is kept. Nothing is kept before a job is held back.
func (h *heldBack) keeps(at int32) bool {
	if h == nil {
		return false
	}
	_, ok := h.rooms[at]
	return ok
}

// mayLet reports whether a job of a shape with no room elsewhere might still
// go onto a kept node: then each such job must be looked at, because they last
// differently long.
func (h *heldBack) mayLet(st *shapeState) bool {
	return len(h.rooms) >= st.match.Need.Nodes && !h.at.IsZero()
}

// backfill finds kept rooms that the job may use without delaying the one they are kept for.
func (h *heldBack) backfill(f *fifo, it *queue.Item, st *shapeState) []int32 {
	if !h.mayLet(st) {
		return nil
	}
	need := &st.match.Need
	inTime := it.Lasts > 0 && !f.view.Now.Add(it.Lasts).After(h.at)
	var seats []int32
	for _, at := range h.sorted() {
		gpus, ok := st.match.Fits(f.trial.room(at))
		if !ok {
			continue
		}
		s := h.rooms[at]
		take := min(need.MaxGPUs, bits.OnesCount64(gpus))
		if !inTime && (s.gpus < take || s.cpus < need.CPUs || s.memory < need.Memory) {
			continue
		}
		if seats = append(seats, at); len(seats) == need.Nodes {
			return seats
		}
	}
	return nil
}

// sorted returns the kept rooms in a fixed order.
func (h *heldBack) sorted() []int32 {
	list := make([]int32, 0, len(h.rooms))
	for at := range h.rooms {
		list = append(list, at)
	}
	slices.Sort(list)
	return list
}

// booked takes what was placed on a kept room off what it has to spare.
func (h *heldBack) booked(at int32, gpus int, need *fleet.Need) {
	if !h.keeps(at) {
		return
	}
	s := h.rooms[at]
	s.gpus -= gpus
	s.cpus -= need.CPUs
	s.memory -= need.Memory
}
