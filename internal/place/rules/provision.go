package rules

import (
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/humanize"
	"trainyard/internal/job"
	"trainyard/internal/money"
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

	q := e.query(j, s)
	best, ok := e.policy.catalogue.first(&s.Match.Need, &q)

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
	if o := e.policy.catalogue; o == nil || !o.isOf(e.view.Offers) {
		e.policy.catalogue = newCatalogue(e.view.Offers)
		e.backlog.dropProvisioning()
	}
}

// query describes a job to package provision.
func (e *engine) query(j *queuedJob, s *shape) provision.Query {
	q := provision.Query{
		Now: e.view.Now, Objective: job.ObjectiveBalanced, HourValue: j.value, Setup: e.cfg.Setup,
		Run: j.lasts,
	}

	if o := j.item.Outlook; o != nil {
		q.Reference, q.Spec = o.Reference, j.item.Spec
		q.CheckpointEvery = o.Every
		q.NoSpot = !o.Resumes && j.lasts > 2*time.Hour
		if o.Speed != nil {
			q.Restore = time.Duration(o.Speed.Start)
			q.RunTime = func(of *fleet.Offer, nodes, gpus int) (time.Duration, bool) {
				return o.RemainingTime(o.Speed.On(of.GPU, of.GPUMemory).Rate(nodes*gpus, nodes))
			}
		}
	}

	if e.needsStaging(j) {
		q.Stage = func(of *fleet.Offer) (time.Duration, money.Amount) { return e.stage(j, of.Node()) }
	}

	return q
}

// barred says which quota, budget or limit on nodes forbids an option that provisions nodes, "" if
// none does.
func (e *engine) barred(j *queuedJob, a *tenant.Allowance, o *option) string {
	limit := e.claims.Limit(o.offer.Offer, o.nodes)
	need := &j.item.Shape.Need

	switch {
	case limit != "":
		return limit
	case need.GPUs*need.Nodes > a.Ceiling:
		return "quota reached: " + a.LimitedBy.GPUs
	case a.NoProvisioning:
		return a.LimitedBy.Money + " allows no spending on nodes"
	case o.nodes > a.Nodes:
		return a.LimitedBy.Nodes + " allows no more on-demand nodes"
	case o.marginalCost > a.Money:
		return a.LimitedBy.Money + " has " + humanize.Dollars(max(a.Money, 0)) + " left"
	}

	return ""
}
