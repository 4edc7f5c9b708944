package rules

import (
	"time"

	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/place"
	"trainyard/internal/place/timeline"
	"trainyard/internal/tenant"
)

// engine makes one plan. What it keeps from earlier rounds is in the timeline, the cost
// model and the backlog.
type engine struct {
	policy        *Policy
	cfg           *Config
	view          *place.View
	earliestWake  time.Time // the next round is not before that
	round         uint64
	timeline      *timeline.Timeline
	costs         *costModel
	backlog       *backlog
	costHourValue money.PerHour    // what the time of a cost-sensitive job is worth
	allow         tenant.Allowance // of the current job
	unlimited     bool             // Config.Visits does not apply: a person asked about one job
	hostVisits    int              // hosts that were looked at for preemption
	plan          place.Plan
	claims        *place.Claims    // what the plan provisions
	search        timeline.Request // of the current search
	freed         int              // grows whenever the plan frees GPUs
	hostList      []*host          // rooms with jobs that could be preempted, once listed
	hostsListed   bool
	hostsByShape  map[*shape][]*host // those of them that could run a shape
	emptyHosts    []emptyHost        // by pool: running the current job on a host
}

func newEngine(p *Policy, v *place.View) *engine {
	p.rounds++
	e := &engine{
		policy: p, cfg: &p.cfg, view: v, claims: place.NewClaims(v), earliestWake: v.Now.Add(time.Second),
		round: p.rounds, timeline: &p.timeline, costs: &p.costs, backlog: &p.backlog,
		costHourValue: p.cfg.Value[job.ObjectiveCost], allow: tenant.Unlimited(), hostsByShape: map[*shape][]*host{},
	}

	e.timeline.Update(timeline.Snapshot{Now: v.Now, Rooms: v.Rooms, Past: v.Past, Guess: p.cfg.Guess})
	e.costs.update(e.timeline, v)
	e.updateOffers()
	e.backlog.update(e)
	e.dedicateLeased()

	return e
}

// consider decides what becomes of a job.
func (e *engine) consider(j *queuedJob) {
	s := e.shapeOf(j)
	if e.knownBlocked(j, s) {
		return
	}

	limited := e.spent() && len(s.Able) > 0
	if limited && !e.timeline.MayFit(&s.Shape) {
		e.wakeAt(j.due)
		return
	}

	j.limited = limited
	j.nowOnly = limited || len(j.leases) > 0 || e.overQuota(j) // with leases, its nodes are being provisioned
	if j.nowOnly && e.futile(j, s) {
		return
	}

	options := e.options(j, s)
	if len(options) == 0 {
		return
	}

	best := e.choose(j, options)
	switch {
	case best == nil:
	case best.provisions():
		e.provision(j, best)
	case best.startsIn == 0:
		e.start(j, best, options)
	default:
		if freed := e.preempt(j, best); freed != nil {
			e.start(j, freed, options)
			return
		}

		e.reserve(j, best)
	}
}

// knownBlocked reports whether a job cannot start and need not be considered: one of the
// same shape that lasts no longer found nothing, and less is free now. That does not hold
// where nodes can be provisioned, for jobs that go first, and for gangs.
func (e *engine) knownBlocked(j *queuedJob, s *shape) bool {
	if len(e.view.Offers) > 0 || j.aged || s.of.Need.Nodes > 1 {
		return false
	}

	return s.shortestBlocked > 0 && s.stopsThen == len(e.plan.Stops) && j.lasts >= s.shortestBlocked
}

// futile reports whether a job that may only start now cannot: nothing is free for it, and
// its nodes are being provisioned, or there will be another round before it is due.
func (e *engine) futile(j *queuedJob, s *shape) bool {
	if !e.knownFull(j, s) || len(j.leases) == 0 && e.wakesEarlier(j.due) {
		return false
	}

	for _, pool := range s.Able {
		e.timeline.Prune(pool, s.Match.Need.GPUs)
	}

	return true
}

// knownFull reports whether it is known that nothing is free for a job: one of the same
// shape that lasts no longer found no room, and nothing was freed since.
func (e *engine) knownFull(j *queuedJob, s *shape) bool {
	return s.shortestFull > 0 && s.freedThen == e.freed && j.lasts >= s.shortestFull && j.unprofiled && !j.hasNode
}

// spent reports whether the round has looked at as many rooms as it may.
func (e *engine) spent() bool {
	return !e.unlimited && e.timeline.Visits()+e.hostVisits > e.cfg.Visits
}

// wakeAt requests another round at a time at which nothing else may happen, in a second at
// the earliest: the patience of a short job may be less than a round takes.
func (e *engine) wakeAt(at time.Time) {
	if !e.wakesEarlier(at) {
		return
	}

	e.plan.WakeAt = at
	if at.Before(e.earliestWake) {
		e.plan.WakeAt = e.earliestWake
	}
}

// wakesEarlier reports whether a time is in the future and before the next requested round.
func (e *engine) wakesEarlier(at time.Time) bool {
	if !at.After(e.view.Now) {
		return false
	}

	return e.plan.WakeAt.IsZero() || at.Before(e.plan.WakeAt) && e.plan.WakeAt.After(e.earliestWake)
}
