package andreas

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/humanize"
	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/place"
	"trainyard/internal/place/andreas/problem"
	"trainyard/internal/place/ondemand"
	"trainyard/internal/queue"
)

// leaveOwn takes queued tasks off the yard's own nodes if they cost less on an offer, rent and
// lateness together, and gives their GPUs to others.
func (y *planner) leaveOwn() {
	left := false
	for i := range y.Tasks {
		t := &y.Tasks[i]
		if t.OnOffer == nil || t.Assigned < 0 || t.OnOffer.Total() >= y.ownTotal(t, t.Assigned, 0) {
			continue
		}

		y.Unassign(t)
		t.Leaves = true
		left = true
	}

	if left {
		y.climb(nil)
	}
}

// ownTotal returns what a task costs with a candidate that it gets after a wait: its GPUs, and
// being late.
func (y *planner) ownTotal(t *problem.Task, at int, wait float64) money.Amount {
	o := &t.Candidates[at]

	return o.Cost + y.LateCostAt(t, wait+o.Duration)
}

// provision adds nodes to a plan for the tasks that cost less on an offer than on any node of the
// yard, now or when one will be free. It goes by deadline, and those who wait keep what they
// wait for.
func (y *planner) provision(plan *place.Plan) {
	if len(y.View.Offers) == 0 {
		return
	}

	waiting := make([]int32, 0, len(y.Tasks))
	for i := range y.Tasks {
		if t := &y.Tasks[i]; t.Running == nil && len(t.Seats) == 0 {
			waiting = append(waiting, int32(i))
		}
	}

	slices.SortStableFunc(waiting, func(a, b int32) int {
		x, z := &y.Tasks[a], &y.Tasks[b]
		if x.HasDeadline && z.HasDeadline {
			return cmp.Compare(x.Slack, z.Slack)
		}

		return cmp.Or(cmp.Compare(bit(z.HasDeadline), bit(x.HasDeadline)), cmp.Compare(x.QueueRank, z.QueueRank))
	})

	f := newFreeing(y)
	claims := place.NewClaims(y.View)
	for i := range plan.Starts {
		claims.Start(plan.Starts[i].Item, gpusOf(plan.Starts[i].Allocations))
	}

	for _, i := range waiting {
		t := &y.Tasks[i]
		at, wait, rooms := f.best(t)
		own := money.Amount(math.Inf(1))
		if at >= 0 {
			own = y.ownTotal(t, at, wait)
		}

		if o := t.OnOffer; o != nil && o.Total() < own && (o.Booting || y.mayProvision(t, claims)) {
			if !o.Booting {
				plan.Provisions = append(plan.Provisions, y.provisionFor(t, at, wait))
				claims.Provision(&plan.Provisions[len(plan.Provisions)-1])
			}

			continue
		}

		if at >= 0 {
			f.reserve(t, at, wait, rooms)

			if t.OnOffer != nil && wait > 0 { // if nothing is free then, it is decided anew
				next := y.Now.Add(job.Seconds(wait) + time.Second)
				if plan.WakeAt.IsZero() || next.Before(plan.WakeAt) {
					plan.WakeAt = next
				}
			}
		}
	}
}

func bit(b bool) int {
	if b {
		return 1
	}

	return 0
}

// gpusOf counts the GPUs of allocations.
func gpusOf(allocations []place.Allocation) int {
	n := 0
	for _, a := range allocations {
		n += bits.OnesCount64(a.GPUs)
	}

	return n
}

// mayProvision reports whether a task's limits allow its offer beside what the plan claims already.
func (y *planner) mayProvision(t *problem.Task, claims *place.Claims) bool {
	allow := claims.Allow(t.Item)
	need := &t.Item.Shape.Need

	return ondemand.Barred(claims, &allow, need, &t.OnOffer.Option, t.OnOffer.Money) == ""
}

// provisionFor provisions the nodes of a task's offer. at is the candidate on own nodes that it
// would wait for, -1 if there is none.
func (y *planner) provisionFor(t *problem.Task, at int, wait float64) place.Provision {
	o := t.OnOffer
	reason := fmt.Sprintf("provisions %s: est. finish %s, est. cost %s", ondemand.Describe(&o.Option),
		humanize.Time(o.Finish, y.Now.UTC()), y.offerCost(o.Cost, o.Late))

	if at < 0 {
		reason += "; no node of the yard can run it"
	} else {
		c := &t.Candidates[at]
		late := y.LateCostAt(t, wait+c.Duration)
		reason += fmt.Sprintf("; alternative: %s, est. finish %s, est. cost %s", y.Describe(c),
			humanize.Time(y.Now.Add(job.Seconds(wait+c.Duration)), y.Now.UTC()), y.offerCost(c.Cost, late))
	}

	return place.Provision{
		Item: t.Item, Offer: o.Offer.Name, Count: o.Option.Nodes, Cost: o.Money, Reason: reason,
	}
}

// offerCost describes the cost of nodes and of being late.
func (y *planner) offerCost(cost, late money.Amount) string {
	if late <= 0 {
		return humanize.Dollars(cost)
	}

	return humanize.Dollars(cost) + " and late cost " + humanize.Dollars(late)
}

// freeing knows when what is on the nodes under a plan will be free.
type freeing struct {
	y     *planner
	rooms [][]use // by room: what is held there, by end
}

// use is what a job holds in a room until its end.
type use struct {
	until  float64 // seconds from now
	gpus   int
	cpus   job.CPUs
	memory job.Bytes
}

func newFreeing(y *planner) *freeing {
	f := &freeing{y: y, rooms: make([][]use, len(y.Rooms))}
	tasks := map[*queue.Item]bool{}
	for i := range y.Tasks {
		t := &y.Tasks[i]
		tasks[t.Item] = true

		if t.Assigned < 0 {
			continue
		}

		for k, at := range t.Positions {
			f.hold(at, t, t.Candidates[t.Assigned].Duration, bits.OnesCount64(t.Seats[k].GPUs))
		}
	}

	for _, r := range y.View.Running {
		if tasks[r.Item] {
			continue
		}

		ends := y.EndOf(r).Sub(y.Now).Seconds()
		for _, a := range r.Allocations {
			if at := y.Find(a.Node); at >= 0 {
				f.add(int32(at), use{ends, bits.OnesCount64(a.GPUs), r.Shape.Need.CPUs, r.Shape.Need.Memory})
			}
		}
	}

	return f
}

// hold enters that a task has GPUs of a room until it ends.
func (f *freeing) hold(at int32, t *problem.Task, until float64, gpus int) {
	need := &t.Item.Shape.Need
	f.add(at, use{until, gpus, need.CPUs, need.Memory})
}

func (f *freeing) add(at int32, u use) {
	list := f.rooms[at]
	i, _ := slices.BinarySearchFunc(list, u.until, func(x use, until float64) int { return cmp.Compare(x.until, until) })
	f.rooms[at] = slices.Insert(list, i, u)
}

// from returns when a room has so many GPUs free for a task, in seconds, infinity if never.
func (f *freeing) from(at int32, match *fleet.Matcher, gpus int) float64 {
	r := &f.y.Rooms[at]
	if !r.Open || !match.Eligible(r) || bits.OnesCount64(match.MatchingGPUs(r)) < gpus {
		return math.Inf(1)
	}

	need := &match.Need
	free := use{0, bits.OnesCount64(r.Sound), r.Node.Inventory.CPUs, r.Node.Inventory.Memory}
	for _, u := range f.rooms[at] {
		free.gpus -= u.gpus
		free.cpus -= u.cpus
		free.memory -= u.memory
	}

	fits := func() bool { return free.gpus >= gpus && free.cpus >= need.CPUs && free.memory >= need.Memory }
	if fits() {
		return 0
	}

	for _, u := range f.rooms[at] {
		free.gpus += u.gpus
		free.cpus += u.cpus
		free.memory += u.memory

		if fits() {
			return u.until
		}
	}

	return math.Inf(1)
}

// best returns the candidate of a task with the lowest total on nodes of the yard, how long it
// waits for that, and its rooms; -1 if it has none.
func (f *freeing) best(t *problem.Task) (at int, wait float64, rooms []int32) {
	at = -1
	least := money.Amount(math.Inf(1))

	match := f.y.ShapeOf(t.Item.Shape).Match
	for k := range t.Candidates {
		w, list := f.soonest(&t.Candidates[k], match)
		if math.IsInf(w, 1) {
			continue
		}

		if total := f.y.ownTotal(t, k, w); at < 0 || total < least {
			at, wait, rooms, least = k, w, list, total
		}
	}

	return at, wait, rooms
}

// soonest returns when a candidate's nodes are free together, and their rooms.
func (f *freeing) soonest(o *problem.Candidate, match *fleet.Matcher) (float64, []int32) {
	type free struct {
		at   int32
		when float64
	}

	list := make([]free, 0, len(f.y.Kinds[o.Kind].Rooms))
	for _, at := range f.y.Kinds[o.Kind].Rooms {
		if when := f.from(at, match, o.On(0)); !math.IsInf(when, 1) {
			list = append(list, free{at, when})
		}
	}

	if len(list) < int(o.Nodes) {
		return math.Inf(1), nil
	}

	slices.SortStableFunc(list, func(a, b free) int { return cmp.Compare(a.when, b.when) })

	rooms := make([]int32, o.Nodes)
	for i := range rooms {
		rooms[i] = list[i].at
	}

	return list[o.Nodes-1].when, rooms
}

// reserve keeps what a task waits for.
func (f *freeing) reserve(t *problem.Task, at int, wait float64, rooms []int32) {
	o := &t.Candidates[at]
	for i, room := range rooms {
		f.hold(room, t, wait+o.Duration, o.On(i))
	}
}
