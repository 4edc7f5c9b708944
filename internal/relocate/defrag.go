package relocate

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/money"
	"trainyard/internal/place"
	"trainyard/internal/place/ondemand"
	"trainyard/internal/place/timeline"
	"trainyard/internal/queue"
	"trainyard/internal/tenant"
)

// The search for the cheapest moves is bounded: so many jobs of a node are considered, so many sets of them are kept,
// and so many combinations are tried.
const (
	maxMovedOfNode = 8
	maxSetsOfNode  = 8
	maxTries       = 32
)

// defragment starts the queued job that is next, if it needs several GPUs and enough are free but scattered: running
// jobs move to free GPUs elsewhere in the yard so that it fits. Policies that revise running jobs make room themselves.
func (p *Policy) defragment(v *place.View, plan *place.Plan) {
	if p.inner.Revises() || v.Queue.Len() == 0 {
		return
	}

	d := &defrag{homeward: homeward{policy: p, view: v, plan: plan}}

	d.item = d.next()
	if d.item == nil || !d.scattered() || !d.findMovable() {
		return
	}

	defer p.timeline.Forget()

	if s, ok := d.cheapest(); ok && d.worthwhile(&s) {
		d.carryOut(&s)
	}
}

// defrag is the state of one plan that makes room for one job.
type defrag struct {
	homeward
	item    *queue.Item         // for which room is made
	shape   *timeline.Shape     // of it
	movable map[id.Node][]*away // jobs that could move, by each of their nodes
}

// emptying is a way to make room on one node: the jobs that leave it.
type emptying struct {
	node  id.Node
	moves []*away
	cost  money.Amount // estimated
}

// solution is how room is made: the moves, and where the queued job starts.
type solution struct {
	moves  []move
	start  []place.Allocation
	cost   money.Amount  // of all moves
	wait   time.Duration // until the queued job starts
	waited time.Duration // until it would start without the moves
	gain   money.Amount  // of the waiting time that it saves
}

// next returns the queued job that the policy would start next if it could: the first that it has reserved or booked
// nodes for, else the only one of which it is not known where it will run. Nil if there is none that moves could help.
func (d *defrag) next() *queue.Item {
	var first *queue.Item

	switch {
	case d.plan.Reservation != nil:
		first = d.reserved(d.plan.Reservation.Job)
	case len(d.plan.Bookings) > 0:
		first = d.plan.Bookings[0].Item
	default:
		first = d.onlyUnsettled()
	}

	if first == nil || first.Shape.Need.Nodes*first.Shape.Need.GPUs < 2 || d.served(first) || !d.allowed(first) {
		return nil
	}

	if slices.ContainsFunc(d.plan.Waits, func(w place.Wait) bool { return w.Job == first.Job }) {
		return nil // it could start, and the policy has a reason to let it wait
	}

	return first
}

// reserved returns the queued job that the plan has reserved nodes for.
func (d *defrag) reserved(j id.Job) *queue.Item {
	number, _ := j.Number()

	if it := d.view.Queue.Find(number); it != nil && it.Job == j {
		return it
	}

	return nil
}

// queued returns the first queued job with a property, nil if there is none.
func (d *defrag) queued(is func(*queue.Item) bool) *queue.Item {
	for _, it := range d.view.Queue.Stays {
		if is(it) {
			return it
		}
	}

	return nil
}

// onlyUnsettled returns the only queued job that the plan neither starts nor provisions for, nil if there are several.
func (d *defrag) onlyUnsettled() *queue.Item {
	var only *queue.Item
	more := d.queued(func(it *queue.Item) bool {
		if d.served(it) {
			return false
		}

		if only == nil {
			only = it
			return false
		}

		return true
	})

	if more != nil {
		return nil
	}

	return only
}

// served reports whether the plan starts a job, or nodes are provisioned for it.
func (d *defrag) served(it *queue.Item) bool {
	return slices.ContainsFunc(d.plan.Starts, func(s place.Start) bool { return s.Item.Job == it.Job }) ||
		slices.ContainsFunc(d.plan.Provisions, func(p place.Provision) bool { return p.Item.Job == it.Job }) ||
		slices.ContainsFunc(d.view.Leases, func(l *fleet.Lease) bool { return l.Job == it.Job && l.Live() })
}

// allowed reports whether quotas let a job start beside what the plan starts.
func (d *defrag) allowed(it *queue.Item) bool {
	claims := place.NewClaims(d.view)
	for i := range d.plan.Starts {
		claims.Start(d.plan.Starts[i].Item, d.plan.Starts[i].GPUs())
	}

	for i := range d.plan.Provisions {
		claims.Provision(&d.plan.Provisions[i])
	}

	a := claims.Allow(it)

	return a.HoldReason == "" && (a.GPUs == tenant.NoLimit || it.Shape.Need.Nodes*it.Shape.Need.GPUs <= a.GPUs)
}

// scattered reports whether the nodes of the yard have enough free GPUs in sum.
func (d *defrag) scattered() bool {
	free := 0
	for i := range d.view.Rooms {
		if r := &d.view.Rooms[i]; r.Open && isHome(r.Node.Class) {
			free += bits.OnesCount64(r.Free)
		}
	}

	return free >= d.item.Shape.Need.Nodes*d.item.Shape.Need.GPUs
}

// findMovable finds the jobs on nodes of the yard that could move, and reports whether there are any. A job on several
// nodes moves as a whole, even if room is needed on one of them alone.
func (d *defrag) findMovable() bool {
	d.movable = map[id.Node][]*away{}
	v := d.view

	for _, r := range v.Running {
		if !d.policy.movable(r) || d.planned(r) || !d.atHome(r) ||
			slices.ContainsFunc(v.Leases, r.Awaits) { // it is about to move to a faster node
			continue
		}

		if until := d.policy.staysUntil(r); until.After(v.Now) {
			wake(d.plan, v.Now, until)
			continue
		}

		l, known := leftOf(v.Now, r)
		if !known {
			continue
		}

		a := &away{run: r, left: l}
		for _, held := range r.Allocations {
			d.movable[held.Node] = append(d.movable[held.Node], a)
		}
	}

	return len(d.movable) > 0
}

// atHome reports whether all nodes of a job are paid for anyway, and it has equally many GPUs on each.
func (d *defrag) atHome(r *place.Running) bool {
	return gpusOf(r) > 0 && !slices.ContainsFunc(r.Allocations, func(a place.Allocation) bool {
		n := d.node(a.Node)
		return n == nil || !isHome(n.Class) || bits.OnesCount64(a.GPUs) != gpusOf(r)
	})
}

// on returns the GPUs of a node that a job has.
func (a *away) on(n id.Node) uint64 {
	for _, held := range a.run.Allocations {
		if held.Node == n {
			return held.GPUs
		}
	}

	return 0
}

// cheapest returns the moves that make room at the least cost, and whether there are any.
func (d *defrag) cheapest() (solution, bool) {
	d.begin(nil)
	d.shape = &timeline.Shape{}
	need := d.item.Shape.Need
	need.MaxNodes = need.Nodes
	d.policy.timeline.Compare(d.shape, &need)

	var best solution
	found := false

	for _, pool := range d.shape.Able {
		if !isHome(pool.Class) {
			continue
		}

		d.begin(nil)
		ways := d.ways(pool)

		if s, ok := d.search(pool, ways); ok && (!found || s.cost < best.cost) {
			best, found = s, true
		}
	}

	return best, found
}

// begin enters the plan into the timeline, without what it keeps for the job for which room is made, and without some
// jobs that leave their nodes.
func (d *defrag) begin(leaving []*away) {
	t := &d.policy.timeline
	t.Update(timeline.Snapshot{
		Now: d.view.Now, Rooms: d.view.Rooms, Changes: d.view.Changes, Past: d.view.Past, Guess: ondemand.Standard().Guess,
	})

	for _, a := range leaving {
		for _, held := range a.run.Allocations {
			if at, ok := t.Find(held.Node); ok {
				t.Vacate(at, a.run.Job, held.GPUs, &a.run.Shape.Need)
			}
		}
	}

	for i := range d.plan.Starts {
		s := &d.plan.Starts[i]
		for _, a := range s.Allocations {
			if at, ok := t.Find(a.Node); ok {
				t.Start(at, a.GPUs&t.Free(at).GPUs, &s.Item.Shape.Need, s.Item.Lasts)
			}
		}
	}

	for i := range d.plan.Bookings {
		b := &d.plan.Bookings[i]
		if b.Item.Job == d.item.Job {
			continue
		}

		for _, at := range b.Rooms {
			t.Reserve(at, b.StartsIn, timeline.SizeOf(&b.Item.Shape.Need), b.Lasts)
		}
	}
}

// ways lists the ways to make room on each node of a pool, for each node the cheapest first. One that has room already
// needs no moves.
func (d *defrag) ways(pool *timeline.Pool) map[id.Node][]emptying {
	ways := map[id.Node][]emptying{}

	for i := range d.view.Rooms {
		at := int32(i)
		if d.policy.timeline.PoolOf(at) != pool || !d.view.Rooms[i].Open {
			continue
		}

		if list := d.waysOn(at); len(list) > 0 {
			ways[d.view.Rooms[i].Node.ID] = list
		}
	}

	return ways
}

// waysOn lists the sets of jobs without which the queued job has room on a node, the cheapest first.
func (d *defrag) waysOn(at int32) []emptying {
	room := d.policy.timeline.Room(at)
	node := room.Node

	if _, ok := d.shape.Match.Fits(&room); ok {
		return []emptying{{node: node.ID}}
	}

	jobs := d.movable[node.ID]
	if len(jobs) == 0 || !d.shape.Match.Eligible(&room) {
		return nil
	}

	costs := make(map[*away]money.Amount, len(jobs))
	for _, a := range jobs {
		p := pauseOf(d.view, a.run, node, node)
		costs[a] = d.policy.terms.valueOf(a.run.Item).For(p.total()) + p.cost
	}

	jobs = slices.Clone(jobs)
	slices.SortStableFunc(jobs, func(a, b *away) int { return cmp.Compare(costs[a], costs[b]) })
	jobs = jobs[:min(len(jobs), maxMovedOfNode)]

	var list []emptying
	for set := uint(1); set < 1<<len(jobs); set++ {
		e := emptying{node: node.ID}
		without := room

		for i, a := range jobs {
			if set&(1<<i) == 0 {
				continue
			}

			need := &a.run.Shape.Need
			without.Free |= a.on(node.ID) & room.Sound
			without.CPUs += need.CPUs
			without.Memory += need.Memory
			e.moves = append(e.moves, a)
			e.cost += costs[a]
		}

		if _, ok := d.shape.Match.Fits(&without); ok {
			list = append(list, e)
		}
	}

	slices.SortStableFunc(list, byCost)

	return list[:min(len(list), maxSetsOfNode)]
}

// byCost compares ways to make room: the cheaper one comes first, of equal ones that with fewer moves.
func byCost(a, b emptying) int {
	return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(len(a.moves), len(b.moves)))
}

// search tries to make room on as many nodes of a pool as the queued job needs, the cheapest ways first.
func (d *defrag) search(pool *timeline.Pool, ways map[id.Node][]emptying) (solution, bool) {
	for range maxTries {
		var list []emptying
		for i := range d.view.Rooms {
			if w := ways[d.view.Rooms[i].Node.ID]; len(w) > 0 {
				list = append(list, w[0])
			}
		}

		if len(list) < d.item.Shape.Need.Nodes {
			break
		}

		slices.SortStableFunc(list, byCost)
		list = list[:d.item.Shape.Need.Nodes]

		s, failed := d.try(pool, list)
		if failed == "" {
			return s, len(s.moves) > 0
		}

		ways[failed] = ways[failed][1:]
	}

	return solution{}, false
}

// try makes room on some nodes. If that fails, it returns on which of them.
func (d *defrag) try(pool *timeline.Pool, list []emptying) (s solution, failed id.Node) {
	var leaving []*away
	leaves := map[*away]id.Node{} // the first of these nodes that each leaves
	for i := range list {
		for _, a := range list[i].moves {
			if _, known := leaves[a]; !known {
				leaves[a] = list[i].node
				leaving = append(leaving, a)
			}
		}
	}

	d.begin(leaving)
	t := &d.policy.timeline
	request := &timeline.Request{Shape: d.shape, Job: d.item.Job, Lasts: cmp.Or(d.item.Lasts, ondemand.Standard().Guess)}

	for i := range list {
		at, ok := t.FitsOn(request, pool, list[i].node)
		if !ok {
			return s, list[i].node
		}

		room := t.Room(at)
		gpus := fleet.LowestGPUs(d.shape.Match.MatchingGPUs(&room)&room.Free, d.item.Shape.Need.GPUs)
		t.Start(at, gpus, &d.item.Shape.Need, request.Lasts)
		s.start = append(s.start, place.Allocation{Node: list[i].node, GPUs: gpus})
	}

	slices.SortStableFunc(leaving, func(a, b *away) int { return cmp.Compare(b.run.GPUs, a.run.GPUs) })

	for _, a := range leaving {
		m, cost, ok := d.elsewhere(a)
		if !ok {
			return s, leaves[a]
		}

		for i, at := range m.rooms {
			t.Start(at, m.start[i].GPUs, &a.run.Shape.Need, m.pause.total()+m.left)
		}

		s.moves = append(s.moves, m)
		s.cost += cost
		s.wait = max(s.wait, m.pause.leaves)
	}

	return s, ""
}

// elsewhere returns the cheapest move of a job to other nodes of the yard with what that costs, and whether there is
// one that does not delay it too much.
func (d *defrag) elsewhere(a *away) (best move, least money.Amount, found bool) {
	shape := d.shapeOf(a.run, gpusOf(a.run))

	for _, pool := range shape.Able {
		if !isHome(pool.Class) {
			continue
		}

		m, ratio := d.moved(a, shape, pool)
		if ratio == 0 || m.delay > d.policy.terms.maxPause(a.left.mid) || !d.meetsDeadline(&m, ratio) {
			continue
		}

		cost := d.costOf(&m)
		if (!found || cost < least) && d.fit(&m, shape, pool) {
			best, least, found = m, cost, true
		}
	}

	return best, least, found
}

// costOf returns what a move costs: the transfer, and the time of the job, which stands still at least.
func (d *defrag) costOf(m *move) money.Amount {
	it := m.away.run.Item
	value := d.policy.terms.valueOf(it)
	ends := d.view.Now.Add(m.away.left.mid)
	late := ondemand.LateCost(it, value, ends.Add(m.delay)) - ondemand.LateCost(it, value, ends)

	return m.pause.cost + value.For(max(m.delay, m.pause.total())) + max(late, 0)
}

// worthwhile reports whether the waiting time that the moves save is worth so much more than they cost.
func (d *defrag) worthwhile(s *solution) bool {
	t := &d.policy.terms
	s.waited = d.waits()

	if s.saved() < t.Wait {
		return false
	}

	it := d.item
	value := t.valueOf(it)
	ends := d.view.Now.Add(cmp.Or(it.Lasts, ondemand.Standard().Guess))
	late := ondemand.LateCost(it, value, ends.Add(s.waited)) - ondemand.LateCost(it, value, ends.Add(s.wait))
	s.gain = value.For(s.saved()) + late

	return s.gain > s.cost.Times(t.Gain)
}

// saved returns how much earlier the queued job starts.
func (s *solution) saved() time.Duration { return s.waited - s.wait }

// waits returns how long the queued job would wait if nothing moved and every job ended at the lower bound of its
// forecast, and no longer than the policy expects.
func (d *defrag) waits() time.Duration {
	d.begin(nil)
	ends := d.ends()
	least := timeline.Never

	for _, pool := range d.shape.Able {
		var times []time.Duration

		for i := range d.view.Rooms {
			r := &d.view.Rooms[i]
			if d.policy.timeline.PoolOf(int32(i)) == pool && r.Open && d.shape.Match.Eligible(r) {
				times = append(times, d.freeIn(int32(i), ends[r.Node.ID]))
			}
		}

		if nodes := d.item.Shape.Need.Nodes; len(times) >= nodes {
			slices.Sort(times)
			least = min(least, times[nodes-1])
		}
	}

	if r := d.plan.Reservation; r != nil && r.Job == d.item.Job && !r.At.IsZero() {
		least = min(least, r.At.Sub(d.view.Now))
	}

	for i := range d.plan.Bookings {
		if b := &d.plan.Bookings[i]; b.Item.Job == d.item.Job {
			least = min(least, b.StartsIn)
		}
	}

	return least
}

// ending is when so many GPUs of a node are released.
type ending struct {
	in   time.Duration
	gpus int
}

// ends lists when running and started jobs release the GPUs of each node, by the lower bounds of their forecasts.
func (d *defrag) ends() map[id.Node][]ending {
	known := map[id.Job]time.Duration{}
	for _, r := range d.view.Running {
		if l, ok := leftOf(d.view.Now, r); ok {
			known[r.Job] = l.low
		}
	}

	ends := map[id.Node][]ending{}
	for i := range d.view.Rooms {
		r := &d.view.Rooms[i]
		for k := range r.Holds {
			in, ok := known[r.Holds[k].Job]
			if !ok {
				in = d.policy.timeline.Remaining(&r.Holds[k])
			}

			ends[r.Node.ID] = append(ends[r.Node.ID], ending{in, bits.OnesCount64(r.Holds[k].GPUs)})
		}
	}

	for i := range d.plan.Starts {
		s := &d.plan.Starts[i]
		for _, a := range s.Allocations {
			ends[a.Node] = append(ends[a.Node], ending{s.Item.Lasts, bits.OnesCount64(a.GPUs)})
		}
	}

	return ends
}

// freeIn returns how long it takes until a node has as many GPUs free as the queued job needs.
func (d *defrag) freeIn(at int32, ends []ending) time.Duration {
	slices.SortFunc(ends, func(a, b ending) int { return cmp.Compare(a.in, b.in) })
	room := d.policy.timeline.Room(at)
	free := bits.OnesCount64(d.shape.Match.MatchingGPUs(&room) & room.Free)
	in := time.Duration(0)

	for _, e := range ends {
		if free >= d.item.Shape.Need.GPUs {
			break
		}

		free += e.gpus
		in = e.in
	}

	return in
}

// carryOut adds the moves and the start of the queued job to the plan.
func (d *defrag) carryOut(s *solution) {
	for i := range s.moves {
		m := &s.moves[i]
		reason := d.whyRoom(s, m)
		r := m.away.run
		d.plan.Stops = append(d.plan.Stops, place.Stop{Running: r, Reason: reason, Kind: place.Preemption})
		d.plan.Starts = append(d.plan.Starts, place.Start{Item: r.Item, Allocations: m.start, Reason: reason})
	}

	d.plan.Starts = append(d.plan.Starts, place.Start{Item: d.item, Allocations: s.start, Reason: d.whyStart(s)})

	if r := d.plan.Reservation; r != nil && r.Job == d.item.Job {
		d.plan.Reservation = nil
	}

	d.plan.Bookings = slices.DeleteFunc(slices.Clone(d.plan.Bookings), func(b place.Booking) bool {
		return b.Item.Job == d.item.Job
	})
}

// whyRoom says why a job moves to make room for another, in money and minutes.
func (d *defrag) whyRoom(s *solution, m *move) string {
	return fmt.Sprintf("moves from %s to %s to make room for %s, which starts est. %s earlier, worth %s; "+
		"%s for save, transfer and restore, worth %s, est. finish %s",
		d.describe(m.away.run.Allocations), d.describe(m.start), d.item.Job, humanize.Duration(s.saved()),
		humanize.Dollars(s.gain), humanize.Duration(m.pause.total()), humanize.Dollars(d.costOf(m)), d.finish(m))
}

// whyStart says why a queued job starts on nodes from which others move.
func (d *defrag) whyStart(s *solution) string {
	jobs := make([]string, len(s.moves))
	for i := range s.moves {
		jobs[i] = string(s.moves[i].away.run.Job)
	}

	return fmt.Sprintf("%s: %s to make room; starts est. %s earlier, worth %s; the moves cost est. %s",
		d.describe(s.start), movesWords(jobs), humanize.Duration(s.saved()), humanize.Dollars(s.gain),
		humanize.Dollars(s.cost))
}

// movesWords says which jobs move.
func movesWords(jobs []string) string {
	verb := "move"
	if len(jobs) == 1 {
		verb = "moves"
	}

	return humanize.List(jobs...) + " " + verb
}
