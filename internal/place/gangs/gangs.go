// Package gangs lets policies that keep a job on nodes of one kind run gangs that no one kind can
// hold: jobs on several nodes that only unlike nodes can run together.
//
// Such a policy plans as it always does, and the gangs get what it leaves: one starts when enough
// of the nodes that it could use are free. The first in the queue does not depend on that. The
// nodes that will be free for it soonest are closed to all other jobs until it starts, as nodes
// that are drained are. A gang on unlike nodes runs at the speed of the slowest and is not
// changed until it ends.
package gangs

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/place"
	"trainyard/internal/queue"
)

// Kind is what the policy takes for one kind of node. Nodes with the same Kind are alike.
type Kind struct {
	GPU   int32
	Class fleet.Class
	Node  id.Node // of a node that is alike none
}

// KindOf returns the kind of a node for a job.
type KindOf func(*fleet.Need, *fleet.Room) Kind

// ByGPU tells nodes apart by their GPUs. To a job without GPUs all nodes are alike.
func ByGPU(need *fleet.Need, r *fleet.Room) Kind {
	k := ByGPUAndClass(need, r)
	if need.MaxGPUs == 0 {
		return Kind{}
	}

	k.Class = ""

	return k
}

// ByGPUAndClass tells nodes apart by their GPUs and their class.
func ByGPUAndClass(_ *fleet.Need, r *fleet.Room) Kind {
	k := Kind{GPU: r.Kind, Class: r.Node.Class}
	if r.Kind < 0 && len(r.Node.Inventory.GPUs) > 0 {
		k.Node = r.Node.ID
	}

	return k
}

// Admitter is a policy with conditions of its own on what may run together.
type Admitter interface {
	// Bars says which condition keeps a job from starting on allocations together with a plan, ""
	// if none does.
	Bars(v *place.View, p *place.Plan, it *queue.Item, allocations []place.Allocation) string
}

// Policy is a policy that also runs gangs on unlike nodes.
type Policy struct {
	inner  place.Policy
	kindOf KindOf
}

var (
	_ place.Searcher    = Policy{}
	_ place.Provisioner = Policy{}
	_ place.Rehearser   = Policy{}
)

// Wrap returns a policy that does what another does and runs gangs on unlike nodes.
func Wrap(p place.Policy, of KindOf) Policy { return Policy{p, of} }

// Rehearsal returns the same around a rehearsal of the policy.
func (p Policy) Rehearsal() place.Policy { return Policy{place.Rehearsal(p.inner), p.kindOf} }

// Name returns the name of the policy in the configuration.
func (p Policy) Name() string { return p.inner.Name() }

// Revises reports whether the policy also changes running jobs.
func (p Policy) Revises() bool { return p.inner.Revises() }

// Plan returns the plan of the policy, with gangs on unlike nodes.
func (p Policy) Plan(v *place.View) place.Plan { return p.Search(v, nil) }

// Slow reports whether the policy plans outside the loop.
func (p Policy) Slow() bool { return place.IsSlow(p.inner) }

// Provisions reports whether the policy decides itself what to provision.
func (p Policy) Provisions(v *place.View) bool {
	o, ok := p.inner.(place.Provisioner)
	return ok && o.Provisions(v)
}

// Refuses says with what the policy cannot work.
func (p Policy) Refuses(f place.Feature) string {
	if r, ok := p.inner.(place.Refuser); ok {
		return r.Refuses(f)
	}

	return ""
}

// KeepsAlike reports that jobs are kept on one kind of node where one can hold them, and those with same_gpu always.
func (p Policy) KeepsAlike() bool { return true }

// Shares reports whether the policy lets jobs share GPUs.
func (p Policy) Shares() bool { return place.Shares(p.inner) }

// Search is Plan with a time limit.
func (p Policy) Search(v *place.View, stop func() bool) place.Plan {
	r := &round{policy: p, view: v, spans: map[*queue.Shape]bool{}, matchers: map[*queue.Shape]*fleet.Matcher{}}
	inner := r.withoutSpanning()
	gangs := r.gangs()

	first := r.first(gangs)
	if first != nil && !r.keep(first) {
		first = nil
	}

	if first != nil {
		inner.Rooms, inner.Bands = slices.Clone(inner.Rooms), nil // the bands are of the rooms as they were
		for _, at := range r.kept {
			inner.Rooms[at].Open = false
		}
	}

	plan := place.Within(p.inner, inner, stop)
	if len(gangs) > 0 {
		r.start(&plan, first, gangs)
	}

	return plan
}

// round is the state of one plan.
type round struct {
	policy   Policy
	view     *place.View
	spans    map[*queue.Shape]bool
	matchers map[*queue.Shape]*fleet.Matcher
	kept     []int     // rooms that are closed to others for the first gang
	freeAt   time.Time // when all of them are free; zero if unknown
	free     []fleet.Room
}

// withoutSpanning returns the view without the running gangs on unlike nodes, so that the policy
// leaves them alone. What they hold stays held. An Admitter sees them, because they count for
// its conditions, and must leave them alone itself.
func (r *round) withoutSpanning() *place.View {
	v := *r.view
	if _, ok := r.policy.inner.(Admitter); ok {
		return &v
	}

	if slices.ContainsFunc(v.Running, r.isSpanning) {
		v.Running = slices.DeleteFunc(slices.Clone(v.Running), r.isSpanning)
	}

	return &v
}

// isSpanning reports whether a job runs on unlike nodes.
func (r *round) isSpanning(run *place.Running) bool {
	if len(run.Allocations) < 2 {
		return false
	}

	var first Kind
	for i, a := range run.Allocations {
		at, found := r.find(a.Node)
		if !found {
			return false
		}

		k := r.policy.kindOf(&run.Shape.Need, &r.view.Rooms[at])
		if i > 0 && k != first {
			return true
		}

		first = k
	}

	return false
}

func (r *round) find(n id.Node) (int, bool) {
	return slices.BinarySearchFunc(r.view.Rooms, n, func(room fleet.Room, n id.Node) int {
		return cmp.Compare(room.Node.ID, n)
	})
}

// gangs lists the queued jobs that only unlike nodes can run, in the order of the queue.
func (r *round) gangs() []*queue.Item {
	var list []*queue.Item
	walk := r.view.Queue.Walk(r.view.UsageOf)
	for len(list) < maxGangs {
		it := walk.Next(r.needsUnlike)
		if it == nil {
			break
		}

		list = append(list, it)
	}

	return list
}

// maxGangs bounds how many gangs are considered in one plan.
const maxGangs = 256

// needsUnlike reports whether only unlike nodes can run the jobs of a shape.
func (r *round) needsUnlike(s *queue.Shape) bool {
	if s.Need.Nodes < 2 || s.Need.SameGPU {
		return false
	}

	spans, known := r.spans[s]
	if !known {
		all, alike := r.suitable(s)
		spans = all >= s.Need.Nodes && alike < s.Need.Nodes
		r.spans[s] = spans
	}

	return spans
}

// suitable counts the open nodes that could run a rank if they were empty, and how many of them at
// most are alike.
func (r *round) suitable(s *queue.Shape) (all, alike int) {
	m := r.matcher(s)
	kinds := map[Kind]int{}
	for i := range r.view.Rooms {
		if room := &r.view.Rooms[i]; room.Open && m.Eligible(room) {
			k := r.policy.kindOf(&s.Need, room)
			kinds[k]++
			all++
			alike = max(alike, kinds[k])
		}
	}

	return all, alike
}

func (r *round) matcher(s *queue.Shape) *fleet.Matcher {
	m := r.matchers[s]
	if m == nil {
		m = fleet.NewMatcher(s.Need)
		r.matchers[s] = m
	}

	return m
}

// first returns the first of the gangs by priority and submission if no other job that could run is
// before it, otherwise nil.
func (r *round) first(gangs []*queue.Item) *queue.Item {
	if len(gangs) == 0 {
		return nil
	}

	first := slices.MinFunc(gangs, compareItems)
	possible := map[*queue.Shape]bool{}
	for _, it := range r.view.Queue.Items() {
		if compareItems(it, first) >= 0 {
			continue
		}

		can, known := possible[it.Shape]
		if !known {
			all, _ := r.suitable(it.Shape)
			can = all >= it.Shape.Need.Nodes
			possible[it.Shape] = can
		}

		if can {
			return nil
		}
	}

	return first
}

func compareItems(a, b *queue.Item) int {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Number, b.Number))
}

// keep chooses the nodes that are kept for the first gang: those that will be free for it soonest.
// It reports false if the policy would not let it start there even if nobody else started.
func (r *round) keep(it *queue.Item) bool {
	type choice struct {
		at    int
		after time.Duration
	}

	var list []choice
	m := r.matcher(it.Shape)
	for i := range r.view.Rooms {
		if room := &r.view.Rooms[i]; room.Open && m.Eligible(room) {
			list = append(list, choice{i, r.freeAfter(m, room)})
		}
	}

	slices.SortStableFunc(list, func(a, b choice) int { return cmp.Compare(a.after, b.after) })
	list = list[:it.Shape.Need.Nodes]

	if last := list[len(list)-1].after; last < unknown {
		r.freeAt = r.view.Now.Add(last)
	}

	for _, c := range list {
		r.kept = append(r.kept, c.at)
	}

	slices.Sort(r.kept)

	seats := make([]place.Allocation, 0, len(r.kept))
	for _, at := range r.kept {
		gpus := fleet.LowestGPUs(m.MatchingGPUs(&r.view.Rooms[at]), it.Shape.Need.GPUs)
		seats = append(seats, place.Allocation{Node: r.view.Rooms[at].Node.ID, GPUs: gpus})
	}

	if r.bars(&place.Plan{}, it, seats) != "" {
		r.kept = nil
		return false
	}

	return true
}

// bars says which condition of the policy keeps a gang from starting, "" if none does.
func (r *round) bars(p *place.Plan, it *queue.Item, seats []place.Allocation) string {
	a, ok := r.policy.inner.(Admitter)
	if !ok {
		return ""
	}

	return a.Bars(r.view, p, it, seats)
}

// unknown is later than all ends that are known.
const unknown = 1 << 62

// freeAfter returns how long it takes until a room has enough free for a rank, 0 if it has.
func (r *round) freeAfter(m *fleet.Matcher, of *fleet.Room) time.Duration {
	room := *of
	if _, ok := m.Fits(&room); ok {
		return 0
	}

	after := func(h *fleet.Hold) time.Duration {
		if h.Ends.IsZero() {
			return unknown
		}

		return max(h.Ends.Sub(r.view.Now), time.Second)
	}

	holds := slices.Clone(room.Holds)
	slices.SortStableFunc(holds, func(a, b fleet.Hold) int { return cmp.Compare(after(&a), after(&b)) })

	for i := range holds {
		h := &holds[i]
		if h.Share == 0 {
			room.Free |= h.GPUs & room.Sound
		}

		room.CPUs += h.CPUs
		room.Memory += h.Memory
		if _, ok := m.Fits(&room); ok {
			return after(h)
		}
	}

	return unknown
}

// start adds the gangs to a plan that fit on what it leaves free, and the reservation of the first.
func (r *round) start(p *place.Plan, first *queue.Item, gangs []*queue.Item) {
	r.free = slices.Clone(r.view.Rooms)
	started := map[id.Job]bool{}
	for i := range p.Starts {
		s := &p.Starts[i]
		started[s.Item.Job] = true
		r.take(s.Allocations, &s.Item.Shape.Need)
	}

	if first != nil && !started[first.Job] && !r.startOn(p, first, r.kept) && p.Reservation == nil {
		p.Reservation = &place.Reservation{Job: first.Job, Nodes: r.names(r.kept), At: r.freeAt}
	}

	for _, it := range gangs {
		if it != first && !started[it.Job] {
			r.startOn(p, it, r.unreserved(p, it))
		}
	}
}

// unreserved lists the rooms that a gang may take, those with the fewest free GPUs first.
func (r *round) unreserved(p *place.Plan, it *queue.Item) []int {
	var list []int
	for i := range r.free {
		reserved := p.Reservation != nil && p.Reservation.Job != it.Job &&
			slices.Contains(p.Reservation.Nodes, r.free[i].Node.ID)
		if !reserved && !slices.Contains(r.kept, i) {
			list = append(list, i)
		}
	}

	slices.SortStableFunc(list, func(a, b int) int { return cmp.Compare(freeGPUs(&r.free[a]), freeGPUs(&r.free[b])) })

	return list
}

func freeGPUs(r *fleet.Room) int { return len(fleet.Indices(r.Free)) }

// startOn starts a gang in the first of the given rooms in which it fits. It reports whether there
// are enough.
func (r *round) startOn(p *place.Plan, it *queue.Item, rooms []int) bool {
	need := &it.Shape.Need
	m := r.matcher(it.Shape)
	var seats []place.Allocation

	for _, at := range rooms {
		if fits, ok := m.Fits(&r.free[at]); ok && len(seats) < need.Nodes {
			seats = append(seats, place.Allocation{Node: r.free[at].Node.ID, GPUs: fleet.LowestGPUs(fits, need.GPUs)})
		}
	}

	if len(seats) < need.Nodes {
		return false
	}

	if why := r.bars(p, it, seats); why != "" {
		p.Waits = append(p.Waits, place.Wait{Job: it.Job, Reason: why})
		return false
	}

	r.take(seats, need)
	p.Starts = append(p.Starts, place.Start{Item: it, Allocations: seats, Reason: reason(seats)})

	return true
}

// take subtracts what a start takes from what is free.
func (r *round) take(seats []place.Allocation, need *fleet.Need) {
	for _, a := range seats {
		at, found := r.find(a.Node)
		if !found {
			continue
		}

		room := &r.free[at]
		room.Free &^= a.GPUs
		room.CPUs -= need.CPUs
		room.Memory -= need.Memory
	}
}

func (r *round) names(rooms []int) []id.Node {
	list := make([]id.Node, len(rooms))
	for i, at := range rooms {
		list[i] = r.view.Rooms[at].Node.ID
	}

	return list
}

// reason says why a gang starts where it does.
func reason(seats []place.Allocation) string {
	names := make([]string, 0, len(seats))
	for _, a := range seats {
		names = append(names, string(a.Node))
	}

	if len(names) > 3 {
		names = append(names[:2], humanize.Count(len(seats)-2, "other node"))
	}

	return fmt.Sprintf("%s: free; the yard has too few alike nodes for it, so it runs at the speed of the slowest",
		humanize.List(names...))
}
