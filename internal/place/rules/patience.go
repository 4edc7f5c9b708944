package rules

import (
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/money"
	"trainyard/internal/place/timeline"
	"trainyard/internal/queue"
)

// patience is how long a job waits for a node of the yard before one is provisioned for it.
//
// Waiting until the time lost is worth more than the rent costs more than provisioning:
// that is the break-even wait. But a job that waits for a node takes it from jobs that come
// meanwhile, and nodes are provisioned for those instead, so waiting saves the rent only as
// far as the node would have been idle. The node that a short job takes would surely have
// been used by another; that of a long one is taken through nights and weekends. So only a
// share of the rent counts as saved: little for jobs that cost less than the mean, nearly
// all for those that cost far more. It is computed when a job arrives.
type patience struct {
	lasts time.Duration // 0 if nothing can be provisioned for it
	share float64       // of the rent that counts as saved
}

// halfSaved is the cost, in mean costs of all jobs, at which half the rent counts as saved.
const halfSaved = 40

// stopAt is after how many patiences a node is provisioned for a job even if another is
// reserved for it.
const stopAt = 2

// patiences are those of the queued jobs, and what all jobs so far cost.
type patiences struct {
	byNumber map[uint64]patience
	count    int
	sum      money.Amount
}

// patienceOf returns the patience of a job, and computes it when the job is new. It is not
// settled as long as nothing can be provisioned for it: an offer may come.
func (e *engine) patienceOf(j *queuedJob) (p patience, settled bool) {
	m := &e.policy.patiences
	p, settled = m.byNumber[j.item.Number]
	if settled {
		return p, true
	}

	h, ok := e.provisionOption(j, e.shapeOf(j))
	if !ok {
		return patience{}, !fleet.OnDemand.Allows(j.item.Shape.Need.Place)
	}

	m.count++
	m.sum += h.marginalCost
	p = patience{share: float64(h.marginalCost / (h.marginalCost + halfSaved*m.sum/money.Amount(m.count)))}
	if h.marginalCost == 0 {
		p.share = 0
	}

	p.lasts = timeline.Never
	if j.value > 0 {
		p.lasts = h.marginalCost.Times(p.share).Lasts(j.value)
	}

	m.byNumber[j.item.Number] = p

	return p, true
}

// forget drops jobs that have left the queue.
func (m *patiences) forget(l *queue.Queue) {
	if len(m.byNumber) <= 2*l.Len()+1024 {
		return
	}

	kept := make(map[uint64]patience, l.Len())
	for _, it := range l.Stays {
		if p, ok := m.byNumber[it.Number]; ok {
			kept[it.Number] = p
		}
	}

	m.byNumber = kept
}

// limit returns how long from now a job waits at most before a node is provisioned for it.
func (e *engine) limit(j *queuedJob, h *option) time.Duration {
	if j.patience.lasts == timeline.Never || j.patience.lasts == 0 && j.patience.share > 0 {
		return j.patience.lasts
	}

	most := min(e.cfg.Ageing, time.Duration(min(float64(stopAt*j.patience.lasts), float64(timeline.Never))))
	left := j.since.Add(most).Sub(e.view.Now)

	return max(min(j.patience.lasts, left)+h.readyIn, 0)
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
