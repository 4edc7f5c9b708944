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
	class  fleet.Class
	kind   int32
	sample *fleet.Room
	tflops float64 // of one GPU; 0 if unknown
	energy float64 // money for an hour of one GPU in use, beyond the idle node
	rent   float64 // money for an hour of one GPU that is paid for its sake
	shown  float64 // what the books will say an hour of one GPU costs
	rooms  []int32
	free   [][]int32 // rooms by how many GPUs they had free when they were last looked at
}

// engine makes one plan.
type engine struct {
	policy *Policy
	cfg    *Config
	view   *place.View
	items  []*queue.Item // that wait, by order of submission
	stocks []*stock
	of     []int32 // stock of each room
	open   []free
	kept   map[int32]*profile // rooms in whose future something is booked, or was looked up
	booked map[int32]bool     // rooms that are kept for someone from some time on
	mine   map[int32]id.Job   // hired rooms, by the job they were hired for, while it waits
	hired  map[id.Job][]*fleet.Lease
	shapes map[*queue.Shape]*shape
	visits int
	plan   place.Plan
	stops  map[id.Job]bool
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
	closed bool
}

func newEngine(p *Policy, v *place.View) *engine {
	e := &engine{
		policy: p, cfg: &p.cfg, view: v, items: v.Line.Items(), of: make([]int32, len(v.Rooms)), open: make([]free, len(v.Rooms)), kept: map[int32]*profile{}, booked: map[int32]bool{},
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
		at, ok := index[k]
		if !ok || r.Kind < 0 { // unlike GPUs in one node: a stock of its own
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
		if slices.ContainsFunc(st.rooms, func(at int32) bool { return e.view.Rooms[at].Open && s.match.Eligible(&e.view.Rooms[at]) }) {
			s.able = append(s.able, st)
		}
	}
	e.shapes[q] = s
	return s
}

// room returns a room as the plan has left it.
func (e *engine) room(at int32) fleet.Room {
	r := e.view.Rooms[at]
	o := &e.open[at]
	r.Free, r.CPUs, r.Memory = o.gpus, o.cpus, o.memory
	return r
}

// fitNow returns rooms of a stock on which the job can start at once and stay for as
// long as it lasts, the tightest first, or nil if there are not enough.
func (e *engine) fitNow(w *wait, s *shape, st *stock, lasts time.Duration) []int32 {
	need := &s.match.Need
	var found []int32
	if at, ok := e.before(w, s, st, lasts); ok {
		return []int32{at}
	}
	for gpus := need.GPUs; gpus < len(st.free); gpus++ {
		list := st.free[gpus]
		for i := 0; i < len(list); i++ {
			at := list[i]
			if now := bits.OnesCount64(e.open[at].gpus); now != gpus { // it has less by now
				list = slices.Delete(list, i, i+1)
				st.free[gpus] = list
				st.put(at, now)
				i--
				continue
			}
			if !e.canHave(w, s, at, lasts) {
				continue
			}
			if found = append(found, at); len(found) == need.Nodes {
				return found
			}
		}
	}
	return nil
}

// before returns the room where a job of one node ran before, if it can go on there:
// its checkpoints are there.
func (e *engine) before(w *wait, s *shape, st *stock, lasts time.Duration) (int32, bool) {
	if w.it.Prefer == "" || s.match.Need.Nodes > 1 {
		return 0, false
	}
	at, found := slices.BinarySearchFunc(e.view.Rooms, w.it.Prefer, func(r fleet.Room, n id.Node) int { return cmp.Compare(r.Node.ID, n) })
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

// units is what of a room a need is reckoned by: GPUs, or for jobs without GPUs CPUs.
func units(n *fleet.Need) int {
	if n.GPUs > 0 {
		return n.GPUs
	}
	return int(max(n.CPUs, 1))
}

// profile returns what will be free in a room.
func (e *engine) profile(at int32) *profile {
	if p := e.kept[at]; p != nil {
		return p
	}
	r := &e.view.Rooms[at]
	p := profile{{0, bits.OnesCount64(e.open[at].gpus)}}
	if len(r.Node.Inventory.GPUs) == 0 {
		p[0].free = int(e.open[at].cpus)
	}
	for i := range r.Holds {
		h := &r.Holds[i]
		n := bits.OnesCount64(h.GPUs & r.Sound)
		if len(r.Node.Inventory.GPUs) == 0 {
			n = int(h.CPUs)
		}
		if n == 0 {
			continue
		}
		for k := p.cut(e.left(h)); k < len(p); k++ {
			p[k].free += n
		}
	}
	e.kept[at] = &p
	return &p
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
