package yardmaster

import (
	"time"

	"trainyard/internal/job"
	"trainyard/internal/place"
)

// Wanted reports whether something changed that the policy should look at, and is not
// looking at already.
func (y *Yard) Wanted() bool {
	return y.round && !y.planning && (y.line.Len() > 0 || len(y.running) > 0 && y.cfg.Policy.Revises())
}

// Round asks the policy for a plan and carries it out.
func (y *Yard) Round(now time.Time) {
	v := y.view(now)
	y.apply(now, place.Within(y.cfg.Policy, v, y.timeLimit()))
	y.round = false
}

// apply carries out a plan. What can no longer be carried out, because the yard
// has moved on since the view was taken, is dropped.
func (y *Yard) apply(now time.Time, p place.Plan) {
	y.setNow(now)
	y.held = p.Reservation
	y.askAgain(p.WakeAt)

	if len(p.Provisions) > 0 {
		y.provisionAll(p.Provisions)
		y.settleLeases()
	}

	if len(p.Starts) == 0 && len(p.Stops) == 0 {
		return
	}

	good, bad := place.Check(y.glance(now), p)
	for _, err := range bad {
		y.drop(Event{Reason: err.Error()})
	}

	for i := range good.Stops {
		s := &good.Stops[i]
		r, ok := y.jobs[s.Running.Job]
		if !ok || r.running != s.Running {
			y.drop(Event{Job: s.Running.Job, Reason: "the job no longer runs there"})
			continue
		}

		y.stopPlanned(r, s)
	}

	y.expect(len(good.Starts))

	for i := range good.Starts {
		y.start(&good.Starts[i])
	}

	if y.leases.Pending() {
		y.settleLeases()
	}

	if y.freed {
		y.fulfil()
	}

	y.updateMeters()
}

// start launches a job of a plan, or promises it its seats until they are free.
func (y *Yard) start(s *place.Start) {
	r, ok := y.jobs[s.Item.Job]
	switch {
	case ok && r.item == s.Item && r.State.Waiting():
		if why := y.quotaReached(r, gpusOf(s)); why != "" {
			y.dequeue(r)
			y.holdBack(r, why)
			return
		}

		if y.nodes.Vacant(s) {
			y.saved(r, s)
			y.launch(r, s)
			return
		}
	case ok && r.running != nil && r.running.Item == s.Item && r.run.stoppedByPlan:
	default:
		y.drop(Event{Job: s.Item.Job, Reason: noLongerWaits})
		return
	}

	y.promise(r, s)
}

// askAgain lets the policy be asked at a time at which nothing else may happen.
func (y *Yard) askAgain(at time.Time) {
	y.timers.Stop(y.asked)
	y.asked = nil
	if !at.IsZero() {
		y.asked = y.after(at, func() { y.round = true })
	}
}

// expect makes room for what so many starts will change.
func (y *Yard) expect(n int) {
	y.changedJobs.Grow(n)
	y.changedRuns.Grow(n)
	y.orders.Grow(n)
	y.feed.Grow(n)
}

// moveJob applies an event to a job and writes it down. Every change of a
// job's state goes through here.
func (y *Yard) moveJob(r *jobRecord, ev job.Event, actor, reason string) error {
	to, err := r.After(ev)
	if err != nil {
		return err
	}

	from := r.State
	r.State, r.Since, r.Reason = to, y.now, reason
	y.changedJob(r)

	e := Event{
		Kind:   "job." + string(to),
		Actor:  actor,
		Owner:  r.Owner,
		Job:    r.ID,
		From:   string(from),
		To:     string(to),
		Reason: reason,
	}

	if r.run != nil {
		e.Run = r.run.ID
	}

	y.event(e)

	if to.Final() {
		y.ended(r)
	}

	return nil
}
