package rules

import (
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/money"
	"trainyard/internal/place"
	"trainyard/internal/place/timeline"
)

// costModel knows what an hour on the nodes of each pool costs. What an option costs in all
// is computed from it by price and score.
type costModel struct {
	version uint64 // of the timeline whose pools these are
	tariff  *fleet.Tariff
	rates   []rates // by pool
}

// rates are what one GPU of a pool costs.
type rates struct {
	energy money.PerGPUHour // in use, beyond the idle node
	rent   money.PerGPUHour // of a provisioned node, for each of its GPUs
	tariff money.PerGPUHour // what the ledger says by the tariff
	ledger money.PerGPUHour // what the ledger will say, with the rent
	lease  int              // where the lease of the sample was found
}

// of returns the rates of a pool.
func (c *costModel) of(p *timeline.Pool) *rates { return &c.rates[p.Index] }

// update brings the rates up to date with the pools, the tariff and the leases.
func (c *costModel) update(t *timeline.Timeline, v *place.View) {
	if c.rates == nil || c.version != t.Version() || c.tariff != v.Tariff {
		c.version, c.tariff = t.Version(), v.Tariff
		c.rates = make([]rates, len(t.Pools()))
		for i, p := range t.Pools() {
			c.rates[i] = newRates(v.Tariff, p.Sample.Node)
		}
	}

	for i, p := range t.Pools() {
		c.rates[i].charge(v, p.Sample.Node)
	}
}

func newRates(t *fleet.Tariff, n *fleet.Node) rates {
	price := t.Of(n)
	if price == nil {
		return rates{}
	}

	all := len(n.Inventory.GPUs)
	r := rates{
		energy: t.Energy.Drawing(t.Power(price, all) - t.Power(price, 0)).PerGPU(all),
		tariff: t.Rate(price, all).PerGPU(all),
	}

	if len(price.Watts) == 0 && all > 0 { // its draw is not configured: what its GPUs may draw
		r.energy = t.Energy.Drawing(n.Inventory.GPUs[0].Watts).PerGPU(1)
	}

	return r
}

// charge sets what an hour costs in this round: on provisioned nodes the rent, by the lease
// of one of them.
func (r *rates) charge(v *place.View, n *fleet.Node) {
	r.rent, r.ledger = 0, r.tariff

	if n.Class != fleet.OnDemand {
		return
	}

	if r.lease >= len(v.Leases) || v.Leases[r.lease].ID != n.Lease {
		r.lease = slices.IndexFunc(v.Leases, func(l *fleet.Lease) bool { return l.ID == n.Lease })
	}

	if r.lease < 0 {
		r.lease = len(v.Leases)
		return
	}

	r.rent = v.Leases[r.lease].Offer.PerHour().PerGPU(len(n.Inventory.GPUs))
	r.ledger = r.rent
}

// score sets the total cost of an option: money, plus time at the job's value of time.
// Missing the deadline costs the job's late cost, or ten times as much as waiting.
func (e *engine) score(j *queuedJob, o *option) {
	o.score = o.marginalCost + j.value.For(o.done())

	// A job that waits longer than a provisioned node would take keeps others out: see patience.
	if j.patience.share > 0 {
		excess := min(max(o.startsIn-j.provisionedIn, 0), timeline.Never/2)
		o.score += j.value.Times(1/j.patience.share - 1).For(excess)
	}

	if l := j.item.Outlook; l != nil && !l.Deadline.IsZero() {
		if late := e.view.Now.Add(o.done()).Sub(l.Deadline); late > 0 {
			o.score += max(l.LateCost.PerHour(), 10*j.value).For(late)
		}
	}

	o.score += money.Amount(classRank(o)) * 1e-9 // ties go local, then reserved, then on-demand
	if j.item.Shape.Need.MaxGPUs == 0 && !o.provisions() && o.pool.HasGPUs() {
		o.score += 1e-10 // and away from GPUs that others could use
	}
}

func classRank(o *option) int {
	if o.provisions() {
		return len(fleet.Classes())
	}

	return slices.Index(fleet.Classes(), o.class())
}

// price computes what an option on nodes that are there costs: the sum over its nodes. It can
// compute when the last of them has its data.
func (e *engine) price(j *queuedJob, o *option) {
	staging, transfer := time.Duration(0), money.Amount(0)
	for _, at := range o.rooms {
		takes, costs := e.stage(j, e.view.Rooms[at].Node)
		staging = max(staging, takes)
		transfer += costs
	}

	o.readyIn = o.startsIn + staging
	o.marginalCost += transfer
	o.ledgerCost += transfer

	gpus := float64(max(o.gpus, 1))
	for _, at := range o.rooms {
		r := e.costs.of(e.timeline.PoolOf(at))
		o.marginalCost += r.energy.Of(gpus).For(o.runs)
		if r.rent == 0 {
			o.ledgerCost += r.ledger.Of(gpus).For(o.runs)
			continue
		}

		rent := e.rent(at, o)
		o.marginalCost += rent
		o.ledgerCost += rent
	}
}

// rent returns what is paid for a provisioned node because of a job: all of its rent from
// the time at which the node would otherwise be released.
func (e *engine) rent(at int32, o *option) money.Amount {
	r := &e.view.Rooms[at]
	kept := time.Duration(0)
	for i := range r.Holds {
		kept = max(kept, e.timeline.Remaining(&r.Holds[i]))
	}

	hourly := e.costs.of(e.timeline.PoolOf(at)).rent.Of(float64(max(len(r.Node.Inventory.GPUs), 1)))

	return hourly.For(max(o.done()-max(kept, o.startsIn), 0))
}

// stopCost is what each earlier stop of a job adds to the cost of preempting it.
const stopCost money.Amount = 0.01

// loss returns what preempting a job costs: the work since its last checkpoint, and the time
// to save and to start again. Each earlier stop adds a little, so that victims take turns.
func (e *engine) loss(r *place.Running, pool *timeline.Pool) money.Amount {
	lost := time.Duration(0)
	if s := r.Outlook.Speed; s != nil {
		lost = time.Duration(s.Save) + time.Duration(s.Start)
	}

	if every := r.Outlook.Every; every > 0 {
		lost += e.view.Now.Sub(r.Began) % every
	}

	rates := e.costs.of(pool)
	hourly := (rates.ledger + rates.energy).Of(float64(r.GPUs)) + e.costHourValue

	return hourly.For(lost) + stopCost.Times(float64(r.Outlook.Stops))
}

// late reports whether a job would miss its deadline.
func (e *engine) late(j *queuedJob, o *option) bool {
	l := j.item.Outlook
	return l != nil && !l.Deadline.IsZero() && e.view.Now.Add(o.done()).After(l.Deadline)
}
