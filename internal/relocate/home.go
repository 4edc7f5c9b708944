package relocate

import (
	"cmp"
	"math/bits"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/place"
	"trainyard/internal/place/ondemand"
	"trainyard/internal/place/timeline"
	"trainyard/internal/queue"
)

// nobody is whom a room is dedicated to that a queued job waits for.
const nobody = id.Job("nobody")

// away is a running job on provisioned nodes.
type away struct {
	run    *place.Running
	left   left
	leases []*fleet.Lease // of nodes on which nothing else runs
}

// move is a way to bring a job home.
type move struct {
	away  *away
	shape *timeline.Shape
	pool  *timeline.Pool
	rooms []int32
	start []place.Allocation
	pause pause
	left  time.Duration // once it works there
	delay time.Duration // of its end; negative if it ends earlier
	saving
}

// saving is what a move saves if a job takes so much longer.
type saving struct {
	stay  money.Amount // what staying costs from when its old nodes would be left
	money money.Amount // that the move saves
	saves money.Amount // the same less the job's time at its value
}

// bringHome moves jobs from provisioned nodes to nodes of the yard that are idle and that no queued
// job waits for.
func (p *Policy) bringHome(v *place.View, plan *place.Plan) {
	h := &homeward{policy: p, view: v, plan: plan}

	if !h.idle() {
		return
	}

	list := h.away()
	if len(list) == 0 {
		return
	}

	h.enter()
	defer p.timeline.Forget()

	h.onLine = h.leaving()

	ways := make([][]move, 0, len(list))
	for i := range list {
		if w := h.ways(&list[i]); len(w) > 0 {
			ways = append(ways, w)
		}
	}

	slices.SortStableFunc(ways, func(a, b []move) int { return cmp.Compare(b[0].saves, a[0].saves) })

	for _, w := range ways {
		if m := h.first(w); m != nil {
			h.take(m, h.reason(m))
		}
	}
}

// homeward is the state of one plan.
type homeward struct {
	policy *Policy
	view   *place.View
	plan   *place.Plan
	shapes map[fleet.Need]*timeline.Shape
	onLine job.Bytes // of checkpoints that are on their way home
	// catalogue is what can be provisioned, nil before it is asked for.
	catalogue *ondemand.Catalogue
}

// away lists the jobs that might come home, in order of submission.
func (h *homeward) away() []away {
	v := h.view

	leases := h.activeLeases()
	if len(leases) == 0 {
		return nil
	}

	var list []away
	for _, r := range v.Running {
		if h.planned(r) || !h.policy.movable(r) {
			continue
		}

		a := away{run: r, leases: h.vacated(r, leases)}
		if len(a.leases) == 0 {
			continue
		}

		var known bool

		a.left, known = leftOf(v.Now, r)
		if !known || a.left.low < h.policy.terms.Left {
			continue
		}

		if until := h.policy.staysUntil(r); until.After(v.Now) {
			wake(h.plan, v.Now, until)
			continue
		}

		list = append(list, a)
	}

	return list
}

// movable reports whether a running job could be moved at all: it works, and it continues elsewhere
// from what it has saved. One that declares checkpoints and has not written any may not be able to.
func (p *Policy) movable(r *place.Running) bool {
	o := r.Outlook
	if r.Stopping || r.Stays || r.Began.IsZero() || !o.Resumes || len(r.Allocations) == 0 || r.Allocations[0].Share > 0 {
		return false
	}

	return o.Saved.Travels
}

// staysUntil returns until when a job stays where it is because it was moved or preempted before.
func (p *Policy) staysUntil(r *place.Running) time.Time {
	if r.Outlook.Stops == 0 {
		return time.Time{}
	}

	return r.Began.Add(p.terms.Stay)
}

// vacated returns the leases of the nodes that would be empty without a job.
func (h *homeward) vacated(r *place.Running, leases map[id.Node]*fleet.Lease) []*fleet.Lease {
	var list []*fleet.Lease
	for _, a := range r.Allocations {
		l := leases[a.Node]
		if l == nil {
			continue
		}

		at, found := h.find(a.Node)
		others := func(o fleet.Hold) bool { return o.Job != r.Job }

		if found && !slices.ContainsFunc(h.view.Rooms[at].Holds, others) {
			list = append(list, l)
		}
	}

	return list
}

// find returns the room of a node.
func (h *homeward) find(n id.Node) (int, bool) {
	return slices.BinarySearchFunc(h.view.Rooms, n, func(r fleet.Room, n id.Node) int {
		return cmp.Compare(r.Node.ID, n)
	})
}

// node returns a node of the view, nil if there is none of that name.
func (h *homeward) node(n id.Node) *fleet.Node {
	at, found := h.find(n)
	if !found {
		return nil
	}

	return h.view.Rooms[at].Node
}

// isHome reports whether a node is paid for anyway.
func isHome(c fleet.Class) bool { return c != fleet.OnDemand }

// idle reports whether a node of the yard has anything free.
func (h *homeward) idle() bool {
	for i := range h.view.Rooms { // they are large: without copying them
		if r := &h.view.Rooms[i]; r.Open && isHome(r.Node.Class) && (r.Free != 0 || r.Sound == 0) {
			return true
		}
	}

	return false
}

// enter enters the plan into the timeline, with what it keeps for queued jobs.
func (h *homeward) enter() {
	t := &h.policy.timeline
	t.Update(timeline.Snapshot{
		Now: h.view.Now, Rooms: h.view.Rooms, Changes: h.view.Changes, Past: h.view.Past, Guess: ondemand.Standard().Guess,
	})

	settled := map[id.Job]bool{} // queued jobs of which it is known where they will run

	for i := range h.plan.Starts {
		s := &h.plan.Starts[i]
		settled[s.Item.Job] = true

		for _, a := range s.Allocations {
			if at, ok := t.Find(a.Node); ok {
				t.Start(at, a.GPUs&t.Free(at).GPUs, &s.Item.Shape.Need, s.Item.Lasts)
			}
		}
	}

	for i := range h.plan.Bookings {
		b := &h.plan.Bookings[i]
		settled[b.Item.Job] = true

		for _, at := range b.Rooms {
			t.Reserve(at, b.StartsIn, timeline.SizeOf(&b.Item.Shape.Need), b.Lasts)
		}
	}

	for i := range h.plan.Provisions {
		settled[h.plan.Provisions[i].Item.Job] = true
	}

	for _, l := range h.view.Leases {
		if l.Job != "" && l.Live() {
			settled[l.Job] = true
		}
	}

	h.close(settled)
}

// close keeps the rooms free that a queued job may wait for of which it is not known where it will
// run.
func (h *homeward) close(settled map[id.Job]bool) {
	waiting := map[*queue.Shape]bool{}
	for _, it := range h.view.Queue.Stays {
		if !settled[it.Job] {
			waiting[it.Shape] = true
		}
	}

	for s := range waiting {
		match := fleet.NewMatcher(s.Need)
		for i := range h.view.Rooms {
			if r := &h.view.Rooms[i]; r.Open && isHome(r.Node.Class) && match.Eligible(r) {
				h.policy.timeline.Dedicate(int32(i), nobody)
			}
		}
	}
}

// ways lists the moves of a job to pools of the yard that are worth it, the one that saves most first.
// Whether there is room is not looked up.
func (h *homeward) ways(a *away) []move {
	shape := h.shapeOf(a.run, gpusOf(a.run))

	var list []move
	for _, pool := range shape.Able {
		if !isHome(pool.Class) {
			continue
		}

		if m, ok := h.onPool(a, shape, pool); ok {
			list = append(list, m)
		}
	}

	slices.SortStableFunc(list, func(a, b move) int { return cmp.Compare(b.saves, a.saves) })

	return list
}

// first returns the first move for which there is room, nil if there is none. One that would wait too
// long for the checkpoints of others on their way home is made later: until then its job works.
func (h *homeward) first(list []move) *move {
	wait := seconds(h.onLine, h.view.Network.Across)

	for _, m := range list {
		if h.onLine > 0 && wait+m.pause.total() > h.policy.terms.MinDelay {
			continue
		}

		if h.fit(&m, m.shape, m.pool) {
			return &m
		}
	}

	return nil
}

// leaving returns the size of the checkpoints of jobs that are leaving nodes outside the yard's site.
func (h *homeward) leaving() job.Bytes {
	sum := job.Bytes(0)
	for _, r := range h.view.Running {
		if !r.Stopping || !r.Outlook.Saved.Travels || len(r.Allocations) == 0 {
			continue
		}

		if n := h.node(r.Allocations[0].Node); n != nil && n.Class != fleet.Local {
			sum += r.Outlook.Saved.Size
		}
	}

	return sum
}

// gpusOf returns how many GPUs a running job has on each node.
func gpusOf(r *place.Running) int { return bits.OnesCount64(r.Allocations[0].GPUs) }

// needOf returns what a running job needs elsewhere: as many nodes as it has, and so many GPUs on each.
func needOf(r *place.Running, gpus int) fleet.Need {
	need := r.Shape.Need
	need.Nodes, need.GPUs = len(r.Allocations), gpus

	if need.MaxGPUs > 0 {
		need.MaxGPUs = need.GPUs
	}

	return need
}

// shapeOf describes what a running job needs elsewhere.
func (h *homeward) shapeOf(r *place.Running, gpus int) *timeline.Shape {
	need := needOf(r, gpus)
	if s, ok := h.shapes[need]; ok {
		return s
	}

	shape := &timeline.Shape{}
	h.policy.timeline.Compare(shape, &need)

	if h.shapes == nil {
		h.shapes = map[fleet.Need]*timeline.Shape{}
	}

	h.shapes[need] = shape

	return shape
}

// onPool returns how a job would come home to nodes of a pool, and whether it is worth it.
func (h *homeward) onPool(a *away, shape *timeline.Shape, pool *timeline.Pool) (move, bool) {
	m, ratio := h.moved(a, shape, pool)
	if ratio == 0 || ratio < 1 && h.escaped(a) {
		return m, false
	}

	m.saving = h.savingOf(&m, a.left.mid, ratio, pool)

	least := h.savingOf(&m, a.left.low, ratio, pool)

	return m, h.worth(&m, least, ratio)
}

// escaped reports whether a job must not get slower: it is too slow where it is, or it is there because it was too
// slow elsewhere.
func (h *homeward) escaped(a *away) bool {
	if a.run.Outlook.Slow >= place.SlowForecasts {
		return true
	}

	return slices.ContainsFunc(a.leases, func(l *fleet.Lease) bool { return l.Faster && l.Job == a.run.Job })
}

// savingOf returns what a move saves if so much is left where the job is, and it is so much faster at
// home.
func (h *homeward) savingOf(m *move, remaining time.Duration, ratio float64, pool *timeline.Pool) saving {
	now, it := h.view.Now, m.away.run.Item
	works := scaled(remaining, ratio)
	stayed, moved := now.Add(remaining), now.Add(m.pause.total()+works)

	var s saving
	for _, l := range m.away.leases {
		s.stay += l.Offer.PerHour().For(billed(l, stayed) - billed(l, now.Add(m.pause.leaves)))
	}

	energy := ondemand.EnergyRate(h.view.Tariff, pool.Sample.Node).Of(float64(max(m.away.run.GPUs, 1)))
	s.money = s.stay - m.pause.cost - energy.For(m.pause.returns+works)

	value := h.policy.terms.valueOf(it)
	late := ondemand.LateCost(it, value, moved) - ondemand.LateCost(it, value, stayed)
	s.saves = s.money - value.For(moved.Sub(stayed)) - late

	return s
}

// worth reports whether a move pays by a margin, also if no more is left than the lower bound of the forecast, and
// does not delay the job by too much.
func (h *homeward) worth(m *move, least saving, ratio float64) bool {
	t, a := &h.policy.terms, m.away
	if least.saves <= least.stay.Times(t.Margin) || m.delay > t.maxDelay(a.run.Item, a.left.mid) {
		return false
	}

	return h.meetsDeadline(m, ratio)
}

// meetsDeadline reports whether a job that moves still meets a deadline that it would meet where it is, also by the
// upper bound of its forecast.
func (h *homeward) meetsDeadline(m *move, ratio float64) bool {
	a := m.away

	deadline := a.run.Outlook.Deadline
	if deadline.IsZero() || h.view.Now.Add(a.left.high).After(deadline) {
		return true
	}

	return !h.view.Now.Add(m.pause.total() + scaled(a.left.high, ratio)).After(deadline)
}

// scaled returns how long something takes that is so much faster.
func scaled(d time.Duration, ratio float64) time.Duration { return job.Seconds(d.Seconds() / ratio) }

// take enters a move into the timeline and adds it to the plan.
func (h *homeward) take(m *move, reason string) {
	r := m.away.run
	h.onLine += r.Outlook.Saved.Size

	for i, at := range m.rooms {
		h.policy.timeline.Start(at, m.start[i].GPUs, &r.Shape.Need, m.pause.total()+m.left)
	}

	h.plan.Stops = append(h.plan.Stops, place.Stop{Running: r, Reason: reason, Kind: place.Move})
	h.plan.Starts = append(h.plan.Starts, place.Start{Item: r.Item, Allocations: m.start, Reason: reason})
}
