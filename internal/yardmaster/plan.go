package yardmaster

import (
	"time"

	"trainyard/internal/place"
	"trainyard/internal/queue"
)

// Slow reports whether plans take so long that they must be made outside the loop:
// Begin, Planning.Plan and PlanReady instead of Round.
func (y *Yard) Slow() bool { return place.IsSlow(y.cfg.Policy) }

// Planning is a plan that is being made outside the loop.
type Planning struct {
	Now    time.Time   // when it was begun
	copied *place.Copy // of the view; not shared with the yard
	policy place.Policy
	limit  func() bool // reports that its time is up; nil if it has no limit
}

// Begin takes the view for a plan that is made outside the loop. No other plan is due until
// PlanReady has delivered it.
func (y *Yard) Begin(now time.Time) *Planning {
	v := y.view(now)
	p := &Planning{Now: v.Now, copied: y.copyView(v), policy: y.cfg.Policy, limit: y.timeLimit()}
	y.planning = true
	y.planDue, y.freed = false, false
	y.atBegin = place.Rehearsal(y.cfg.Policy)

	return p
}

// Plan asks the policy, once. The plan is cut short when its time is up or stop reports true.
func (p *Planning) Plan(stop func() bool) place.Plan {
	return place.Within(p.policy, p.copied.View(), func() bool { return stop() || p.limit != nil && p.limit() })
}

// timeLimit starts the time of a plan and returns what reports that it is up, nil if there is
// no limit.
func (y *Yard) timeLimit() func() bool {
	if y.cfg.Limit == nil {
		return nil
	}

	return y.cfg.Limit()
}

// PlanReady delivers a plan that was made outside the loop. What is stale since its view was
// taken is dropped. The answer is a PlanApplied.
type PlanReady struct{ Plan place.Plan }

// PlanApplied says what became of a plan.
type PlanApplied struct {
	Dropped int // starts, stops and nodes to provision that were no longer possible
}

func (m PlanReady) handle(y *Yard) (any, error) { //nolint:unparam // the form of Message
	y.planning = false
	y.atBegin = nil
	before := y.drops
	y.apply(y.now, y.bind(m.Plan))

	return PlanApplied{Dropped: y.drops - before}, nil
}

// noLongerQueued is why a part of a plan is dropped whose job was placed, cancelled or
// changed since.
const noLongerQueued = "the job is no longer queued"

// noLongerThere is why a part of a plan is dropped whose run has ended since.
const noLongerThere = "the job is no longer running there"

// bind replaces the jobs and runs of a cloned view by the yard's own. Parts whose job or run
// has changed since are dropped; place.Check finds out whether the nodes are still free.
func (y *Yard) bind(p place.Plan) place.Plan {
	bound := place.Plan{Reservation: p.Reservation, Waits: p.Waits, Releases: p.Releases, WakeAt: p.WakeAt}

	for _, s := range p.Stops {
		r, ok := y.jobs[s.Running.Job]
		if !ok || r.running == nil || r.running.Run != s.Running.Run {
			y.drop(Event{Job: s.Running.Job, Reason: noLongerThere})
			continue
		}

		s.Running = r.running
		bound.Stops = append(bound.Stops, s)
	}

	for _, s := range p.Starts {
		it := y.currentItem(s.Item)
		if it == nil {
			y.drop(Event{Job: s.Item.Job, Reason: noLongerQueued})
			continue
		}

		s.Item = it
		bound.Starts = append(bound.Starts, s)
	}

	for _, h := range p.Provisions {
		it := y.currentItem(h.Item)
		if it == nil {
			y.drop(Event{Job: h.Item.Job, Reason: noLongerQueued})
			continue
		}

		if h.Running != nil {
			r := y.jobs[h.Item.Job]
			if r.running == nil || r.running.Run != h.Running.Run {
				y.drop(Event{Job: h.Item.Job, Reason: noLongerThere})
				continue
			}

			h.Running = r.running
		}

		h.Item = it
		bound.Provisions = append(bound.Provisions, h)
	}

	for _, d := range p.Deferrals {
		if it := y.currentItem(d.Item); it != nil {
			d.Item = it
			bound.Deferrals = append(bound.Deferrals, d)
		}
	}

	for _, s := range p.Slow {
		if r, ok := y.jobs[s.Running.Job]; ok && r.running != nil && r.running.Run == s.Running.Run {
			s.Running = r.running
			bound.Slow = append(bound.Slow, s)
		}
	}

	if p.Reservation != nil {
		if r, ok := y.jobs[p.Reservation.Job]; !ok || r.item == nil {
			bound.Reservation = nil
		}
	}

	return bound
}

// currentItem returns the yard's own item for one of a cloned view, nil if the job has changed
// since.
func (y *Yard) currentItem(of *queue.Item) *queue.Item {
	r, ok := y.jobs[of.Job]
	if !ok || r.entry == nil || r.item == nil && r.running == nil {
		return nil
	}
	if !r.entry.Since.Equal(of.Since) || r.entry.Shape.Need != of.Shape.Need {
		return nil
	}

	return r.entry
}

// drop records that a part of a plan is not carried out.
func (y *Yard) drop(e Event) {
	e.Kind = "plan.dropped"
	e.Actor = theYard
	y.drops++
	y.event(e)
}
