package yardmaster

import (
	"time"

	"trainyard/internal/job"
	"trainyard/internal/place"
)

// Wanted reports whether something changed that the policy should look at.
func (y *Yard) Wanted() bool {
	return y.round && (y.line.Len() > 0 || len(y.running) > 0 && y.cfg.Policy.Revises())
}

// Round asks the policy for a plan and carries it out.
func (y *Yard) Round(now time.Time) {
	v := y.glance(now)
	if y.cfg.Limit != nil {
		v.Enough = y.cfg.Limit()
	}
	y.Apply(now, y.cfg.Policy.Plan(v))
	y.round = false
}

// View returns what a policy sees. The rooms are a copy; the rest is the yard's
// own and must not be used after the next message.
func (y *Yard) View(now time.Time) *place.View {
	v := y.glance(now)
	v.Rooms, v.Bands = y.nodes.Rooms.Rooms(), nil
	return v
}

// glance is a view without a copy, for who is done with it before anything changes.
func (y *Yard) glance(now time.Time) *place.View {
	y.setNow(now)
	v := &place.View{
		Now: y.now, Rooms: y.nodes.Rooms.Own(), Bands: y.nodes.Rooms.Bands(), Line: y.line, Running: y.running, Usage: y.usage, ProjectUsage: y.projectUsage, Tariff: y.cfg.Tariff,
		Offers: y.hiring.Market.Open(y.now), Leases: y.hiring.Live(), Allow: y.allow, Stage: y.stage, Past: &y.past, Rule: y.rule,
	}
	if y.cashier.Limited() { // else nobody has more than they may
		v.Borrows = y.borrows
	}
	return v
}

// Apply carries out a plan. What can no longer be carried out, because the yard
// has moved on since the view was taken, is dropped.
func (y *Yard) Apply(now time.Time, p place.Plan) {
	y.setNow(now)
	y.held = p.Held
	y.askAgain(p.Again)
	if len(p.Hires) > 0 {
		y.hires(p.Hires)
		y.settleLeases()
	}
	if len(p.Starts) == 0 && len(p.Stops) == 0 {
		return
	}
	good, bad := place.Check(y.glance(now), p)
	for _, err := range bad {
		y.event(Event{Kind: "plan.dropped", Actor: theYard, Reason: err.Error()})
	}
	for i := range good.Stops {
		s := &good.Stops[i]
		r, ok := y.jobs[s.Running.Job]
		if !ok || r.running != s.Running {
			y.event(Event{Kind: "plan.dropped", Actor: theYard, Job: s.Running.Job, Reason: "the job no longer runs there"})
			continue
		}
		y.stopPlanned(r, s)
	}
	y.expect(len(good.Starts))
	for i := range good.Starts {
		y.start(&good.Starts[i])
	}
	if y.hiring.Pending() {
		y.settleLeases()
	}
	if y.freed {
		y.fulfil()
	}
	y.account()
}

// start launches a job of a plan, or promises it its seats until they are free.
func (y *Yard) start(s *place.Start) {
	r, ok := y.jobs[s.Item.Job]
	switch {
	case ok && r.item == s.Item && r.State.Waiting():
		if why := y.barred(r, gpusOf(s)); why != "" {
			y.dequeue(r)
			y.setAside(r, why)
			return
		}
		if y.nodes.Vacant(s) {
			y.saved(r, s)
			y.launch(r, s)
			return
		}
	case ok && r.running != nil && r.running.Item == s.Item && r.run.planned:
	default:
		y.event(Event{Kind: "plan.dropped", Actor: theYard, Job: s.Item.Job, Reason: "the job no longer waits"})
		return
	}
	y.promise(r, s)
}

// askAgain lets the policy be asked at a time at which nothing else may happen.
func (y *Yard) askAgain(at time.Time) {
	y.timers.Drop(y.asked)
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
	e := Event{Kind: "job." + string(to), Actor: actor, Owner: r.Owner, Job: r.ID, From: string(from), To: string(to), Reason: reason}
	if r.run != nil {
		e.Run = r.run.ID
	}
	y.event(e)
	if to.Final() {
		y.ended(r)
	}
	return nil
}
