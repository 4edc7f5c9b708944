package rules

import (
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/money"
	"trainyard/internal/place"
	"trainyard/internal/tenant"
)

// The engine asks the view about limits, data and borrowed GPUs here and nowhere else.

// allowance is what a job may still take by its owner's and its project's limits.
func (e *engine) allowance(j *queuedJob) *tenant.Allowance {
	if e.view.Limits != nil {
		e.allow = e.claims.Allow(j.item)
	}

	return &e.allow
}

// overQuota reports whether a job may not have as many GPUs as it needs now. Nodes are not kept for
// it: if it starts, the yard holds it back until its owner uses less.
func (e *engine) overQuota(j *queuedJob) bool {
	if e.view.Limits == nil {
		return false
	}

	need := &j.item.Shape.Need
	over := need.GPUs*need.Nodes > e.allowance(j).Ceiling
	if over && e.claims.Any() {
		e.wakeAt(e.view.Now.Add(time.Second)) // the next plan knows what is really left
	}

	return over
}

// needsStaging reports whether data must be copied to where a job runs.
func (e *engine) needsStaging(j *queuedJob) bool {
	return e.view.Data != nil && j.item.Spec != nil && len(j.item.Spec.Data) > 0
}

// stage returns how long it takes to copy a job's data to a node, and what that costs.
func (e *engine) stage(j *queuedJob, n *fleet.Node) (time.Duration, money.Amount) {
	if e.view.Data == nil {
		return 0, 0
	}

	return e.view.Stage(j.item, n)
}

// lends reports whether a job's owner may reclaim what others have borrowed: there are
// quotas, and the owner is within theirs.
func (e *engine) lends(j *queuedJob) bool { return e.view.Limits != nil && !e.view.Borrows(j.item) }

// borrowed reports whether a running job belongs to someone who uses more than their quota.
func (e *engine) borrowed(r *place.Running) bool {
	return e.view.Borrows(r.Item)
}

// anyBorrowed reports whether running jobs may be on borrowed GPUs.
func (e *engine) anyBorrowed() bool { return e.view.Limits != nil }
