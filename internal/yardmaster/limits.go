package yardmaster

import (
	"math/bits"
	"slices"

	"trainyard/internal/admit"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/tenant"
)

// PutLimit sets, changes or removes what a user or project may have. The answer is the limit.
type PutLimit struct {
	Limit tenant.Limit
	By    string
}

func (m PutLimit) handle(y *Yard) (any, error) {
	l, err := y.cashier.Put(y.now, m.Limit, m.By)
	if err != nil {
		return nil, err
	}
	y.letBack()
	y.round = true
	return l, nil
}

// allowance is what a job may still take.
func (y *Yard) allowance(r *jobRecord) tenant.Allowance {
	a := r.account()
	return y.cashier.Allowance(y.now, &a)
}

// barred says which limit keeps a job from having so many GPUs now, "" if none does.
func (y *Yard) barred(r *jobRecord, gpus int) string {
	a := r.account()
	return y.cashier.Barred(y.now, &a, gpus)
}

// setAside keeps a job out of the line until its owner may have more.
func (y *Yard) setAside(r *jobRecord, why string) {
	y.cashier.SetAside(r.who())
	if r.aside != why {
		r.aside, r.Reason = why, why
		y.changedJob(r)
		y.event(Event{Kind: "job.held", Actor: theYard, Owner: r.Owner, Job: r.ID, To: string(r.State), Reason: why})
	}
}

// bringBack takes a job from those that are aside.
func (y *Yard) bringBack(r *jobRecord) {
	if r.aside == "" {
		return
	}
	y.cashier.BringBack(r.who())
	r.aside = ""
}

// letBack lets those back into the line whose limits allow it, in order of submission.
func (y *Yard) letBack() {
	y.cashier.LetBack(func(j id.Job) bool {
		r := y.jobs[j]
		need := y.need(r)
		if why := y.barred(r, need.GPUs*need.Nodes); why != "" {
			y.setAside(r, why)
			return false
		}
		y.bringBack(r)
		r.Reason = "waits for its turn"
		y.changedJob(r)
		y.enqueue(r)
		return true
	})
}

// alert tells people that a limit is near, reached or free again, and does what it asks for.
func (y *Yard) alert(a *admit.Alert) {
	e := Event{Kind: "budget." + string(a.Kind), Actor: theYard, Owner: a.Subject.User, Job: a.Job, Reason: a.Sentence}
	if r, ok := y.jobs[a.Job]; ok {
		e.Owner = r.Owner
	}
	y.event(e)
	if a.Kind != admit.UsedUp || a.Action != tenant.LimitStop && a.Action != tenant.LimitDowngrade {
		return
	}
	for _, rn := range slices.Clone(y.running) {
		r := y.jobs[rn.Job]
		mine := r.ID == a.Job || a.Job == "" && (r.Owner == a.Subject.User || a.Subject.Project != "" && r.Project == a.Subject.Project)
		if mine && a.Job != "" { // its own budget: its owner is asked
			y.must(y.moveJob(r, job.EventPause, theYard, a.Sentence+"; trainyard resume "+string(r.ID)+" lets it spend as much again"))
			y.stop(r.run, job.StopTerm, job.CausePreempted)
			continue
		}
		if mine && !rn.Stopping && (a.Action == tenant.LimitStop || y.rents(rn)) {
			y.stopPlanned(r, &place.Stop{Running: rn, Reason: a.Sentence})
			y.round = true
		}
	}
}

// rents reports whether a job runs on nodes that are paid for its sake.
func (y *Yard) rents(rn *place.Running) bool {
	for _, s := range rn.Seats {
		if n := y.nodes.Of(s.Node); n != nil && n.Lease != "" {
			return true
		}
	}
	return false
}

// gpusOf counts the GPUs of a start.
func gpusOf(s *place.Start) int {
	n := 0
	for _, seat := range s.Seats {
		n += bits.OnesCount64(seat.GPUs)
	}
	return n
}
