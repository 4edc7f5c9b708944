package rules

import (
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/place/ondemand"
	"trainyard/internal/provision"
	"trainyard/internal/tenant"
)

// provisionOption returns the best way to provision nodes for a job, whether or not its
// limits allow that. The answer does not depend on the time of the round, so it is kept
// while the offers and the nodes stay the same; not for jobs with data, because where
// their data are may change.
func (e *engine) provisionOption(j *queuedJob, s *shape) (option, bool) {
	if j.awaitsNodes() {
		return e.arriving(j, s)
	}
	if len(e.view.Offers) == 0 || !fleet.OnDemand.Allows(s.Match.Need.Place) {
		return option{}, false
	}
	if e.parts.Fits(j.item) {
		return option{}, false
	}
	if j.provisioning != nil && j.generation == e.backlog.generation {
		return *j.provisioning, j.provisioning.provisions()
	}

	q := e.query(j)
	best, ok := e.policy.catalogue.First(&s.Match.Need, &q)

	o := option{}
	if ok {
		o = e.asOption(&best)
	}

	if j.item.Spec == nil || len(j.item.Spec.Data) == 0 {
		j.provisioning, j.generation = &o, e.backlog.generation
	}

	return o, ok
}

// arriving returns the nodes that are being provisioned for a job as an option: they come when they have
// booted, whatever else could be provisioned now. Without it the job would take the next best
// nodes as soon as its own were the last of their offer.
func (e *engine) arriving(j *queuedJob, s *shape) (option, bool) {
	offer := j.leases[0].Offer
	boot := time.Duration(0)

	for _, l := range j.leases {
		if l.Node == "" {
			boot = max(boot, l.Requested.Add(time.Duration(offer.Boot)).Sub(e.view.Now))
		}
	}

	offer.Boot, offer.MaxNodes = job.Duration(boot), 0

	best, ok := ondemand.NewCatalogue([]fleet.Offer{offer}).Fit(&s.Match.Need).Best(e.query(j))
	if !ok {
		return option{}, false
	}

	return e.asOption(&best), true
}

// asOption returns a way to provision nodes as an option.
func (e *engine) asOption(h *provision.Option) option {
	return option{
		offer: h, nodes: h.Nodes, gpus: h.GPUs, readyIn: h.Start.Sub(e.view.Now), runs: h.Finish.Sub(h.Start),
		marginalCost: h.Money,
	}
}

// updateOffers takes the offers of this round. Options that were computed with other offers
// are dropped.
func (e *engine) updateOffers() {
	if o := e.policy.catalogue; o == nil || !o.IsOf(e.view.Offers) {
		e.policy.catalogue = ondemand.NewCatalogue(e.view.Offers)
		e.backlog.dropProvisioning()
	}
}

// query describes a job to package provision.
func (e *engine) query(j *queuedJob) provision.Query {
	return ondemand.Query(e.view, j.item, ondemand.Length{Lasts: j.lasts, HourValue: j.value, Setup: e.cfg.Setup})
}

// barred says which quota, budget or limit on nodes forbids an option that provisions nodes, "" if
// none does.
func (e *engine) barred(j *queuedJob, a *tenant.Allowance, o *option) string {
	return ondemand.Barred(e.claims, a, &j.item.Shape.Need, o.offer, o.marginalCost)
}
