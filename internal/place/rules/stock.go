package rules

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

// stock is rooms of one class with one kind of GPU.
type stock struct {
	class   fleet.Class
	kind    int32
	sample  *fleet.Room
	tflops  float64 // of one GPU; 0 if unknown
	energy  float64 // money for an hour of one GPU in use, beyond the idle node
	rent    float64 // money for an hour of one GPU that is paid for its sake
	shown   float64 // what the books will say an hour of one GPU costs
	rooms   []int32
	free    [][]int32         // rooms by how many GPUs they have free, and where they once stood
	soon    map[int]*calendar // the rooms without plans, by how many GPUs are wanted
	planned []int32           // the rooms with plans
}

// engine makes one plan.
type engine struct {
	policy  *Policy
	cfg     *Config
	view    *place.View
	items   []*queue.Item // that wait, by order of submission
	stocks  []*stock
	of      []int32 // stock of each room
	open    []free
	kept    map[int32]*profile // rooms in whose future something is booked, or was looked up
	begun   map[int32][]begun  // what this plan starts in the others
	planned map[int32]bool     // rooms that this plan starts, stops or books something in
	ends    []ending           // when rooms will have how many GPUs free
	spans   []span             // and where each room stands there
	booked  map[int32]bool     // rooms that are kept for someone from some time on
	mine    map[int32]id.Job   // hired rooms, by the job they were hired for, while it waits
	hired   map[id.Job][]*fleet.Lease
	shapes  map[*queue.Shape]*shape
	visits  int
	plan    place.Plan
	stops   map[id.Job]bool
	hosting []*host // rooms with jobs that could be stopped, once listed
	listed  bool
}

// free is what a room has left in this plan.
type free struct {
	gpus   uint64
	cpus   job.CPUs
	memory job.Bytes
}

// shape is what is known of all jobs with one need.
type shape struct {
	match  *fleet.Matcher
	able   []*stock // that could run it if they were empty
	hosts  []*host  // that could run it if jobs were stopped, once listed
	listed bool
	closed time.Duration // the shortest job for which nothing was free; 0 for none yet
}

func newEngine(p *Policy, v *place.View) *engine {
	e := &engine{
		policy: p, cfg: &p.cfg, view: v, items: v.Line.Items(), of: make([]int32, len(v.Rooms)), open: make([]free, len(v.Rooms)), spans: make([]span, len(v.Rooms)), kept: map[int32]*profile{}, booked: map[int32]bool{},
		begun: map[int32][]begun{}, planned: map[int32]bool{},
		mine: map[int32]id.Job{}, hired: map[id.Job][]*fleet.Lease{}, shapes: map[*queue.Shape]*shape{}, stops: map[id.Job]bool{},
	}
	type stockKey struct {
		class fleet.Class
		kind  int32
	}
	index := map[stockKey]int32{}
	for i := range v.Rooms {
		r := &v.Rooms[i]
		e.open[i] = free{r.Free, r.CPUs, r.Memory}
		k := stockKey{r.Node.Class, r.Kind}
		unlike := r.Kind < 0 && len(r.Node.Inventory.GPUs) > 0 // GPUs of several kinds: a stock of its own
		if unlike {
			k.kind = -2 - int32(i)
		}
		at, ok := index[k]
		if !ok {
			at = int32(len(e.stocks))
			index[k] = at
			e.stocks = append(e.stocks, e.newStock(r))
		}
		e.of[i] = at
		s := e.stocks[at]
		s.rooms = append(s.rooms, int32(i))
		if r.Open {
			s.put(int32(i), bits.OnesCount64(r.Free))
		}
	}
	e.reserveHired()
	return e
}

// reserveHired keeps hired nodes for the jobs that they were hired for.
func (e *engine) reserveHired() {
	if len(e.view.Leases) == 0 {
		return
	}
	waiting := map[id.Job]bool{}
	for _, it := range e.items {
		waiting[it.Job] = true
	}
	nodes := map[id.Node]id.Job{}
	for _, l := range e.view.Leases {
		if l.Live() && l.Job != "" {
			e.hired[l.Job] = append(e.hired[l.Job], l)
			if l.Node != "" {
				nodes[l.Node] = l.Job
			}
		}
	}
	for i := range e.view.Rooms {
		if r := &e.view.Rooms[i]; r.Node.Lease != "" && len(r.Holds) == 0 {
			if j, ok := nodes[r.Node.ID]; ok && waiting[j] {
				e.mine[int32(i)] = j
			}
		}
	}
}

// letGo lets others have what is left of the nodes that were hired for a job, now that
// it starts. Those who were passed over because of it are looked at again.
func (e *engine) letGo(w *wait) {
	if len(e.hired[w.it.Job]) == 0 {
		return
	}
	for at, j := range e.mine {
		if j == w.it.Job {
			delete(e.mine, at)
			e.ask(e.view.Now.Add(time.Second))
		}
	}
}

func (e *engine) newStock(r *fleet.Room) *stock {
	n := r.Node
	s := &stock{class: n.Class, kind: r.Kind, sample: r}
	gpus := float64(max(len(n.Inventory.GPUs), 1))
	if len(n.Inventory.GPUs) > 0 {
		s.tflops, _ = n.Inventory.GPUs[0].TFLOPS()
	}
	if p := e.view.Tariff.Of(n); p != nil {
		t := e.view.Tariff
		all := len(n.Inventory.GPUs)
		s.energy = (t.Power(p, all) - t.Power(p, 0)) / 1000 * t.Energy / gpus
		if len(p.Watts) == 0 && all > 0 { // nobody said what it draws: what its GPUs may
			s.energy = n.Inventory.GPUs[0].Watts / 1000 * t.Energy
		}
		s.shown = t.Rate(p, all) / gpus
	}
	if n.Class == fleet.OnDemand {
		for _, l := range e.view.Leases {
			if l.ID == n.Lease {
				s.rent = float64(l.Offer.Hourly) / 1e6 / gpus
				s.shown = s.rent
			}
		}
	}
	return s
}

// put enters a room by what it has free.
func (s *stock) put(room int32, gpus int) {
	for len(s.free) <= gpus {
		s.free = append(s.free, nil)
	}
	s.free[gpus] = append(s.free[gpus], room)
}

// shapeOf returns what is known of a shape.
func (e *engine) shapeOf(q *queue.Shape) *shape {
	s, ok := e.shapes[q]
	if ok {
		return s
	}
	s = &shape{match: fleet.NewMatcher(q.Need)}
	for _, st := range e.stocks {
		if !st.class.Allows(q.Need.Place) || st.kind >= 0 && q.Need.GPUs > 0 && st.sample.Sound != 0 && s.match.Wanted(st.sample) == 0 {
			continue // nor any other of them
		}
		if slices.ContainsFunc(st.rooms, func(at int32) bool { return e.view.Rooms[at].Open && s.match.Eligible(&e.view.Rooms[at]) }) {
			s.able = append(s.able, st)
		}
	}
	e.shapes[q] = s
	return s
}

// roomy reports whether there may be rooms with as many GPUs free as a shape needs.
func (e *engine) roomy(s *shape) bool {
	return slices.ContainsFunc(s.able, func(st *stock) bool {
		for n := s.match.Need.GPUs; n < len(st.free); n++ {
			if len(st.free[n]) > 0 {
				return true
			}
		}
		return false
	})
}

// room returns a room as the plan has left it.
func (e *engine) room(at int32) fleet.Room {
	r := e.view.Rooms[at]
	o := &e.open[at]
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
		return []int32{at}
	}
	best, least, seen := int32(-1), never, 0
	for gpus := need.GPUs; gpus < len(st.free); gpus++ {
		list := st.free[gpus]
		for i := 0; i < len(list); i++ {
			at := list[i]
			if bits.OnesCount64(e.open[at].gpus) != gpus { // it was put elsewhere
				list = slices.Delete(list, i, i+1)
				st.free[gpus] = list
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
				return []int32{best}
			}
			if busy == 0 {
				break // and so are those that have as much free, mostly
			}
		}
	}
	if best < 0 {
		return nil
	}
	return []int32{best}
}

// maxFits bounds how many rooms are compared in which a job could start.
const maxFits = 16

// busy returns for how long something runs in a room or is planned there.
func (e *engine) busy(at int32) time.Duration {
	if p := e.kept[at]; p != nil {
		return (*p)[len(*p)-1].at
	}
	last := time.Duration(0)
	for i := range e.view.Rooms[at].Holds {
		last = max(last, e.left(&e.view.Rooms[at].Holds[i]))
	}
	for _, b := range e.begun[at] {
		last = max(last, b.runs)
	}
	return last
}

// before returns the room that was hired for a job of one node, or where it ran before
// if it can go on there: its checkpoints are there.
func (e *engine) before(w *wait, s *shape, st *stock, lasts time.Duration) (int32, bool) {
	if s.match.Need.Nodes > 1 {
		return 0, false
	}
	for _, l := range e.hired[w.it.Job] {
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
	at, found := slices.BinarySearchFunc(e.view.Rooms, n, func(r fleet.Room, n id.Node) int { return cmp.Compare(r.Node.ID, n) })
	if !found || e.stocks[e.of[at]] != st || !e.canHave(w, s, int32(at), lasts) {
		return 0, false
	}
	return int32(at), true
}

// canHave reports whether a job can start in a room now without delaying anyone for
// whom it is kept.
func (e *engine) canHave(w *wait, s *shape, at int32, lasts time.Duration) bool {
	if j, hired := e.mine[at]; hired && j != w.it.Job {
		return false
	}
	r := e.room(at)
	if _, ok := s.match.Fits(&r); !ok {
		return false
	}
	return !e.booked[at] || e.profile(at).fits(0, units(&s.match.Need), lasts)
}

// begun is what this plan starts in a room.
type begun struct {
	takes size
	runs  time.Duration
}

// changed enters a room by what it has free now.
func (e *engine) changed(at int32) {
	e.stocks[e.of[at]].put(at, bits.OnesCount64(e.open[at].gpus))
	e.touch(at)
}

// touch remembers that this plan changes something in a room.
func (e *engine) touch(at int32) {
	if !e.planned[at] {
		e.planned[at] = true
		st := e.stocks[e.of[at]]
		st.planned = append(st.planned, at)
	}
}

// profile returns what will be free in a room.
func (e *engine) profile(at int32) *profile {
	if p := e.kept[at]; p != nil {
		return p
	}
	r, o := &e.view.Rooms[at], &e.open[at]
	p := make(profile, 1, len(r.Holds)+3)
	p[0].free = size{bits.OnesCount64(o.gpus), o.cpus, o.memory}
	for i := range r.Holds {
		if n := e.returns(r, i); n != (size{}) {
			p.give(e.left(&r.Holds[i]), n)
		}
	}
	for _, b := range e.begun[at] {
		p.give(b.runs, b.takes)
	}
	e.kept[at] = &p
	return &p
}

// returns is what a hold of a room gives back when it ends. One that was stopped has
// given it back, and the last of those that share a GPU gives back all of it.
func (e *engine) returns(r *fleet.Room, i int) size {
	h := &r.Holds[i]
	if len(e.stops) > 0 && e.stops[h.Job] {
		return size{}
	}
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
	const least = time.Minute
	if h.Ends.IsZero() {
		if h.Since.IsZero() {
			return e.cfg.Guess
		}
		age := max(e.view.Now.Sub(h.Since), 0)
		if left := e.view.Past.Left(h.Owner, bits.OnesCount64(h.GPUs), age); left > 0 {
			return left
		}
		return max(age, least)
	}
	if d := h.Ends.Sub(e.view.Now); d > 0 {
		return d
	}
	return max(e.view.Now.Sub(h.Ends), least)
}
