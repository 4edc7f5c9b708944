package rules

import (
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/place/ondemand"
)

// patienceOf returns the patience of a job, and computes it when the job is new. It is not
// settled as long as nothing can be provisioned for it: an offer may come.
func (e *engine) patienceOf(j *queuedJob) (p ondemand.Patience, settled bool) {
	m := &e.policy.patiences
	p, settled = m.Known(j.item)
	if settled {
		return p, true
	}

	h, ok := e.provisionOption(j, e.shapeOf(j))
	if !ok {
		return ondemand.Patience{}, !fleet.OnDemand.Allows(j.item.Shape.Need.Place)
	}

	return m.Add(j.item, h.marginalCost, j.value), true
}

// limit returns how long from now a job waits at most before a node is provisioned for it.
func (e *engine) limit(j *queuedJob, h *option) time.Duration {
	return j.patience.Limit(e.view.Now.Sub(j.since), h.readyIn)
}

// outwaited reports whether a cost-sensitive job would have to wait longer than
// Config.Patience for a node that is paid for anyway.
func (e *engine) outwaited(j *queuedJob, options []option) bool {
	waited := e.view.Now.Sub(j.item.Since)
	return !slices.ContainsFunc(options, func(o option) bool {
		return !o.provisions() &&
			o.startsIn+waited <= e.cfg.Patience
	})
}
