package rules

import (
	"math/bits"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/ledger"
	"trainyard/internal/money"
	"trainyard/internal/place"
	"trainyard/internal/place/ondemand"
	"trainyard/internal/place/timeline"
)

// costModel knows what an hour on the nodes of each pool costs. What an option costs in all
// is computed from it by price and score.
type costModel struct {
	version uint64 // of the timeline whose pools these are
	tariff  *fleet.Tariff
	rates   []rates // by pool
	charges map[hold]money.PerHour
}

// hold is what a run has of a node of a pool, as far as its price depends on it.
type hold struct {
	pool       int
	size       int      // GPUs of the node
	gpus       int      // of those
	share      float64  // of the one
	cpus, part job.CPUs // of a run without GPUs: those of the node, and of those
}

// rates are what one GPU of a pool costs.
type rates struct {
	energy money.PerGPUHour // in use, beyond the idle node
	rent   money.PerGPUHour // of a provisioned node, for each of its GPUs
	tariff money.PerGPUHour // by the tariff, on a node that is used as a whole
	full   money.PerGPUHour // by the tariff or the rent, on a node that is used as a whole
	lease  int              // where the lease of the sample was found
}

// of returns the rates of a pool.
func (c *costModel) of(p *timeline.Pool) *rates { return &c.rates[p.Index] }

// update brings the rates up to date with the pools, the tariff and the leases.
func (c *costModel) update(t *timeline.Timeline, v *place.View) {
	if c.rates == nil || c.version != t.Version() || c.tariff != v.Tariff {
		c.version, c.tariff = t.Version(), v.Tariff
		c.rates = make([]rates, len(t.Pools()))
		c.charges = map[hold]money.PerHour{}
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

	return rates{energy: ondemand.EnergyRate(t, n), tariff: t.Rate(price, all).PerGPU(all)}
}

// charge sets what an hour costs in this round: on provisioned nodes the rent, by the lease
// of one of them.
func (r *rates) charge(v *place.View, n *fleet.Node) {
	r.rent, r.full = 0, r.tariff

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
	r.full = r.rent
}

// score sets the total cost of an option: money, plus time at the job's value of time.
// Missing the deadline costs the job's late cost, or ten times as much as waiting.
func (e *engine) score(j *queuedJob, o *option) {
	o.score = o.marginalCost + j.value.For(o.done())

	// A job that waits longer than a provisioned node would take keeps others out: see patience.
	if j.patience.Share > 0 {
		excess := min(max(o.startsIn-j.provisionedIn, 0), timeline.Never/2)
		o.score += j.value.Times(1/j.patience.Share - 1).For(excess)
	}

	o.score += ondemand.LateCost(j.item, j.value, e.view.Now.Add(o.done()))
	o.score += money.Amount(classRank(o)) * 1e-9 // ties go local, then reserved, then on-demand
	if j.item.Shape.Need.MaxGPUs == 0 && !o.provisions() && o.pool.HasGPUs() {
		// And away from GPUs that others could use, most of all from fast ones.
		o.score += 1e-10 + money.Amount(min(o.pool.TFLOPS, 1e3))*1e-13
	}

	o.score += money.Amount(min(max(o.waste, -9), 9)) * 1e-11 // and to where the least becomes useless
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
	staging, transfer := e.staging(j, o)

	o.readyIn = o.startsIn + staging
	o.marginalCost += transfer

	gpus := float64(max(o.gpus, 1))
	if o.share > 0 {
		gpus = o.share
	}

	for _, at := range o.rooms {
		pool := e.timeline.PoolOf(at)
		o.marginalCost += e.costs.of(pool).energy.Of(gpus).For(o.runs)
		if e.costs.of(pool).rent > 0 {
			o.marginalCost += e.rent(at, o)
		}
	}
}

// staging returns how long it takes until the last node of an option has a job's data, and what that costs.
func (e *engine) staging(j *queuedJob, o *option) (time.Duration, money.Amount) {
	last, transfer := time.Duration(0), money.Amount(0)
	for _, at := range o.rooms {
		takes, costs := e.stage(j, e.view.Rooms[at].Node)
		last = max(last, takes)
		transfer += costs
	}

	return last, transfer
}

// ledgerCost returns what the ledger will post for a job if it takes an option. People are shown it; nothing is
// decided by it, so it is computed for the options that they are shown alone.
func (e *engine) ledgerCost(j *queuedJob, o *option) money.Amount {
	if o.provisions() {
		return o.marginalCost
	}

	_, sum := e.staging(j, o)
	for _, at := range o.rooms {
		if pool := e.timeline.PoolOf(at); e.costs.of(pool).rent == 0 {
			sum += e.charge(j, o, pool, e.view.Rooms[at].Node).For(o.done() - o.startsIn)
		} else {
			sum += e.sharedRent(j, at, o)
		}
	}

	return sum
}

// charge returns what the ledger will post for the job's part of a node that nobody else uses,
// by the tariff. It is computed once for all holds alike.
func (e *engine) charge(j *queuedJob, o *option, pool *timeline.Pool, n *fleet.Node) money.PerHour {
	key := hold{pool: pool.Index, size: len(n.Inventory.GPUs), gpus: o.gpus, share: o.share}
	if o.gpus == 0 {
		key.cpus, key.part = n.Inventory.CPUs, j.item.Shape.Need.CPUs
	}

	price, known := e.costs.charges[key]
	if !known {
		held := fleet.Hold{GPUs: fleet.LowestGPUs(allGPUs(n), o.gpus), Share: o.share, CPUs: j.item.Shape.Need.CPUs}
		price = ledger.Hourly(n, e.view.Tariff, nil, ledger.HolderOf(&held, ""))
		e.costs.charges[key] = price
	}

	return price
}

// allGPUs returns the GPUs of a node.
func allGPUs(n *fleet.Node) uint64 {
	set := uint64(0)
	for i := range n.Inventory.GPUs {
		set |= 1 << n.Inventory.GPUs[i].Index
	}

	return set
}

// sharedRent returns what the ledger will post for a job on a provisioned node that is there: all
// of its rent while the job is alone, and else its part among those who use it.
func (e *engine) sharedRent(j *queuedJob, at int32, o *option) money.Amount {
	r := &e.view.Rooms[at]
	hourly := e.rentOf(r.Node, e.timeline.PoolOf(at))
	own := weight(r.Node, o.gpus, o.share, j.item.Shape.Need.CPUs)
	all, from := own, o.startsIn

	for i := range r.Holds {
		if e.timeline.Remaining(&r.Holds[i]) > from {
			all += weightOf(r.Node, &r.Holds[i])
		}
	}

	sum := money.Amount(0)
	for i := range r.Holds { // by expected end
		ends := min(e.timeline.Remaining(&r.Holds[i]), o.done())
		if ends <= from && e.timeline.Remaining(&r.Holds[i]) <= o.startsIn {
			continue
		}

		if ends > from {
			sum += hourly.Times(own / all).For(ends - from)
			from = ends
		}

		all -= weightOf(r.Node, &r.Holds[i])
	}

	return sum + hourly.For(max(o.done()-from, 0))
}

// rentOf returns the price of a provisioned node: by its own lease, or else like others of its pool.
func (e *engine) rentOf(n *fleet.Node, p *timeline.Pool) money.PerHour {
	for _, l := range e.view.Leases {
		if l.ID == n.Lease {
			return l.Offer.PerHour()
		}
	}

	return e.costs.of(p).rent.Of(float64(max(len(n.Inventory.GPUs), 1)))
}

// weightOf returns the weight of a hold among the users of a node.
func weightOf(n *fleet.Node, h *fleet.Hold) float64 {
	return weight(n, bits.OnesCount64(h.GPUs), h.Share, h.CPUs)
}

// weight returns the weight by which the users of a node share its cost: GPUs, or for a run
// without GPUs its CPUs.
func weight(n *fleet.Node, gpus int, share float64, cpus job.CPUs) float64 {
	switch {
	case gpus > 0 && share > 0:
		return share
	case gpus > 0:
		return float64(gpus)
	}

	part := max(float64(cpus), 1) / float64(max(n.Inventory.CPUs, 1))

	return part * float64(max(len(n.Inventory.GPUs), 1))
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
	hourly := (rates.full + rates.energy).Of(float64(r.GPUs)) + e.costHourValue

	return hourly.For(lost) + stopCost.Times(float64(r.Outlook.Stops))
}

// late reports whether a job would miss its deadline.
func (e *engine) late(j *queuedJob, o *option) bool {
	l := j.item.Outlook
	return l != nil && !l.Deadline.IsZero() && e.view.Now.Add(o.done()).After(l.Deadline)
}
