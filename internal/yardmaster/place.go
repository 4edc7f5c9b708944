package yardmaster

import (
	"slices"
	"time"

	"trainyard/internal/job"
	"trainyard/internal/place"
)

// Wanted reports whether something changed that may let a job start.
func (y *Yard) Wanted() bool { return y.round && y.line.Len() > 0 }

// Round asks the policy for a plan and carries it out.
func (y *Yard) Round(now time.Time) {
	y.Apply(now, y.cfg.Policy.Plan(y.glance(now)))
	y.round = false
}

// View returns what a policy sees. The rooms are a copy; the line is the
// yard's own and must not be used after the next message.
func (y *Yard) View(now time.Time) *place.View {
	v := y.glance(now)
	v.Rooms = y.table.Rooms()
	return v
}

// glance is a view without a copy, for who is done with it before anything changes.
func (y *Yard) glance(now time.Time) *place.View {
	y.setNow(now)
	return &place.View{Now: y.now, Rooms: y.table.Own(), Line: y.line, Usage: y.usage}
}

// Apply carries out a plan. Starts that can no longer be carried out, because
// the yard has moved on since the view was taken, are dropped.
func (y *Yard) Apply(now time.Time, p place.Plan) {
	y.setNow(now)
	y.held = p.Held
	if len(p.Starts) == 0 {
		return
	}
	good, bad := place.Check(y.glance(now), p)
	for _, err := range bad {
		y.event(Event{Kind: "plan.dropped", Actor: theYard, Reason: err.Error()})
	}
	y.expect(len(good))
	for i := range good {
		s := &good[i]
		r, ok := y.jobs[s.Item.Job]
		if !ok || r.item != s.Item || !r.State.Waiting() {
			y.event(Event{Kind: "plan.dropped", Actor: theYard, Job: s.Item.Job, Reason: "the job no longer waits"})
			continue
		}
		y.launch(r, s)
	}
}

// expect makes room for what so many starts will change.
func (y *Yard) expect(n int) {
	o := &y.out
	o.jobs, o.runs, o.orders, o.events = slices.Grow(o.jobs, n), slices.Grow(o.runs, n), slices.Grow(o.orders, n), slices.Grow(o.events, n)
}

// moveJob applies an event to a job and writes it down. Every change of a
// job's state goes through here.
func (y *Yard) moveJob(r *jobRecord, ev job.Event, actor, reason string) error {
	to, err := r.State.After(ev)
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
