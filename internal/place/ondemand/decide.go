package ondemand

import (
	"math/bits"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/place"
	"trainyard/internal/place/timeline"
	"trainyard/internal/provision"
	"trainyard/internal/queue"
	"trainyard/internal/tenant"
)

// decider decides for which jobs that a plan leaves in the queue nodes are provisioned.
//
// It follows the queue in its order. For each job it looks up when a node of the yard will be
// free for it, behind the jobs before it, and compares that with the best offer.
type decider struct {
	*Policy
	view   *place.View
	plan   *place.Plan
	leased map[id.Job]*leased
	placed map[id.Job]bool // what the plan starts
	shapes map[*queue.Shape]*shape
	claims *place.Claims // what the plan takes of quotas, budgets and limits on nodes
	parts  *Parts        // of nodes that are being provisioned

	uncounted int // visits of the timeline to find out what would have been done otherwise
}

// shape is what is known of all jobs with one need.
type shape struct {
	timeline.Shape
}

// maxVisits bounds how many nodes a round looks at for jobs that wait.
const maxVisits = 1 << 16

func newDecider(p *Policy, v *place.View, plan *place.Plan, jobs map[id.Job]*leased) *decider {
	if p.catalogue == nil || !p.catalogue.IsOf(v.Offers) {
		p.catalogue = NewCatalogue(v.Offers)
	}

	p.patiences.Forget(v.Queue)
	p.timeline.Update(timeline.Snapshot{
		Now: v.Now, Rooms: v.Rooms, Changes: v.Changes, Past: v.Past, Guess: p.terms.Guess,
	})

	d := &decider{
		Policy: p, view: v, plan: plan, leased: jobs, placed: map[id.Job]bool{}, shapes: map[*queue.Shape]*shape{},
		claims: place.NewClaims(v), parts: NewParts(v),
	}

	d.dedicate()

	for _, l := range v.Leases {
		if j := jobs[l.Job]; j != nil && j.item != nil && j.leases[0] == l { // once for each job
			d.parts.Add(j.item, &l.Offer)
		}
	}

	return d
}

// dedicate keeps the nodes of jobs with leases out of the way of others.
func (d *decider) dedicate() {
	for name, j := range d.leased {
		for _, at := range j.ready(d.view) {
			d.timeline.Dedicate(int32(at), name)
		}
	}
}

// enter enters the stops and starts of the plan into the timeline.
func (d *decider) enter() {
	d.enterStops()

	for i := range d.plan.Starts {
		d.enterStart(&d.plan.Starts[i])
	}
}

// enterStops enters the stops of the plan.
func (d *decider) enterStops() {
	for i := range d.plan.Stops {
		r := d.plan.Stops[i].Running
		for _, a := range r.Allocations {
			at, ok := d.timeline.Find(a.Node)
			if !ok {
				continue
			}

			gpus := a.GPUs
			if a.Share > 0 { // others may still use the rest of it
				gpus = 0
			}

			d.timeline.Vacate(at, r.Job, gpus, &r.Shape.Need)
		}
	}
}

// enterStart enters a start.
func (d *decider) enterStart(s *place.Start) {
	d.placed[s.Item.Job] = true
	gpus := 0

	for _, a := range s.Allocations {
		gpus += bits.OnesCount64(a.GPUs)

		at, ok := d.timeline.Find(a.Node)

		switch need := &s.Item.Shape.Need; {
		case !ok:
		case a.Share > 0:
			d.timeline.StartPart(at, a.GPUs, place.CutOf(s.Item, a.Share), need, d.lasts(s.Item))
		default:
			d.timeline.Start(at, a.GPUs&d.timeline.Free(at).GPUs, need, d.lasts(s.Item))
		}
	}

	d.claims.Start(s.Item, gpus)
}

// decide goes through the queue.
func (d *decider) decide(stop func() bool) {
	walk := d.view.Queue.Walk(d.view.UsageOf)

	every := func(*queue.Shape) bool { return true }
	for it := walk.Next(every); it != nil; it = walk.Next(every) {
		if stop != nil && stop() {
			wake(d.plan, d.view.Now, d.view.Now.Add(time.Second))
			return
		}

		if !d.placed[it.Job] && d.leased[it.Job] == nil {
			d.consider(it)
		}
	}
}

// consider decides about one job: to wait for a node of the yard, or to provision nodes for it.
func (d *decider) consider(it *queue.Item) {
	a := d.claims.Allow(it)
	if a.HoldReason != "" {
		return
	}

	if !a.NoProvisioning {
		if of := d.parts.Take(it); of != "" {
			d.noteWait(it, WhyParts(of))
			return
		}
	}

	w := d.waitingFor(it)
	s := w.shape
	offer, ok := d.offer(w, &a, d.catalogue.First)

	overdue := d.view.Now.Sub(w.since) > w.longest(&d.terms)
	if len(s.Able) > 0 && d.timeline.Visits()-d.uncounted > maxVisits && !overdue {
		return // it is not known how long it would wait; those before it are decided first
	}

	c := d.choose(w, &a, &offer, ok)
	if c.offer != nil {
		d.provision(w, c.offer, d.insteadOfProvisioning(w, &a, &c))
		return
	}

	if ok {
		d.deferral(w, &a, &c, &offer)
		wake(d.plan, d.view.Now, w.since.Add(w.longest(&d.terms)))
	}

	if c.found && c.own.startsIn > 0 {
		for _, at := range c.own.rooms {
			d.timeline.Reserve(at, c.own.startsIn, s.Takes, c.own.runs)
		}
	}
}

// noteWait says why a job waits.
func (d *decider) noteWait(it *queue.Item, reason string) {
	if len(d.plan.Waits) < place.MaxWaits {
		d.plan.Waits = append(d.plan.Waits, place.Wait{Job: it.Job, Reason: reason})
	}
}

// waitingFor returns what is known of a queued job.
func (d *decider) waitingFor(it *queue.Item) *waiting {
	return &waiting{
		item: it, shape: d.shapeOf(it), since: since(it, d.view.Now), value: d.terms.ValueOf(it),
		costSensitive: it.Spec != nil && it.Spec.Objective == job.ObjectiveCost,
	}
}

// choice is what is decided about a job: to wait for nodes of the yard, or to provision nodes.
type choice struct {
	own   option // the best nodes of the yard
	found bool   // there are such
	offer *provision.Option
}

// choose compares an offer with waiting; offered says whether there is an offer.
func (d *decider) choose(w *waiting, a *tenant.Allowance, offer *provision.Option, offered bool) choice {
	limit := timeline.Never
	if offered {
		limit = d.limit(w, offer)
	}

	var c choice
	c.own, c.found = d.soonest(w, a, offer, limit)
	if offered && (!c.found || !c.own.worthWaiting(w, d)) {
		c.offer = offer
	}

	return c
}

// waiting is a queued job that a plan leaves in the queue.
type waiting struct {
	item          *queue.Item
	shape         *shape
	since         time.Time
	value         money.PerHour // of an hour of its time
	costSensitive bool
	patience      Patience
	provisioning  money.Amount // what provisioning costs, in money and in time at its value
}

// longest returns how long the job waits before nodes are provisioned for it in any case.
func (w *waiting) longest(t *Terms) time.Duration {
	if w.costSensitive {
		return t.Patience
	}

	return w.patience.Most()
}

// option is a way to run a job on nodes that are there.
type option struct {
	rooms    []int32
	startsIn time.Duration // 0 if the nodes are free and the policy does not use them for the job
	readyIn  time.Duration // with the staging of its data
	runs     time.Duration
	score    money.Amount
}

// search finds the best way to provision nodes for a need.
type search func(*fleet.Need, *provision.Query) (provision.Option, bool)

// offer returns the best way to provision nodes for a job, and whether there is one that its
// quotas and its budget allow.
func (d *decider) offer(w *waiting, a *tenant.Allowance, first search) (provision.Option, bool) {
	need := &w.item.Shape.Need
	if !fleet.OnDemand.Allows(need.Place) {
		return provision.Option{}, false
	}

	q := Query(d.view, w.item, Length{
		Lasts: d.lasts(w.item), HourValue: w.value, Setup: d.terms.Setup,
	})

	best, ok := first(need, &q)
	if !ok {
		return best, false
	}

	if !w.costSensitive {
		var known bool
		w.patience, known = d.patiences.Known(w.item)
		if !known {
			w.patience = d.patiences.Add(w.item, best.Money, w.value)
		}
	}

	done := best.Finish.Sub(d.view.Now)
	w.provisioning = best.Money + w.value.For(done) + LateCost(w.item, w.value, best.Finish)

	return best, Barred(d.claims, a, need, &best, best.Money) == ""
}

// limit returns how long from now a job waits at most for a node of the yard.
func (d *decider) limit(w *waiting, o *provision.Option) time.Duration {
	waited := d.view.Now.Sub(w.since)
	if w.costSensitive {
		return max(d.terms.Patience-waited, 0)
	}

	return w.patience.Limit(waited, o.Start.Sub(d.view.Now))
}

// soonest returns the best way to run a job on nodes that are there, now or until limit.
func (d *decider) soonest(
	w *waiting, a *tenant.Allowance, offer *provision.Option, limit time.Duration,
) (option, bool) {
	var best option
	found := false
	able := make([]*timeline.Pool, 0, len(w.shape.Able))
	try := func(pools ...*timeline.Pool) {
		o, ok := d.onPools(w, limit, pools)
		if !ok {
			return
		}

		d.score(w, &o, offer)
		if !found || o.score < best.score {
			best, found = o, true
		}
	}

	for _, pool := range w.shape.Able {
		if pool.Class != fleet.OnDemand || !a.NoProvisioning {
			able = append(able, pool)
			try(pool)
		}
	}

	if need := &w.item.Shape.Need; need.Nodes > 1 && len(able) > 1 && !need.SameGPU {
		try(able...)
	}

	return best, found
}

// onPools returns the soonest way to run a job on nodes of some pools, of several only for a job
// on several nodes. Nodes that are free now and that the policy does not use for the job count
// until it has waited for too long.
func (d *decider) onPools(w *waiting, limit time.Duration, pools []*timeline.Pool) (option, bool) {
	o := option{}
	for _, pool := range pools { // the slowest node decides
		o.runs = max(o.runs, d.runs(w, pool))
	}

	q := timeline.Request{Shape: &w.shape.Shape, Job: w.item.Job, Lasts: o.runs, Tightest: true}

	o.rooms = d.timeline.FitNowAcross(&q, pools...)
	if o.rooms != nil {
		return o, limit == timeline.Never || d.view.Now.Sub(w.since) <= w.longest(&d.terms)
	}

	if len(pools) > 1 {
		o.rooms, o.startsIn = d.timeline.EarliestAcross(&q, limit, pools...)
	} else {
		o.rooms, o.startsIn = d.timeline.Earliest(&q, pools[0], limit)
	}

	return o, o.rooms != nil
}

// score sets what an option costs in all: money, and time at its value.
func (d *decider) score(w *waiting, o *option, offer *provision.Option) {
	need := &w.item.Shape.Need
	node := d.view.Rooms[o.rooms[0]].Node

	staging, cost := d.view.Stage(w.item, node)
	o.readyIn = o.startsIn + staging
	done := o.readyIn + o.runs
	gpus := float64(max(need.GPUs, 1) * need.Nodes)
	if need.Share > 0 {
		gpus = need.Share
	}

	energy := EnergyRate(d.view.Tariff, node).Of(gpus)

	o.score = cost + energy.For(o.runs) + w.value.For(done) +
		LateCost(w.item, w.value, d.view.Now.Add(done))

	if l := d.leaseOf(node); l != nil { // it is kept for as long as the job runs
		o.score += l.Offer.PerHour().Times(float64(need.Nodes)).For(done - o.startsIn)
	}

	if w.patience.Share > 0 && offer.Offer != nil {
		excess := min(max(o.startsIn-offer.Start.Sub(d.view.Now), 0), timeline.Never/2)
		o.score += w.value.Times(1/w.patience.Share - 1).For(excess)
	}
}

// worthWaiting reports whether waiting for an option costs no more than provisioning nodes. A
// cost-sensitive job waits for whatever is free within its patience.
func (o *option) worthWaiting(w *waiting, d *decider) bool {
	if w.costSensitive {
		return o.startsIn+d.view.Now.Sub(w.since) <= d.terms.Patience
	}

	return o.score <= w.provisioning
}

// provision adds nodes for a job to the plan.
func (d *decider) provision(w *waiting, o *provision.Option, instead *place.Counterfactual) {
	d.plan.Provisions = append(d.plan.Provisions, place.Provision{
		Item: w.item, Offer: o.Offer.Name, Count: o.Nodes, Cost: o.Money,
		Reason: Reason(d.view, w.item, o), Counterfactual: instead,
	})
	d.claims.Provision(&d.plan.Provisions[len(d.plan.Provisions)-1])
	d.parts.Add(w.item, o.Offer)
}

// leaseOf returns the lease of a provisioned node, nil if it is none.
func (d *decider) leaseOf(n *fleet.Node) *fleet.Lease {
	if n.Lease == "" {
		return nil
	}

	at := slices.IndexFunc(d.view.Leases, func(l *fleet.Lease) bool { return l.ID == n.Lease })
	if at < 0 {
		return nil
	}

	return d.view.Leases[at]
}

// lasts returns how long a job lasts: as is expected of it, or as earlier ones of its owner did.
func (d *decider) lasts(it *queue.Item) time.Duration {
	if it.Lasts > 0 {
		return it.Lasts
	}

	if past, ok := d.view.Past.Estimate(queue.KinOf(it)); ok {
		return past.Mean
	}

	return d.terms.Guess
}

// runs returns how long a job runs on nodes of a pool.
func (d *decider) runs(w *waiting, pool *timeline.Pool) time.Duration {
	need := &w.item.Shape.Need

	var gpu *fleet.GPU
	if all := pool.Sample.Node.Inventory.GPUs; len(all) > 0 && need.MaxGPUs > 0 {
		gpu = &all[0]
	}

	if need.Share > 0 {
		return place.RunTimeOnPart(w.item, d.lasts(w.item), gpu, need.Share)
	}

	return place.RunTimeOf(w.item, d.lasts(w.item), gpu, need.GPUs*need.Nodes, need.Nodes)
}

// shapeOf returns what is known of a job's need: which pools could run it.
func (d *decider) shapeOf(it *queue.Item) *shape {
	if s, ok := d.shapes[it.Shape]; ok {
		return s
	}

	s := &shape{}
	d.timeline.Compare(&s.Shape, &it.Shape.Need)
	d.shapes[it.Shape] = s

	return s
}
