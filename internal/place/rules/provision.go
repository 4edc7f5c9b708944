package rules

import (
	"trainyard/internal/fleet"
	"trainyard/internal/place/ondemand"
	"trainyard/internal/provision"
	"trainyard/internal/tenant"
)

// provisionOption returns the best way to provision nodes for a job, whether or not its
// limits allow that. The answer does not depend on the time of the round, so it is kept
// while the offers and the nodes stay the same; not for jobs with data, because where
// their data are may change.
func (e *engine) provisionOption(j *queuedJob, s *shape) (option, bool) {
	if len(e.view.Offers) == 0 || !fleet.OnDemand.Allows(s.Match.Need.Place) {
		return option{}, false
	}
	if j.provisioning != nil {
		return *j.provisioning, j.provisioning.provisions()
	}

	q := e.query(j)
	best, ok := e.policy.catalogue.First(&s.Match.Need, &q)

	o := option{}
	if ok {
		o = e.asOption(&best)
	}

	if j.item.Spec == nil || len(j.item.Spec.Data) == 0 {
		j.provisioning = &o
	}

	return o, ok
}

// asOption returns a way to provision nodes as an option.
func (e *engine) asOption(h *provision.Option) option {
	return option{
		offer: h, nodes: h.Nodes, gpus: h.GPUs, readyIn: h.Start.Sub(e.view.Now), runs: h.Finish.Sub(h.Start),
		marginalCost: h.Money, ledgerCost: h.Money,
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
