package yardmaster

import (
	"time"

	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/queue"
)

// PlanDue reports whether something has changed since the last plan, and no plan is being
// made.
func (y *Yard) PlanDue() bool {
	if !y.planDue || y.planning {
		return false
	}

	return y.queue.Len() > 0 || len(y.running) > 0 && (y.cfg.Policy.Revises() || y.relocates())
}

// Freed reports whether a run has ended since the last plan: what it held is idle until the next.
func (y *Yard) Freed() bool { return y.freed }

// relocates reports whether the policy may move running jobs although none is queued: jobs on
// provisioned nodes, those that are too slow, and those that do badly beside others on their GPU.
func (y *Yard) relocates() bool {
	p, ok := y.cfg.Policy.(place.Relocator)

	return ok && p.Relocates() && (y.leases.Count() > 0 || y.slowDue || y.beside.AnyParted())
}

// Round asks the policy for a plan and carries it out.
func (y *Yard) Round(now time.Time) {
	v := y.view(now)
	holds := y.holds
	y.freed = false
	y.apply(now, place.Within(y.cfg.Policy, v, y.timeLimit()))

	// Other jobs may use the GPUs that were planned for one that was held.
	y.planDue = y.holds > holds || y.planAgain
}

// PlanAgain reports whether another plan can do at once what part of the last one could not.
func (y *Yard) PlanAgain() bool { return y.planAgain && y.PlanDue() }

// apply carries out a plan. What can no longer be carried out, because the yard has changed
// since the view was taken, is dropped.
func (y *Yard) apply(now time.Time, p place.Plan) {
	y.setNow(now)
	y.planAgain = false
	y.reservation = p.Reservation
	y.slowDue = false
	y.rememberWaits(p.Waits)
	y.noteSlow(p.Slow)
	y.setWakeTimer(p.WakeAt)

	y.recordDeferrals(p.Deferrals)
	y.releaseUnneeded(p.Releases)

	if len(p.Provisions) > 0 {
		y.provisionAll(p.Provisions)
		y.settleLeases()
	}

	if len(p.Starts) == 0 && len(p.Stops) == 0 {
		if len(p.Provisions) > 0 {
			y.holdExceeding()
		}

		return
	}

	y.carryOutPlan(now, p)
}

// carryOutPlan carries out the stops and starts of a plan.
func (y *Yard) carryOutPlan(now time.Time, p place.Plan) {
	v := y.basicView(now)
	good, bad := place.Check(v, p)
	for _, err := range bad {
		if place.Again(err) {
			y.planAgain, y.planDue = true, true
			continue
		}

		y.drop(Event{Reason: err.Error()})
	}

	again := restarts(good)
	for i := range good.Stops {
		s := &good.Stops[i]
		r, ok := y.jobs[s.Running.Job]
		if !ok || r.running != s.Running {
			y.drop(Event{Job: s.Running.Job, Reason: noLongerThere})
			continue
		}

		next := again[s.Running.Item]
		if next != nil && y.savesOnRequest(r) {
			y.prepareMove(r, s, next)
			continue
		}
		if next == nil && y.lend(r, s, v, good.Starts) {
			continue
		}

		y.decideStop(r, s, next)
		y.stopPlanned(r, s)
	}

	y.growBatch(len(good.Starts))

	for i := range good.Starts {
		y.start(&good.Starts[i])
	}

	if y.leases.Pending() {
		y.settleLeases()
	}

	if y.aheadDue {
		y.provisionAhead()
	}

	if y.promisesDue {
		y.fulfil()
	}

	if len(y.origins) > 0 {
		y.releaseOrigins()
	}

	y.holdExceeding()
	y.updateMeters()
}

// restarts returns the starts of a plan that also stops jobs: where those of them start again that do
// not go back to the queue.
func restarts(p place.Checked) map[*queue.Item]*place.Start {
	if len(p.Stops) == 0 {
		return nil
	}

	starts := make(map[*queue.Item]*place.Start, len(p.Starts))
	for i := range p.Starts {
		starts[p.Starts[i].Item] = &p.Starts[i]
	}

	return starts
}

// rememberWaits keeps what a plan says of jobs that it does not start, until the next plan.
func (y *Yard) rememberWaits(list []place.Wait) {
	y.waits, y.unprovided = nil, nil

	for i := range list {
		if y.waits == nil {
			y.waits = make(map[id.Job]string, len(list))
		}

		y.waits[list[i].Job] = list[i].Reason
	}
}

// start launches a job of a plan, or makes a promise if its GPUs are not free yet.
func (y *Yard) start(s *place.Start) {
	r, ok := y.jobs[s.Item.Job]
	switch {
	case ok && r.item == s.Item && r.State.Waiting():
		s = y.withinQuota(r, s)
		if h := y.heldBack(r, s.GPUs()); h.reason != "" {
			y.dequeue(r)
			y.holdJob(r, h)
			y.holds++
			y.planDue = true

			return
		}

		if y.nodes.Vacant(s) {
			y.launch(r, s)
			return
		}
	case ok && r.running != nil && r.running.Item == s.Item && (r.run.stoppedByPlan || r.run.move != nil):
		s = y.withinQuota(r, s)
	default:
		y.drop(Event{Job: s.Item.Job, Reason: noLongerQueued})
		return
	}

	y.promise(r, s)
}

// setWakeTimer makes a plan due at a time at which nothing else may happen; zero for never.
func (y *Yard) setWakeTimer(at time.Time) {
	y.timers.Stop(y.wakeTimer)
	y.wakeTimer = nil
	if !at.IsZero() {
		y.wakeTimer = y.after(at, func() { y.planDue = true })
	}
}

// growBatch makes room for the changes of n starts.
func (y *Yard) growBatch(n int) {
	y.changedJobs.Grow(n)
	y.changedRuns.Grow(n)
	y.orders.Grow(n)
	y.feed.Grow(n)
}

// moveJob applies an event to a job and adds it to the feed. Every change of a job's state
// goes through here.
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

	if to.Waiting() && r.NotBefore.After(y.now) {
		e.NotBefore = r.NotBefore
	}

	y.event(e)

	if len(r.questions) > 0 {
		y.withdrawAnswered(r)
	}

	if to.Final() || to == job.Cancelling || to == job.Pausing {
		y.releaseAwaited(r)
	}

	if to.Final() {
		y.closeJob(r)
	}

	return nil
}
