package yardmaster

import (
	"fmt"
	"slices"

	"trainyard/internal/admit"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/queue"
	"trainyard/internal/tenant"
)

// PutLimit sets, changes or removes what a user or project may have. The answer is the limit.
type PutLimit struct {
	Limit tenant.Limit
	By    string
}

func (m PutLimit) handle(y *Yard) (any, error) {
	l := m.Limit
	if old, ok := y.books.Limits.Own(l.Subject); ok {
		l.Seq = old.Seq
	} else if l.Removed {
		return nil, fault.New(fault.NotFound, "limit_not_found", "there is no limit for %s", l.Subject)
	}
	l.Seq++
	words := "limit of " + l.Subject.String() + " set by " + m.By
	if l.Removed {
		y.books.Limits.Remove(l.Subject)
		words = "limit of " + l.Subject.String() + " removed by " + m.By
	} else if err := y.books.Limits.Put(l); err != nil {
		return nil, err
	}
	y.out.limits = append(y.out.limits, l)
	y.event(Event{Kind: "limit.set", Actor: m.By, Owner: l.Subject.User, Reason: words})
	y.letBack()
	y.round = true
	return l, nil
}

// limited reports whether anyone is limited, or a running job has a budget.
func (y *Yard) limited() bool { return y.books.Limits.Any() || y.budgets > 0 || y.aside.Len() > 0 }

// allow tells what a job may still take.
func (y *Yard) allow(it *queue.Item) tenant.Allowance {
	r, ok := y.jobs[it.Job]
	if !ok {
		return tenant.Unlimited()
	}
	return y.allowance(r)
}

func (y *Yard) allowance(r *jobRecord) tenant.Allowance {
	return y.books.Limits.Allow(y.now, r.who(), r.Spec.Budget, r.Cost-r.Paid)
}

// borrows reports whether the owner of a job, or its project, has more GPUs than their limit.
func (y *Yard) borrows(it *queue.Item) bool {
	r, ok := y.jobs[it.Job]
	return ok && y.books.Limits.Any() && y.books.Limits.Borrowed(r.who()) > 0
}

// barred says which limit keeps a job from having so many GPUs now, "" if none does.
func (y *Yard) barred(r *jobRecord, gpus int) string {
	if !y.limited() && r.Spec.Budget == 0 {
		return ""
	}
	a := y.allowance(r)
	switch {
	case a.Hold != "":
		return a.Hold
	case gpus > a.Ceiling:
		return fmt.Sprintf("%s is reached: it leaves %d and this job needs %d", a.By.GPUs, max(a.GPUs, 0), gpus)
	}
	return ""
}

// setAside keeps a job out of the line until its owner may have more.
func (y *Yard) setAside(r *jobRecord, why string) {
	number, _ := r.ID.Number()
	y.aside.Put(r.purse(), number)
	if r.aside != why {
		r.aside, r.Reason = why, why
		y.changedJob(r)
		y.event(Event{Kind: "job.held", Actor: theYard, Owner: r.Owner, Job: r.ID, To: string(r.State), Reason: why})
	}
}

func (r *jobRecord) purse() queue.Purse { return queue.Purse{User: r.Owner, Project: r.Project} }

// bringBack takes a job from those that are aside.
func (y *Yard) bringBack(r *jobRecord) {
	if r.aside == "" {
		return
	}
	number, _ := r.ID.Number()
	y.aside.Remove(r.purse(), number)
	r.aside = ""
}

// letBack lets those back into the line whose limits allow it, in order of submission.
func (y *Yard) letBack() {
	for _, p := range y.aside.Purses() {
		for number, ok := y.aside.First(p); ok; number, ok = y.aside.First(p) {
			r := y.jobs[id.NewJob(number)]
			need := y.need(r)
			if why := y.barred(r, need.GPUs*need.Nodes); why != "" {
				y.setAside(r, why)
				break
			}
			y.bringBack(r)
			r.Reason = "waits for its turn"
			y.changedJob(r)
			y.enqueue(r)
		}
	}
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
		if n, ok := y.nodes[s.Node]; ok && n.Lease != "" {
			return true
		}
	}
	return false
}

// gpusOf counts the GPUs of a start.
func gpusOf(s *place.Start) int {
	n := 0
	for _, seat := range s.Seats {
		n += count64(seat.GPUs)
	}
	return n
}
