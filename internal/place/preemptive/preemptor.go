package preemptive

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"sort"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/place"
	"trainyard/internal/place/allocate"
	"trainyard/internal/place/lineup"
	"trainyard/internal/queue"
)

// task is a job that runs or waits, while an order over both is gone through.
type task struct {
	it    *queue.Item
	run   *place.Running // nil if it waits
	rank  lineup.Entry
	rooms []int32 // of its seats, -1 for one that is gone
	state taskState
	by    id.Job // for whom it was stopped
	seats []place.Allocation
}

// gpus counts the GPUs of its new seats.
func (t *task) gpus() int {
	n := 0
	for _, s := range t.seats {
		n += bits.OnesCount64(s.GPUs)
	}

	return n
}

// taskState is what has become of a task.
type taskState uint8

const (
	undecided taskState = iota
	stays               // where it is
	stopped             // its seats are free for others; it may get new ones
	placed              // has new seats
)

// preemptor goes through all jobs in an order and lets run what fits, whoever
// runs now. A job that runs keeps its seats if its turn comes before somebody
// else needed them. Who needs seats takes free ones first, then those of the jobs
// that come last. Jobs are numbered: first those that run, then those that are queued.
type preemptor struct {
	view          *place.View
	tasks         []task        // those that run and may be stopped, then the waiting ones that were looked at
	running       int           // of them that run
	items         []*queue.Item // that wait
	idle          []fleet.Room  // with what is free, or was held by who is stopped
	open          []fleet.Room  // and with what is held by who may still be stopped
	holders       [][]int32     // tasks that hold something of a room and may be stopped, the last in order first
	groups        []int32       // rank of each group of rooms
	shapes        map[*queue.Shape]*search
	freeable      int // GPUs of open
	smallest      int // GPUs that a waiting job needs at least
	evicted       int // stopped tasks whose turn has not come
	starts        []int32
	startedQueued int    // of them that waited
	unplaced      int    // stopped tasks that found no other place
	why           string // why a job goes before another
}

// search is how far the search for one shape has come.
type search struct {
	match  *fleet.Matcher
	closed bool // it fits nowhere any more
}

// newPreemptor collects the running jobs that may be stopped and those that are queued,
// each by submission.
func newPreemptor(v *place.View, why string) *preemptor {
	p := &preemptor{
		view: v, idle: slices.Clone(v.Rooms), open: slices.Clone(v.Rooms), holders: make([][]int32, len(v.Rooms)),
		groups: fleet.RankGroups(v.Rooms),
		shapes: make(map[*queue.Shape]*search, v.Queue.Shapes()), why: why, smallest: 1 << 30, items: v.Queue.Items(),
	}

	p.tasks = make([]task, 0, len(v.Running)+8)

	for _, r := range v.Running {
		if !allocate.Movable(r) {
			continue
		}

		at := int32(len(p.tasks))
		p.tasks = append(p.tasks, task{it: r.Item, run: r, rooms: p.find(r.Allocations)})
		p.hold(at, p.open, 1)

		for _, room := range p.tasks[at].rooms {
			if room >= 0 {
				p.holders[room] = append(p.holders[room], at)
			}
		}
	}

	p.running = len(p.tasks)
	for _, it := range p.items {
		n := &it.Shape.Need
		p.smallest = min(p.smallest, n.GPUs*n.Nodes)
	}

	for i := range p.open {
		p.freeable += bits.OnesCount64(p.open[i].Free)
	}

	return p
}

// count is how many jobs there are.
func (p *preemptor) count() int { return p.running + len(p.items) }

// job returns the job with a number, and its run if it runs.
func (p *preemptor) job(n int32) (*queue.Item, *place.Running) {
	if int(n) < p.running {
		return p.tasks[n].it, p.tasks[n].run
	}

	return p.items[int(n)-p.running], nil
}

// find returns the places of the seats' rooms.
func (p *preemptor) find(list []place.Allocation) []int32 {
	rooms := make([]int32, len(list))
	for i, s := range list {
		at := sort.Search(len(p.idle), func(k int) bool { return p.idle[k].Node.ID >= s.Node })
		rooms[i] = int32(at)
		if at == len(p.idle) || p.idle[at].Node.ID != s.Node {
			rooms[i] = -1
		}
	}

	return rooms
}

// hold gives what a running task holds to the rooms (1), or takes it from them
// (-1). It returns how many GPUs that are.
func (p *preemptor) hold(at int32, rooms []fleet.Room, sign int) int {
	gpus := 0
	t := &p.tasks[at]
	need := &t.it.Shape.Need
	for i, s := range t.run.Allocations {
		if t.rooms[i] < 0 {
			continue
		}

		r := &rooms[t.rooms[i]]

		if sign > 0 {
			r.Free |= s.GPUs & r.Sound
			r.CPUs += need.CPUs
			r.Memory += need.Memory
		} else {
			r.Free &^= s.GPUs
			r.CPUs -= need.CPUs
			r.Memory -= need.Memory
		}

		gpus += bits.OnesCount64(s.GPUs & r.Sound)
	}

	return gpus
}

// sortHolders sorts the holders of each room, those to be stopped first in front.
func (p *preemptor) sortHolders() {
	for _, list := range p.holders {
		slices.SortFunc(list, func(a, b int32) int {
			return lineup.TrueFirst(p.tasks[b].rank.Before(&p.tasks[a].rank), p.tasks[a].rank.Before(&p.tasks[b].rank))
		})
	}
}

// run goes through the jobs in the order in which next gives their numbers; -1
// ends it. next is told what became of the one before, nil if it was passed over.
func (p *preemptor) run(next func(last *task) int32) {
	var last *task
	for n := next(nil); n >= 0; n = next(last) {
		last = p.consider(n)

		if p.evicted == 0 && p.freeable < p.smallest {
			return
		}
	}
}

// consider decides about one job.
func (p *preemptor) consider(n int32) *task {
	if int(n) >= p.running { // it waits
		it := p.items[int(n)-p.running]
		if !p.mayFit(it.Shape) {
			return nil
		}

		p.tasks = append(p.tasks, task{it: it})
		p.settle(int32(len(p.tasks)-1), p.search(it.Shape))

		return &p.tasks[len(p.tasks)-1]
	}

	t := &p.tasks[n]
	if t.state == undecided {
		t.state = stays
		p.freeable -= p.hold(n, p.open, -1)
		return t
	}

	p.evicted--
	if st := p.search(t.it.Shape); !st.closed {
		p.settle(n, st)
	}

	if t.state == stopped {
		p.unplaced++
	}

	return t
}

// search returns how far the search for a shape has come.
func (p *preemptor) search(s *queue.Shape) *search {
	st := p.shapes[s]
	if st == nil {
		st = &search{match: fleet.NewMatcher(s.Need)}
		p.shapes[s] = st
	}

	return st
}

// mayFit reports whether a shape may still fit somewhere.
func (p *preemptor) mayFit(s *queue.Shape) bool {
	st := p.shapes[s]
	return st == nil || !st.closed
}

// settle finds seats for a task that has none.
func (p *preemptor) settle(at int32, st *search) {
	t := &p.tasks[at]
	rooms := p.choose(t, st)
	if rooms == nil {
		st.closed = true // what can be had only gets less
		return
	}

	need := &st.match.Need

	t.seats = make([]place.Allocation, 0, len(rooms))
	for _, room := range rooms {
		fits := p.clear(room, st, t.it.Job)
		take := min(need.MaxGPUs, bits.OnesCount64(fits)) // a range gets what there is
		own := fleet.LowestGPUs(p.own(t, room)&fits, take)
		gpus := own | fleet.LowestGPUs(fits&^own, take-bits.OnesCount64(own))
		for _, r := range []*fleet.Room{&p.idle[room], &p.open[room]} {
			r.Free &^= gpus
			r.CPUs -= need.CPUs
			r.Memory -= need.Memory
		}

		p.freeable -= bits.OnesCount64(gpus)
		t.seats = append(t.seats, place.Allocation{Node: p.idle[room].Node.ID, GPUs: gpus})
	}

	t.state = placed

	p.starts = append(p.starts, at)
	if t.run == nil {
		p.startedQueued++
	}
}

// own returns what a task holds of a room.
func (p *preemptor) own(t *task, room int32) uint64 {
	for i, at := range t.rooms {
		if at == room {
			return t.run.Allocations[i].GPUs
		}
	}

	return 0
}

// clear stops who is last in order until the shape fits in the room, and returns the GPUs it may have.
func (p *preemptor) clear(room int32, st *search, who id.Job) uint64 {
	for _, at := range p.holders[room] {
		if gpus, ok := st.match.Fits(&p.idle[room]); ok {
			return gpus
		}

		if t := &p.tasks[at]; t.state == undecided {
			t.state, t.by = stopped, who
			p.hold(at, p.idle, 1)
			p.evicted++
		}
	}

	gpus, _ := st.match.Fits(&p.idle[room])

	return gpus
}

// candidateRoom is a room that a task could have.
type candidateRoom struct {
	room  int32
	stops bool         // somebody must be stopped for it
	first lineup.Entry // who of them goes before the others
	lost  int          // GPUs that they hold in all
	here  bool         // it is or was there before
	tight int          // GPUs that are free there
	group int32        // rank
}

func compareRooms(a, b candidateRoom) int {
	if d := lineup.TrueFirst(b.stops, a.stops); d != 0 {
		return d
	}
	if a.stops && a.first != b.first {
		return lineup.TrueFirst(b.first.Before(&a.first), a.first.Before(&b.first))
	}

	return cmp.Or(cmp.Compare(a.lost, b.lost), lineup.TrueFirst(a.here, b.here), cmp.Compare(a.group, b.group),
		cmp.Compare(a.tight, b.tight), cmp.Compare(a.room, b.room))
}

// choose returns the rooms for a task, nil if there are not enough.
func (p *preemptor) choose(t *task, st *search) []int32 {
	nodes := st.match.Need.Nodes
	best := make([]candidateRoom, 0, nodes+1)

	for i := range p.open {
		if _, ok := st.match.Fits(&p.open[i]); !ok {
			continue
		}

		o := p.rate(t, st, int32(i))
		if len(best) == nodes && compareRooms(o, best[nodes-1]) >= 0 {
			continue
		}

		at, _ := slices.BinarySearchFunc(best, o, compareRooms)
		best = slices.Insert(best, at, o)
		best = best[:min(len(best), nodes)]
	}

	if len(best) < nodes {
		return nil
	}

	rooms := make([]int32, nodes)
	for i := range best {
		rooms[i] = best[i].room
	}

	return rooms
}

// rate says what it takes to have a room.
func (p *preemptor) rate(t *task, st *search, room int32) candidateRoom {
	r := p.idle[room]
	o := candidateRoom{room: room, group: p.groups[r.Group], here: r.Node.ID == t.it.Prefer ||
		slices.Contains(t.rooms, room)}

	for _, at := range p.holders[room] {
		if _, ok := st.match.Fits(&r); ok {
			break
		}

		h := &p.tasks[at]
		if h.state != undecided {
			continue
		}

		need := &h.it.Shape.Need
		r.Free |= p.own(h, room) & r.Sound
		r.CPUs += need.CPUs
		r.Memory += need.Memory
		o.stops, o.first = true, h.rank
		o.lost += h.run.GPUs
	}

	o.tight = bits.OnesCount64(r.Free)

	return o
}

// plan is what has been found.
func (p *preemptor) plan() place.Plan {
	var plan place.Plan

	for i := range p.tasks {
		t := &p.tasks[i]
		if t.run == nil || t.state != stopped && t.state != placed || slices.Equal(t.seats, t.run.Allocations) {
			continue
		}

		reason := fmt.Sprintf("preempted for %s, which %s", t.by, p.why)
		if t.state == placed {
			reason = fmt.Sprintf("moved to make room for %s, which %s", t.by, p.why)
		}

		plan.Stops = append(plan.Stops, place.Stop{Running: t.run, Reason: reason})
	}

	for _, at := range p.starts {
		t := &p.tasks[at]
		if t.run != nil && slices.Equal(t.seats, t.run.Allocations) {
			continue
		}

		reason := lineup.NodeNames(t.seats) + ": next in the order and fits"
		if t.run != nil {
			reason = lineup.NodeNames(t.seats) + ": moved to make room for " + string(t.by)
		}

		plan.Starts = append(plan.Starts, place.Start{Item: t.it, Allocations: t.seats, Reason: reason})
	}

	return plan
}

// waiting reports whether a job is left without seats.
func (p *preemptor) waiting() bool { return p.unplaced > 0 || p.startedQueued < len(p.items) }
