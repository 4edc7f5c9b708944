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
func (y *planner) provision(plan *place.Plan, f *freeing, claims *place.Claims) {
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

	for _, i := range waiting {
		t := &y.Tasks[i]
		own := f.best(t, nil)
		may := t.OnOffer != nil && (t.OnOffer.Booting || y.mayProvision(t, claims))

		if may && t.OnOffer.Total() < y.waitTotal(t, &own) {
			if !t.OnOffer.Booting {
				plan.Provisions = append(plan.Provisions, y.provisionFor(t, &own))
				claims.Provision(&plan.Provisions[len(plan.Provisions)-1])
			}

			continue
		}

		if own.at < 0 {
			continue
		}

		if may && !t.OnOffer.Booting && !t.Item.Deferred {
			plan.Deferrals = append(plan.Deferrals, y.deferral(t, f, &own))
		}

		f.reserve(t, &own)

		if t.OnOffer != nil && own.wait > 0 { // if nothing is free then, it is decided anew
			next := y.Now.Add(job.Seconds(own.wait) + time.Second)
			if plan.WakeAt.IsZero() || next.Before(plan.WakeAt) {
				plan.WakeAt = next
			}
		}
	}
}

// claimsOf returns what the starts of a plan take of quotas and limits.
func (y *planner) claimsOf(plan *place.Plan) *place.Claims {
	claims := place.NewClaims(y.View)
	for i := range plan.Starts {
		claims.Start(plan.Starts[i].Item, gpusOf(plan.Starts[i].Allocations))
	}

	return claims
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

// provisionFor provisions the nodes of a task's offer. own is what it would wait for.
func (y *planner) provisionFor(t *problem.Task, own *later) place.Provision {
	o := t.OnOffer
	reason := fmt.Sprintf("provisions %s: est. finish %s, est. cost %s", ondemand.Describe(&o.Option),
		humanize.Time(o.Finish, y.Now.UTC()), y.offerCost(o.Cost, o.Late))

	if own.at < 0 {
		reason += "; no node of the yard can run it"
	} else {
		c := &t.Candidates[own.at]
		late := y.LateCostAt(t, own.wait+c.Duration)
		reason += fmt.Sprintf("; alternative: %s, est. finish %s, est. cost %s", y.Describe(c),
			humanize.Time(y.Now.Add(job.Seconds(own.wait+c.Duration)), y.Now.UTC()), y.offerCost(c.Cost, late))
	}

	return place.Provision{
		Item: t.Item, Offer: o.Offer.Name, Count: o.Option.Nodes, Cost: o.Money, Reason: reason,
		Counterfactual: y.insteadOfProvisioning(t, own),
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

// later is a candidate of a task on nodes of the yard, now or when they will be free.
type later struct {
	at    int     // index of the candidate, -1 if there is none
	wait  float64 // seconds until its nodes are free
	rooms []int32
}

// waitTotal returns what a task costs if it waits, infinity if there is nothing to wait for.
func (y *planner) waitTotal(t *problem.Task, l *later) money.Amount {
	if l.at < 0 {
		return money.Amount(math.Inf(1))
	}

	return y.ownTotal(t, l.at, l.wait)
}

// best returns the candidate of a task with the lowest total on nodes of the yard, without some rooms.
func (f *freeing) best(t *problem.Task, without []int32) later {
	best := later{at: -1}
	match := f.y.ShapeOf(t.Item.Shape).Match

	for k := range t.Candidates {
		w, list := f.soonest(&t.Candidates[k], match, without)
		if math.IsInf(w, 1) {
			continue
		}

		l := later{k, w, list}
		if best.at < 0 || f.y.waitTotal(t, &l) < f.y.waitTotal(t, &best) {
			best = l
		}
	}

	return best
}

// soonest returns when a candidate's nodes are free together, and their rooms.
func (f *freeing) soonest(o *problem.Candidate, match *fleet.Matcher, without []int32) (float64, []int32) {
	type free struct {
		at   int32
		when float64
	}

	list := make([]free, 0, len(f.y.Kinds[o.Kind].Rooms))
	for _, at := range f.y.Kinds[o.Kind].Rooms {
		if slices.Contains(without, at) {
			continue
		}

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
func (f *freeing) reserve(t *problem.Task, l *later) {
	o := &t.Candidates[l.at]
	for i, room := range l.rooms {
		f.hold(room, t, l.wait+o.Duration, o.On(i))
	}
}
