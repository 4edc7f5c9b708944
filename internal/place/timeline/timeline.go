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
	"math/bits"
	"sort"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/queue"
)

// Snapshot is the state of the yard in a round.
type Snapshot struct {
	Now     time.Time
	Rooms   []fleet.Room   // sorted by the nodes' names
	Changes *fleet.Changes // which of them have changed; nil if that is not known
	Past    *queue.Past    // how long earlier jobs ran; nil if unknown
	Guess   time.Duration  // assumed duration of a job of which nothing is known
}

// Timeline knows what each node has free, and when. Rooms are identified by their index in the
// snapshot.
//
// Pools are rebuilt when a node is added, removed or changed. A room in which a job starts or ends
// is updated by itself, and so is one in which a job is late or its end is unknown when the estimate
// of that changes.
type Timeline struct {
	version    uint64 // incremented when the pools are rebuilt
	states     []state
	pools      []*Pool
	studied    *queue.Past    // from which ends were estimated
	lessons    uint64         // its version then
	expiries   expiries       // when the estimates of rooms no longer hold; nil if all rooms are compared in each round
	distrusted bool           // estimates of some rooms no longer hold: all are compared
	changes    *fleet.Changes // of the rooms
	seen       fleet.Position // in them

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
	soonest    []time.Duration
	singles    []int32
	outdated   []release // of the room that is being updated
}

// Free is what a room has free under the plan of a round.
type Free struct {
	GPUs   uint64
	CPUs   job.CPUs
	Memory job.Bytes
	Parts  []fleet.Part // GPUs that jobs share; never changed in place
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
	unknown  bool            // the end of a job there is estimated from the past
	ends     []time.Duration // clock times at which its holds are expected to end
	valid    time.Duration   // clock time until which these estimates hold
	releases []release       // times at which its GPUs become free; empty if not computed
}

// roomPlan is this round's plan for a room.
type roomPlan struct {
	room     int32
	total    Size      // what the node has in all
	profile  profile   // what will be free there over time; nil until a search needs it
	started  []started // jobs started there while profile is nil
	shared   []sharing // GPUs of which the plan gives parts away
	changed  bool      // something is started, stopped or reserved there
	reserved bool      // reserved for a job from some later time on
}

// started is a job that this plan starts in a room.
type started struct {
	takes Size
	from  time.Duration // when it begins to keep that from others
	lasts time.Duration
}

// sharing is a GPU of which the plan gives parts away, and when the last of those jobs ends.
type sharing struct {
	gpu  uint64
	last time.Duration
}

// clockOf returns a time as a duration since 1970.
func clockOf(t time.Time) time.Duration { return t.Sub(time.Unix(0, 0)) }

// Update begins a round with the present state of the yard and discards the plan of the last round.
func (t *Timeline) Update(s Snapshot) {
	before := t.now
	t.now, t.rooms, t.past, t.guess = clockOf(s.Now), s.Rooms, s.Past, s.Guess
	t.round++
	t.shifts++
	t.visits = 0
	t.vacated = map[id.Job]bool{}
	t.dedicated = map[int32]id.Job{}
	t.singles = t.singles[:0]

	t.distrust(t.now < before)

	if !t.catchUp(s.Changes) {
		t.compare(s.Changes)
	}

	t.changes, t.seen = s.Changes, s.Changes.Position()
}

// compare updates the rooms that have changed, and builds the pools anew if nodes have.
func (t *Timeline) compare(c *fleet.Changes) {
	if len(t.states) != len(t.rooms) || !t.refresh() {
		t.build()
		t.refresh()
	}

	t.distrusted = false
	t.expiries = t.expiries[:0]

	if c == nil { // all rooms are compared in the next round, too
		return
	}

	for i := range t.states {
		if s := &t.states[i]; s.valid < Never {
			t.expiries = append(t.expiries, expiry{s.valid, int32(i)})
		}
	}

	t.expiries.order()
}

// catchUp updates the rooms of which it is known that they have changed, and discards the plan of the last round. It
// reports whether that is enough.
func (t *Timeline) catchUp(c *fleet.Changes) bool {
	changed, ok := c.Since(t.seen, t.rooms)
	if !ok || c != t.changes || t.distrusted || len(t.states) != len(t.rooms) || len(t.expiries) > 4*len(t.rooms) {
		return false
	}

	for _, at := range changed {
		if !t.states[at].isOf(&t.rooms[at]) {
			return false
		}
	}

	for _, p := range t.pools {
		p.begin(&t.rooms[p.rooms[0]])
	}

	for _, at := range t.used {
		t.restore(at)
	}

	t.used = t.used[:0]

	for _, at := range changed {
		r, s := &t.rooms[at], &t.states[at]
		if s.mark == r.Mark { // it is listed several times
			continue
		}

		if s.open {
			t.pools[s.pool].move(at, bits.OnesCount64(s.free), bits.OnesCount64(r.Free))
			t.pools[s.pool].share(at, len(r.Parts) > 0)
		}

		t.restore(at)
		t.reread(at)
	}

	for len(t.expiries) > 0 && t.expiries[0].at < t.now {
		if at := t.expiries.pop().room; t.states[at].valid < t.now {
			t.reread(at)
		}
	}

	return true
}

// restore discards what the plan of the last round has changed in a room.
func (t *Timeline) restore(at int32) {
	r := &t.rooms[at]
	t.open[at] = Free{r.Free, r.CPUs, r.Memory, r.Parts}
	t.plans[at] = nil
}

// isOf reports whether it is the state of a room, apart from what runs there.
func (s *state) isOf(r *fleet.Room) bool {
	return s.node == r.Node && s.open == r.Open && s.sound == r.Sound && s.kind == r.Kind
}

// distrust has the ends of jobs estimated anew that were estimated from another past, or of all jobs if the clock was
// set back.
func (t *Timeline) distrust(all bool) {
	learned := t.past != t.studied || t.past.Version() != t.lessons
	t.studied, t.lessons = t.past, t.past.Version()

	if !all && !learned {
		return
	}

	t.distrusted = true
	for i := range t.states {
		if all || t.states[i].unknown {
			t.states[i].valid = 0
		}
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
	at := sort.Search(len(t.rooms), func(i int) bool { return t.rooms[i].Node.ID >= n })

	return int32(at), at < len(t.rooms) && t.rooms[at].Node.ID == n
}

// refresh compares all rooms with those of the last round, updates those that have changed and discards the plan. It
// reports whether the pools are still valid.
func (t *Timeline) refresh() bool {
	for _, p := range t.pools {
		p.empty()
	}

	t.used = t.used[:0]

	for i := range t.rooms {
		r, s := &t.rooms[i], &t.states[i]
		if !s.isOf(r) {
			return false
		}

		t.restore(int32(i))

		if r.Open {
			t.pools[s.pool].list(int32(i), bits.OnesCount64(r.Free))
			t.pools[s.pool].share(int32(i), len(r.Parts) > 0)
		}

		if s.mark != r.Mark || r.Mark == nil || s.free != r.Free || s.holds != len(r.Holds) || s.valid < t.now {
			t.reread(int32(i))
		}
	}

	for _, p := range t.pools {
		p.begin(&t.rooms[p.rooms[0]])
	}

	return true
}

// reread updates the state of a room that has changed or whose estimates no longer hold.
func (t *Timeline) reread(at int32) {
	r, s := &t.rooms[at], &t.states[at]
	s.mark, s.free, s.holds = r.Mark, r.Free, len(r.Holds)
	s.ends, s.valid, s.unknown = s.ends[:0], Never, false

	for i := range r.Holds {
		end, valid := t.endOf(&r.Holds[i])
		s.ends = append(s.ends, end)
		s.valid = min(s.valid, valid)
		s.unknown = s.unknown || r.Holds[i].Ends.IsZero()
	}

	t.expiries.push(expiry{s.valid, at})
	t.outdated = append(t.outdated[:0], s.releases...)
	s.releases = s.releases[:0]
	if s.open {
		t.reschedule(at)
	}
}

// reschedule moves a room to its new place in the schedules of its pool.
func (t *Timeline) reschedule(at int32) {
	p := t.PoolOf(at)
	p.churn++
	if p.churn > len(p.rooms)/8+8 {
		p.schedules = nil // after so many changes a new sort is faster
	}

	for gpus, c := range p.schedules {
		if c == nil {
			continue
		}

		if when, spare, ok := freesAt(t.outdated, gpus); ok {
			c.remove(entry{when, spare, at})
		}

		if when, spare, ok := freesAt(t.releasesOf(at), gpus); ok {
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
