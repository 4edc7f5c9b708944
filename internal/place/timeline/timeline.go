// Package timeline answers one question about the nodes of the yard: which of them have a given
// amount of GPUs, CPUs and memory free, when, and for how long?
//
// It stands between the view of a round and the policy that plans on it. A policy calls Update with
// the nodes of the round, searches with FitNow and Earliest, and enters its plan with Start,
// Reserve and Vacate, so that its next search sees the nodes in their state under the plan. The
// package does not consider money, priorities or reasons: the policy decides which of the answers
// is best.
//
// There are two kinds of times. Within a round, times are durations from now. Times that are kept
// from round to round are clock times, as durations since 1970 (clockOf), with 0 for "free
// already"; durations from now would have to be recomputed each round.
//
// A yard changes little from one round to the next, so a Timeline is kept and updated. That makes
// rounds fast and changes no answer: a new Timeline that sees the same nodes gives the same
// answers.
package timeline

import (
	"cmp"
	"math/bits"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/queue"
)

// Snapshot is the state of the yard in a round.
type Snapshot struct {
	Now   time.Time
	Rooms []fleet.Room  // sorted by the nodes' names
	Past  *queue.Past   // how long earlier jobs ran; nil if unknown
	Guess time.Duration // assumed duration of a job of which nothing is known
}

// Timeline knows what each node has free, and when. Rooms are identified by their index in the
// snapshot.
//
// Pools are rebuilt when a node is added, removed or changed. A room in which a job starts or ends
// is updated by itself, and one in which a job is late is updated in each round.
type Timeline struct {
	version uint64 // incremented when the pools are rebuilt
	states  []state
	pools   []*Pool

	// The fields below are valid for one round.
	now       time.Duration // by the clock
	round     uint64
	rooms     []fleet.Room
	past      *queue.Past
	guess     time.Duration
	open      []Free      // what each room has free under this round's plan
	plans     []*roomPlan // this round's plan for each room; nil for none
	used      []int32     // rooms that have a plan
	vacated   map[id.Job]bool
	dedicated map[int32]id.Job // rooms that only this job may use
	shifts    int              // incremented when a room is listed under another number of free GPUs
	visits    int

	// The fields below are reused by searches, so that a round with many jobs does not allocate for
	// each.
	candidates []candidate
	singles    []int32
}

// Free is what a room has free under the plan of a round.
type Free struct {
	GPUs   uint64
	CPUs   job.CPUs
	Memory job.Bytes
}

// Size returns the amount that is free.
func (f *Free) Size() Size { return Size{bits.OnesCount64(f.GPUs), f.CPUs, f.Memory} }

// state is what is kept of one room from round to round.
type state struct {
	node     *fleet.Node
	mark     *byte
	sound    uint64
	free     uint64
	holds    int
	kind     int32
	pool     int32
	open     bool
	moving   bool          // a job there is late or its end is unknown, so the estimate moves as time passes
	moves    time.Duration // clock time from which on it is moving, if it is not yet
	releases []release     // times at which its GPUs become free; empty if not computed
	round    uint64        // the round in which releases were computed, if they move
	plain    bool          // releases follow from known alone: no GPU is shared and all ends are known
	known    []release     // GPUs that running jobs will free, and when
}

// roomPlan is this round's plan for a room.
type roomPlan struct {
	room     int32
	total    Size      // what the node has in all
	profile  profile   // what will be free there over time; nil until a search needs it
	started  []started // jobs started there while profile is nil
	changed  bool      // something is started, stopped or reserved there
	reserved bool      // reserved for a job from some later time on
}

// started is a job that this plan starts in a room.
type started struct {
	takes Size
	lasts time.Duration
}

// clockOf returns a time as a duration since 1970.
func clockOf(t time.Time) time.Duration { return t.Sub(time.Unix(0, 0)) }

// Update begins a round with the present state of the yard and discards the plan of the last round.
func (t *Timeline) Update(s Snapshot) {
	t.now, t.rooms, t.past, t.guess = clockOf(s.Now), s.Rooms, s.Past, s.Guess
	t.round++
	t.shifts++
	t.visits = 0
	t.vacated = map[id.Job]bool{}
	t.dedicated = map[int32]id.Job{}
	t.singles = t.singles[:0]

	for _, at := range t.used {
		t.plans[at] = nil
	}

	t.used = t.used[:0]

	if len(t.states) != len(t.rooms) || !t.refresh() {
		t.build()
		t.refresh()
	}
}

// Forget drops the snapshot, so that its memory is not kept between rounds.
func (t *Timeline) Forget() {
	t.rooms, t.past = nil, nil
	clear(t.candidates[:cap(t.candidates)])
}

// Version changes when the pools are rebuilt. Rooms and pools of another version must not be used.
func (t *Timeline) Version() uint64 { return t.version }

// Pools returns all pools; Pool.Index is the index in this list.
func (t *Timeline) Pools() []*Pool { return t.pools }

// PoolOf returns the pool of a room.
func (t *Timeline) PoolOf(room int32) *Pool { return t.pools[t.states[room].pool] }

// Visits returns how many rooms the searches for a later start have visited in this round.
func (t *Timeline) Visits() int { return t.visits }

// Find returns the room of a node.
func (t *Timeline) Find(n id.Node) (int32, bool) {
	at, found := slices.BinarySearchFunc(t.rooms, n, func(r fleet.Room, n id.Node) int {
		return cmp.Compare(r.Node.ID, n)
	})

	return int32(at), found
}

// refresh updates the rooms that have changed, and reports whether the pools are still valid.
func (t *Timeline) refresh() bool {
	for _, p := range t.pools {
		p.begin(&t.rooms[p.rooms[0]])
	}

	for i := range t.rooms {
		r, s := &t.rooms[i], &t.states[i]
		if s.node != r.Node || s.open != r.Open || s.sound != r.Sound || s.kind != r.Kind {
			return false
		}

		t.open[i] = Free{r.Free, r.CPUs, r.Memory}
		p := t.pools[s.pool]
		if r.Open {
			p.put(int32(i), bits.OnesCount64(r.Free))
		}

		late := !s.moving && s.moves <= t.now
		if s.mark != r.Mark || r.Mark == nil || s.free != r.Free || s.holds != len(r.Holds) || late {
			t.reread(int32(i))
		}

		if s.moving && s.open {
			p.moving = append(p.moving, int32(i))
		}
	}

	return true
}

// reread updates the state of a room that has changed or in which a job has become late.
func (t *Timeline) reread(at int32) {
	r, s := &t.rooms[at], &t.states[at]
	s.mark, s.free, s.holds = r.Mark, r.Free, len(r.Holds)
	s.moves, s.moving, s.plain, s.known = Never, false, true, s.known[:0]

	for i := range r.Holds {
		h := &r.Holds[i]
		s.plain = s.plain && h.Share == 0 && !h.Ends.IsZero()
		if h.Ends.IsZero() {
			s.moving = true
			continue
		}

		end := clockOf(h.Ends)
		s.moves = min(s.moves, end)
		if n := bits.OnesCount64(h.GPUs & r.Sound); n > 0 {
			s.known = append(s.known, release{end, n})
		}
	}

	s.moving = s.moving || s.moves <= t.now
	s.releases = s.releases[:0]
	if s.open {
		t.reschedule(at)
	}
}

// reschedule moves a room to its new place in the schedules of its pool.
func (t *Timeline) reschedule(at int32) {
	s := &t.states[at]
	p := t.pools[s.pool]
	p.churn++
	if p.churn > len(p.rooms)/8+8 {
		p.schedules = nil // after so many changes a new sort is faster
	}

	for gpus, c := range p.schedules {
		if c == nil {
			continue
		}

		c.remove(at)

		if when, spare, ok := t.freesAt(at, gpus); ok && !s.moving {
			c.insert(entry{when, spare, at})
		}
	}
}

// build rebuilds the pools.
func (t *Timeline) build() {
	type key struct {
		class fleet.Class
		kind  int32
	}

	t.version++
	t.states = make([]state, len(t.rooms))
	t.open = make([]Free, len(t.rooms))
	t.plans = make([]*roomPlan, len(t.rooms))
	t.pools, t.used = nil, nil

	index := map[key]int32{}

	for i := range t.rooms {
		r := &t.rooms[i]
		k := key{r.Node.Class, r.Kind}
		if r.Kind < 0 && len(r.Node.Inventory.GPUs) > 0 {
			k.kind = -2 - int32(i) // GPUs of several kinds: a pool of its own
		}

		at, ok := index[k]
		if !ok {
			at = int32(len(t.pools))
			index[k] = at
			t.pools = append(t.pools, newPool(int(at), r))
		}

		t.states[i] = state{node: r.Node, open: r.Open, sound: r.Sound, kind: r.Kind, pool: at, holds: -1}
		t.pools[at].rooms = append(t.pools[at].rooms, int32(i))
	}
}
