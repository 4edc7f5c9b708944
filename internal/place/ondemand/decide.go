package ondemand

import (
	"math"
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
}

// shape is what is known of all jobs with one need.
type shape struct {
	timeline.Shape
	tflops float64 // of one GPU, for which expected run times are meant; 0 if unknown
}

// maxVisits bounds how many nodes a round looks at for jobs that wait.
const maxVisits = 1 << 16

func newDecider(p *Policy, v *place.View, plan *place.Plan, jobs map[id.Job]*leased) *decider {
	if p.catalogue == nil || !p.catalogue.IsOf(v.Offers) {
		p.catalogue = NewCatalogue(v.Offers)
	}

	p.patiences.Forget(v.Queue)
	p.timeline.Update(timeline.Snapshot{Now: v.Now, Rooms: v.Rooms, Past: v.Past, Guess: p.terms.Guess})

	d := &decider{
		Policy: p, view: v, plan: plan, leased: jobs, placed: map[id.Job]bool{}, shapes: map[*queue.Shape]*shape{},
		claims: place.NewClaims(v),
	}

	d.dedicate()
	d.enter()

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

	for i := range d.plan.Starts {
		s := &d.plan.Starts[i]
		d.placed[s.Item.Job] = true
		gpus := 0

		for _, a := range s.Allocations {
			gpus += bits.OnesCount64(a.GPUs)
			if at, ok := d.timeline.Find(a.Node); ok {
				d.timeline.Start(at, a.GPUs&d.timeline.Free(at).GPUs, &s.Item.Shape.Need, d.lasts(s.Item))
			}
		}

		d.claims.Start(s.Item, gpus)
	}
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

	s := d.shapeOf(it)
	w := &waiting{item: it, shape: s, since: since(it, d.view.Now), value: d.terms.ValueOf(it)}
	w.costSensitive = it.Spec != nil && it.Spec.Objective == job.ObjectiveCost

	offer, ok := d.offer(w, &a)
	limit := timeline.Never
	if ok {
		limit = d.limit(w, &offer)
	}

	overdue := d.view.Now.Sub(w.since) > w.longest(&d.terms)
	if len(s.Able) > 0 && d.timeline.Visits() > maxVisits && !overdue {
		return // it is not known how long it would wait; those before it are decided first
	}

	own, found := d.soonest(w, &a, &offer, limit)
	if ok && (!found || !own.worthWaiting(w, d)) {
		d.provision(w, &offer)
		return
	}

	if found && own.startsIn > 0 {
		for _, at := range own.rooms {
			d.timeline.Reserve(at, own.startsIn, s.Takes, own.runs)
		}
	}

	if ok {
		wake(d.plan, d.view.Now, w.since.Add(w.longest(&d.terms)))
	}
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

	return w.patience.Most(t.Ageing)
}

// option is a way to run a job on nodes that are there.
type option struct {
	rooms    []int32
	startsIn time.Duration // 0 if the nodes are free and the policy does not use them for the job
	runs     time.Duration
	score    money.Amount
}

// offer returns the best way to provision nodes for a job, and whether there is one that its
// quotas and its budget allow.
func (d *decider) offer(w *waiting, a *tenant.Allowance) (provision.Option, bool) {
	need := &w.item.Shape.Need
	if !fleet.OnDemand.Allows(need.Place) {
		return provision.Option{}, false
	}

	q := Query(d.view, w.item, Length{
		Lasts: d.lasts(w.item), HourValue: w.value, Setup: d.terms.Setup, TFLOPS: w.shape.tflops,
	})

	best, ok := d.catalogue.First(need, &q)
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

	return w.patience.Limit(waited, o.Start.Sub(d.view.Now), d.terms.Ageing)
}

// soonest returns the best way to run a job on nodes that are there, now or until limit.
func (d *decider) soonest(
	w *waiting, a *tenant.Allowance, offer *provision.Option, limit time.Duration,
) (option, bool) {
	var best option
	found := false
	for _, pool := range w.shape.Able {
		if pool.Class == fleet.OnDemand && a.NoProvisioning {
			continue
		}

		o, ok := d.onPool(w, pool, limit)
		if !ok {
			continue
		}

		d.score(w, pool, &o, offer)
		if !found || o.score < best.score {
			best, found = o, true
		}
	}

	return best, found
}

// onPool returns the soonest way to run a job on nodes of a pool. Nodes that are free now and
// that the policy does not use for the job count until it has waited for too long.
func (d *decider) onPool(w *waiting, pool *timeline.Pool, limit time.Duration) (option, bool) {
	o := option{runs: d.runs(w, pool)}
	q := timeline.Request{Shape: &w.shape.Shape, Job: w.item.Job, Lasts: o.runs, Tightest: true}

	o.rooms = d.timeline.FitNow(&q, pool)
	if o.rooms != nil {
		return o, limit == timeline.Never || d.view.Now.Sub(w.since) <= w.longest(&d.terms)
	}

	o.rooms, o.startsIn = d.timeline.Earliest(&q, pool, limit)

	return o, o.rooms != nil
}

// score sets what an option costs in all: money, and time at its value.
func (d *decider) score(w *waiting, pool *timeline.Pool, o *option, offer *provision.Option) {
	need := &w.item.Shape.Need
	node := d.view.Rooms[o.rooms[0]].Node

	staging, cost := d.view.Stage(w.item, node)
	done := o.startsIn + staging + o.runs
	energy := EnergyRate(d.view.Tariff, pool.Sample.Node).Of(float64(max(need.GPUs, 1) * need.Nodes))

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
func (d *decider) provision(w *waiting, o *provision.Option) {
	d.plan.Provisions = append(d.plan.Provisions, place.Provision{
		Item: w.item, Offer: o.Offer.Name, Count: o.Nodes, Cost: o.Money,
		Reason: Reason(d.view, w.item, o),
	})
	d.claims.Provision(&d.plan.Provisions[len(d.plan.Provisions)-1])
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

	need := &it.Shape.Need
	if mean, of := d.view.Past.MeanDuration(it.User, need.GPUs*need.Nodes); of > 0 {
		return mean
	}

	return d.terms.Guess
}

// runs returns how long a job runs on nodes of a pool.
func (d *decider) runs(w *waiting, pool *timeline.Pool) time.Duration {
	need := &w.item.Shape.Need
	if o := w.item.Outlook; o != nil && o.Speed != nil {
		var model string
		var memory job.Bytes
		if g := pool.Sample.Node.Inventory.GPUs; len(g) > 0 {
			model, memory = g[0].Model, g[0].Memory
		}

		if t, known := o.RemainingTime(o.Speed.On(model, memory).Rate(need.GPUs*need.Nodes, need.Nodes)); known {
			return t
		}
	}

	lasts := d.lasts(w.item)
	if need.MaxGPUs == 0 || w.shape.tflops == 0 || pool.TFLOPS == 0 {
		return lasts
	}

	return job.Seconds(lasts.Seconds() * w.shape.tflops / pool.TFLOPS)
}

// shapeOf returns what is known of a job's need: which pools could run it, and for which speed
// its expected run time is meant, which is that of the slowest suitable GPU of the yard's own
// nodes, or else of the slowest offer.
func (d *decider) shapeOf(it *queue.Item) *shape {
	if s, ok := d.shapes[it.Shape]; ok {
		return s
	}

	s := &shape{}
	d.timeline.Compare(&s.Shape, &it.Shape.Need)
	d.shapes[it.Shape] = s

	slowest := math.Inf(1)
	for _, pool := range s.Able {
		if pool.Class != fleet.OnDemand && pool.TFLOPS > 0 {
			slowest = min(slowest, pool.TFLOPS)
		}
	}

	s.tflops = slowest
	if math.IsInf(slowest, 1) {
		s.tflops = d.catalogue.Fit(&it.Shape.Need).SlowestTFLOPS() / float64(max(it.Shape.Need.GPUs, 1))
	}

	return s
}
