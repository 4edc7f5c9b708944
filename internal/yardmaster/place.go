package yardmaster

import (
	"time"

	"trainyard/internal/job"
	"trainyard/internal/place"
)

// Wanted reports whether something changed that may let a job start.
func (y *Yard) Wanted() bool { return y.round && y.line.Len() > 0 }

// Round asks the policy for a plan and carries it out.
func (y *Yard) Round(now time.Time) {
	y.setNow(now)
	y.Apply(now, y.cfg.Policy.Plan(y.View(now)))
	y.round = false
}

// View returns what a policy sees. The rooms are a copy; the line is the
// yard's own and must not be used after the next message.
func (y *Yard) View(now time.Time) *place.View {
	y.setNow(now)
	return &place.View{Now: y.now, Rooms: y.table.Rooms(), Line: y.line, Usage: y.usage}
}

// Apply carries out a plan. Starts that can no longer be carried out, because
// the yard has moved on since the view was taken, are dropped.
func (y *Yard) Apply(now time.Time, p place.Plan) {
	y.setNow(now)
	y.held = p.Held
	if len(p.Starts) == 0 {
		return
	}
	good, bad := place.Check(y.View(now), p)
	for _, err := range bad {
		y.event(Event{Kind: "plan.dropped", Actor: theYard, Reason: err.Error()})
	}
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
