package problem

import (
	"math"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/place"
	"trainyard/internal/place/ondemand"
	"trainyard/internal/provision"
)

// OnOffer is a configuration of a queued task on nodes that are provisioned for it. It starts
// after the boot of the nodes and costs their rent, by whole billing increments and for no less
// than the minimum.
type OnOffer struct {
	provision.Option
	Candidate              // its Startup includes boot, set-up and staging
	Booting   bool         // the nodes are being provisioned already
	Late      money.Amount // cost of being late there
}

// Total returns what the task costs there: rent, and lateness.
func (o *OnOffer) Total() money.Amount { return o.Cost + o.Late }

// ListOffers gives each queued task its best configuration on an offer, by rent and lateness, if
// its place and its limits allow one. A task for which nodes are being provisioned has those.
func (y *Yard) ListOffers() {
	if len(y.View.Offers) == 0 && len(y.View.Leases) == 0 {
		return
	}

	leased := map[id.Job][]*fleet.Lease{}
	for _, l := range y.View.Leases {
		if l.Job != "" && l.Live() {
			leased[l.Job] = append(leased[l.Job], l)
		}
	}

	for i := range y.Tasks {
		t := &y.Tasks[i]
		switch need := &t.Item.Shape.Need; {
		case t.Running != nil || !fleet.OnDemand.Allows(need.Place):
		case len(leased[t.Item.Job]) > 0:
			t.OnOffer = y.onLease(t, leased[t.Item.Job])
		case len(y.View.Offers) > 0:
			t.OnOffer = y.bestOffer(t, "")
		}
	}
}

// NextOffer returns the best configuration of a task on another offer than the one that it has, nil if
// there is none.
func (y *Yard) NextOffer(t *Task) *OnOffer {
	return y.bestOffer(t, t.OnOffer.Offer.Name)
}

// options lists the ways to provision nodes for a task, whatever its limits allow.
func (y *Yard) options(t *Task) []provision.Option {
	if y.catalogue == nil {
		y.catalogue = ondemand.NewCatalogue(y.View.Offers)
	}

	return y.catalogue.Fit(&t.Item.Shape.Need).Options(y.query(t))
}

// leastRent returns what the cheapest nodes cost per second that could be provisioned for a task, infinity if none can
// be.
func (y *Yard) leastRent(t *Task) money.PerSecond {
	least := money.PerSecond(math.Inf(1))
	if len(y.View.Offers) == 0 || !fleet.OnDemand.Allows(t.Item.Shape.Need.Place) {
		return least
	}

	for _, o := range y.options(t) {
		least = min(least, o.Offer.PerHour().Times(float64(o.Nodes)).PerSecond())
	}

	return least
}

// query describes a task to package provision.
func (y *Yard) query(t *Task) provision.Query {
	return ondemand.Query(y.View, t.Item, ondemand.Length{Lasts: y.lasts(t.Item)})
}

// bestOffer returns the configuration with the lowest total of those that the task's limits
// allow, nil if there is none. The offer besides is left out.
func (y *Yard) bestOffer(t *Task, besides string) *OnOffer {
	need := &t.Item.Shape.Need
	allow := y.View.Allow(t.Item)
	if allow.HoldReason != "" {
		return nil
	}

	none := place.NewClaims(y.View)
	var best *OnOffer

	for _, o := range y.options(t) {
		if o.Offer.Name == besides || ondemand.Barred(none, &allow, need, &o, o.Money) != "" {
			continue
		}

		if x := y.onOffer(t, o); best == nil || x.Total() < best.Total() {
			best = x
		}
	}

	return best
}

// onOffer returns an option as a configuration of a task.
func (y *Yard) onOffer(t *Task, o provision.Option) *OnOffer {
	x := &OnOffer{Option: o}
	x.Configuration = Configuration{Kind: -1, GPUs: int32(o.GPUs * o.Nodes), Nodes: int32(o.Nodes)}
	x.Candidate.Startup = o.Start.Sub(y.Now).Seconds()
	x.Candidate.Duration = o.Finish.Sub(y.Now).Seconds()
	x.Candidate.Cost = o.Money
	x.Late = y.LateCostAt(t, x.Candidate.Duration)

	return x
}

// onLease returns the configuration on nodes that are being provisioned. What remains of their
// boot is waited for; their rent is paid either way until they are released, so only what
// the job adds to that counts.
func (y *Yard) onLease(t *Task, leases []*fleet.Lease) *OnOffer {
	offer := leases[0].Offer
	boot := time.Duration(0)
	for _, l := range leases {
		if l.State != fleet.LeaseActive {
			boot = max(boot, l.Requested.Add(time.Duration(l.Offer.Boot)).Sub(y.Now))
		}
	}

	offer.Boot = job.Duration(boot)
	offer.MinBilling = 0

	fit := ondemand.NewCatalogue([]fleet.Offer{offer}).Fit(&t.Item.Shape.Need)
	list := fit.Options(y.query(t))
	at := slices.IndexFunc(list, func(o provision.Option) bool { return o.Nodes == len(leases) })
	if at < 0 {
		return nil // its need has changed since
	}

	x := y.onOffer(t, list[at])
	x.Booting = true

	return x
}

// LateCostAt returns what it costs a task to end so many seconds from now. Without a deadline every
// second costs what waiting does, or what the job's time is worth by its objective if that is more.
func (y *Yard) LateCostAt(t *Task, end float64) money.Amount {
	if !t.HasDeadline {
		return max(t.LateCost, y.terms.ValueOf(t.Item).PerSecond()).For(end)
	}

	return t.LateCost.For(max(end-t.Slack, 0))
}
