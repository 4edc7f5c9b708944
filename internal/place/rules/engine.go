package rules

import (
	"time"

	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/place"
	"trainyard/internal/place/ondemand"
	"trainyard/internal/place/timeline"
	"trainyard/internal/share"
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
	visits        int              // hosts and rooms that the round may look at for jobs that cannot start now
	hostVisits    int              // hosts that were looked at for preemption
	uncounted     int              // visits that decided nothing: what would have been done otherwise
	plan          place.Plan
	claims        *place.Claims    // what the plan provisions
	search        timeline.Request // of the current search
	freed         int              // grows whenever the plan frees GPUs
	hostList      []*host          // rooms with jobs that could be preempted, once listed
	hostsListed   bool
	hostsByShape  map[*shape][]*host // those of them that could run a shape
	emptyHosts    []emptyHost        // by pool: running the current job on a host
	clock         clockText          // that was written last
	reservedParts []reservedPart     // GPUs of which parts are reserved
	parts         *ondemand.Parts    // of GPUs of nodes that are being provisioned
	host          share.Host         // that a search looks at
	workload      *share.Workload    // what jobs ask for; nil until somebody wants a part of a GPU
	moved         map[id.Job]bool    // jobs that the plan moves away from their neighbours
	apart         *share.Cut         // that keeps the current job off a GPU with room for it, nil if none does
}

func newEngine(p *Policy, v *place.View) *engine {
	p.rounds++
	e := &engine{
		policy: p, cfg: &p.cfg, view: v, claims: place.NewClaims(v), earliestWake: v.Now.Add(time.Second),
		round: p.rounds, timeline: &p.timeline, costs: &p.costs, backlog: &p.backlog,
		costHourValue: p.cfg.Value[job.ObjectiveCost], allow: tenant.Unlimited(), hostsByShape: map[*shape][]*host{},
		visits: p.cfg.Visits, parts: ondemand.NewParts(v),
	}

	if len(v.Offers) > 0 {
		e.visits *= offerVisits
	}

	e.timeline.Update(timeline.Snapshot{
		Now: v.Now, Rooms: v.Rooms, Changes: v.Changes, Past: v.Past, Guess: p.cfg.Guess,
	})
	e.costs.update(e.timeline, v)
	e.updateOffers()
	e.backlog.update(e)
	e.dedicateLeased()
	e.weighShares()

	return e
}

// consider decides what becomes of a job.
func (e *engine) consider(j *queuedJob) {
	s := e.shapeOf(j)
	if e.knownBlocked(j, s) {
		return
	}

	j.limited = e.spent() && len(s.Able) > 0
	if j.limited && !e.timeline.MayFit(&s.Shape) {
		return
	}

	j.nowOnly = j.limited || len(j.leases) > 0 || e.overQuota(j) // with leases, its nodes are being provisioned
	if j.nowOnly && e.futile(j, s) {
		return
	}

	options := e.options(j, s)
	if len(options) == 0 {
		e.letWait(j, nil, nil)
		return
	}

	best := e.choose(j, options)
	switch {
	case best == nil:
		e.letWait(j, nil, options)
	case best.provisions():
		e.provision(j, best, e.insteadOfProvisioning(j, s, best, options))
	case best.startsIn == 0:
		e.start(j, best, options, e.insteadOfStart(j, s, best, options))
	default:
		if freed := e.preempt(j, best); freed != nil {
			e.start(j, freed, options, e.counterfactual(place.Preemption, j, s, freed, best))
			return
		}

		e.deferral(j, s, best, options)
		e.letWait(j, best, options)
		e.reserve(j, best)
	}
}

// closed reports whether consider does nothing for the jobs of a lane that last so long or longer, until the plan
// frees something.
func (e *engine) closed(x *lane, shortest time.Duration) bool {
	if x.alone != nil {
		return false
	}

	s := e.present(x.shape)
	full := x.unprofiled && e.full(s, shortest)

	switch {
	case x.leased && full: // they may only start now
		return true
	case !x.leased && !x.aged && e.blocked(s, shortest):
		return true
	case !e.spent() || len(s.Able) == 0:
		return false
	}

	return full || !e.timeline.MayFit(&s.Shape)
}

// knownBlocked reports whether a job cannot start and need not be considered. That does not hold for jobs that go
// first and for those with nodes of their own.
func (e *engine) knownBlocked(j *queuedJob, s *shape) bool {
	return !j.aged && len(j.leases) == 0 && e.blocked(s, j.lasts)
}

// blocked reports whether jobs of a shape that last so long cannot start: one of the same shape that lasts no longer
// found nothing, and less is free now. That does not hold where nodes can be provisioned, and for gangs.
func (e *engine) blocked(s *shape, lasts time.Duration) bool {
	if len(e.view.Offers) > 0 || s.of.Need.Nodes > 1 {
		return false
	}

	return s.shortestBlocked > 0 && s.stopsThen == len(e.plan.Stops) && lasts >= s.shortestBlocked
}

// futile reports whether a job that may only start now cannot: nothing is free for it, and
// its nodes are being provisioned, or there will be another round before it is due.
func (e *engine) futile(j *queuedJob, s *shape) bool {
	return e.knownFull(j, s) && (j.limited || len(j.leases) > 0 || !e.wakesEarlier(j.due))
}

// knownFull reports whether it is known that nothing is free for a job.
func (e *engine) knownFull(j *queuedJob, s *shape) bool {
	return j.unprofiled && !j.hasNode && e.full(s, j.lasts)
}

// full reports whether nothing is free for jobs of a shape that last so long: one of the same shape that lasts no
// longer found no room, and nothing was freed since.
func (e *engine) full(s *shape, lasts time.Duration) bool {
	return s.shortestFull > 0 && s.freedThen == e.freed && lasts >= s.shortestFull
}

// offerVisits is how many times as many rooms a round looks at where nodes can be provisioned: for how long a job
// would have to wait decides there what is paid.
const offerVisits = 8

// spent reports whether the round has looked at as many rooms as it may.
func (e *engine) spent() bool { return e.timeline.Visits()-e.uncounted+e.hostVisits > e.visits }

// finish completes the plan. If some jobs were not looked at closely, there is another round when the next job is
// due: then it goes first.
func (e *engine) finish() place.Plan {
	if e.spent() {
		if due, ok := e.backlog.nextDue(); ok {
			e.wakeAt(due)
		}
	}

	return e.plan
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
