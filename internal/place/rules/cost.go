package rules

import (
	"slices"

	"trainyard/internal/fleet"
	"trainyard/internal/place"
	"trainyard/internal/place/timeline"
)

// costModel knows what an hour on the nodes of each pool costs.
type costModel struct {
	version uint64 // of the timeline whose pools these are
	tariff  *fleet.Tariff
	rates   []rates // by pool
}

// rates are what one GPU of a pool costs, in money an hour.
type rates struct {
	energy float64 // in use, beyond the idle node
	rent   float64 // that is paid for its sake
	tariff float64 // what the ledger says by the tariff
	shown  float64 // what the ledger will say, with the rent
	lease  int     // where the lease of the sample was found
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
	gpus := float64(max(all, 1))
	r := rates{
		energy: (t.Power(price, all) - t.Power(price, 0)) / 1000 * t.Energy / gpus,
		tariff: t.Rate(price, all) / gpus,
	}
	if len(price.Watts) == 0 && all > 0 { // its draw is not configured: what its GPUs may draw
		r.energy = n.Inventory.GPUs[0].Watts / 1000 * t.Energy
	}
	return r
}

// charge sets what an hour costs in this round: on provisioned nodes the rent, by the lease
// of one of them.
func (r *rates) charge(v *place.View, n *fleet.Node) {
	r.rent, r.shown = 0, r.tariff
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
	r.rent = float64(v.Leases[r.lease].Offer.Hourly) / 1e6 / float64(max(len(n.Inventory.GPUs), 1))
	r.shown = r.rent
}
