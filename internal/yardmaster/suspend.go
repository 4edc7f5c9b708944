package yardmaster

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/yardmaster/timers"
)

// A job that a plan preempts for a short one may be suspended in place instead of being stopped (place.LoanFor):
//
//  1. Its node is ordered to suspend the program. Until the node reports that it has, the job holds what it held.
//     If the node cannot, or does not answer, the job is stopped as any other.
//  2. The program is suspended. It holds host memory alone: its GPU is free for the other job, and it is not charged
//     for it. No policy sees it.
//  3. When the GPU is free again, the job gets it before anybody else does, and its node is ordered to let the program
//     continue.
//
// A suspended job is stopped and continues from its last checkpoint if it waits for too long, and whenever a
// running job would be: its node is drained or lost, or its owner pauses or cancels it. The order and the rank are
// stored, so that all of this is known after a restart.

const (
	// suspendWait is how long a node has to carry out an order to suspend a program or to let it continue. Moving the
	// memory of a large GPU takes a minute.
	suspendWait = 5 * time.Minute
	// suspendLimit is how long a program may be suspended: the other job may run longer than expected, or another one
	// may follow it.
	suspendLimit = 2 * place.MaxLoan
	// borrowWait is how long a GPU that was lent is kept for a job that waits for it, as after a restart of the server,
	// when promises are forgotten.
	borrowWait = time.Minute
)

// loan is what is going on between a run and a job to which it lends its GPU.
type loan struct {
	timer *timers.Timer // when the order must be carried out, or the program has been suspended for too long
	kept  bool          // the GPU is kept for the other job until borrowWait has passed
}

// suspendOrder returns the last order to suspend the program of a run or to let it continue; zero if there was none.
func (y *Yard) suspendOrder(run *runRecord) job.SuspendOrder {
	if o := y.orders.Get(run.ID, 0); o != nil {
		return o.Suspend
	}

	return job.SuspendOrder{}
}

// suspending reports whether a run is to be suspended and is not yet.
func (y *Yard) suspending(run *runRecord) bool {
	return y.suspendOrder(run).On() && !run.Suspended() && run.Stop == job.StopNone
}

// lend suspends a job that a plan preempts, if it can be, and reports whether it does. Otherwise the reason of the stop
// says why not.
func (y *Yard) lend(r *jobRecord, s *place.Stop, v *place.View, starts []place.Start) bool {
	run := r.run
	l, why := place.LoanFor(v, s, starts)

	// Which memory the programs need that are just being suspended there is not known yet.
	if n, ok := y.nodes.Get(run.Ranks[0].Node); l != nil && (!ok ||
		slices.ContainsFunc(sortedKeys(n.Runs), func(o id.Run) bool { return y.suspending(y.runs[o]) })) {
		l, why = nil, "another program there is just being suspended"
	}

	if l == nil {
		if why != "" {
			s.Reason += "; not suspended in place: " + why
		}

		return false
	}

	to := l.To.Item.Job
	y.orders.Suspend(run.ID, 0, job.SuspendOrder{Room: l.Room, For: to, Why: s.Reason})
	r.running.Stopping = true
	y.awaitSuspension(r, run, y.now.Add(suspendWait))
	y.suspendEvent(r, "run.suspending", fmt.Sprintf("%s; being suspended in place until %s has run, about %s",
		s.Reason, to, job.Duration(l.Runs.Round(time.Second))))

	return true
}

// suspendEvent records what happens to a run that is suspended, also as the reason of its job's state.
func (y *Yard) suspendEvent(r *jobRecord, kind, reason string) {
	r.Reason = reason
	y.changedJob(r)
	y.event(Event{
		Kind: kind, Actor: theYard, Owner: r.Owner, Job: r.ID, Run: r.run.ID, Node: r.run.Ranks[0].Node, Reason: reason,
	})
}

// awaitSuspension stops a run whose order to be suspended or to continue is not carried out in time.
func (y *Yard) awaitSuspension(r *jobRecord, run *runRecord, until time.Time) {
	y.setLoanTimer(run, until, func() {
		if run.Stop != job.StopNone {
			return
		}

		if y.suspending(run) {
			y.stopUnsuspended(r, fmt.Sprintf("its node did not suspend it within %s", job.Duration(suspendWait)))
			return
		}

		y.giveUpSuspended(r, fmt.Sprintf("its node did not let it continue within %s", job.Duration(suspendWait)))
	})
}

func (y *Yard) setLoanTimer(run *runRecord, at time.Time, due func()) {
	y.endLoan(run)
	l := &loan{}
	l.timer = y.after(at, func() {
		if run.loan == l {
			due()
		}
	})
	run.loan = l
}

// endLoan forgets the timer of a loan.
func (y *Yard) endLoan(run *runRecord) {
	if run.loan != nil {
		y.timers.Stop(run.loan.timer)
		run.loan = nil
	}
}

// stopUnsuspended stops a job that could not be suspended, as it would have been without.
func (y *Yard) stopUnsuspended(r *jobRecord, why string) {
	s := place.Stop{Running: r.running, Reason: y.suspendOrder(r.run).Why}
	y.suspendEvent(r, "run.suspend_failed", fmt.Sprintf("could not be suspended in place: %s; being stopped", why))
	y.decideStop(r, &s, nil)
	y.stopPlanned(r, &s)
}

// watchSuspension handles what a node reports about the suspension of a rank.
func (y *Yard) watchSuspension(r *jobRecord, run *runRecord, k *job.Rank, s *job.Suspension) {
	order := y.suspendOrder(run)
	if s.Number == 0 || s.Number != order.Number || *s == k.Suspension {
		return // it was told so before, or has not heard of the last order
	}

	carriedOut := s.Number > k.Suspension.Number
	k.Suspension = *s
	y.changedRun(run)

	if run.Suspended() {
		y.bookNodes(r, run) // it may need other memory than it was said to
	}

	switch {
	case run.Stop != job.StopNone || !carriedOut:
	case order.On() && s.On:
		y.suspended(r, run, k, order)
	case order.On():
		y.stopUnsuspended(r, s.Error)
	default:
		y.endLoan(run)
		y.suspendEvent(r, "run.resumed", "running again on "+nodesOf(run)+", after it was suspended in place")
	}
}

// suspended records that the program of a run is suspended: its GPU is free.
func (y *Yard) suspended(r *jobRecord, run *runRecord, k *job.Rank, order job.SuspendOrder) {
	y.decideStop(r, &place.Stop{Running: r.running, Reason: order.Why}, nil)
	y.timers.Stop(run.timeout)
	y.countUse(r, k, -1)
	y.people.Charge(y.now, r.Owner, r.Project, -k.Weight)

	r.Stops++
	r.outlook.Stops = r.Stops

	k.Suspended, r.Suspended = y.now, y.now
	holdProgress(r.running, y.now)
	y.running.remove(r.running)
	y.bookNodes(r, run)
	y.lent = append(y.lent, r)
	y.limitSuspension(r, run)
	y.suspendEvent(r, "run.suspended", fmt.Sprintf("suspended in place on %s, to continue when %s has run: %s",
		k.Node, order.For, order.Why))

	y.promisesDue = y.promisesDue || len(y.promises) > 0
	y.planDue = true
}

// holdProgress lets the progress of a job stand still from the time on at which it was suspended.
func holdProgress(rn *place.Running, since time.Time) {
	if rn.Rate > 0 {
		rn.Outlook.Done, rn.Outlook.At = rn.Done(since), since
	}

	rn.Rate = 0
}

// limitSuspension stops a suspended run when it has been suspended for too long.
func (y *Yard) limitSuspension(r *jobRecord, run *runRecord) {
	y.setLoanTimer(run, run.Ranks[0].Suspended.Add(suspendLimit), func() {
		if run.Stop == job.StopNone {
			y.giveUpSuspended(r, fmt.Sprintf("suspended in place for %s, and its GPU is not free yet",
				job.Duration(suspendLimit)))
		}
	})
}

// giveUpSuspended stops a suspended run. Its job is requeued and continues from its last checkpoint.
func (y *Yard) giveUpSuspended(r *jobRecord, reason string) {
	y.evict(r.run, r.run.Ranks[0].Node, theYard, reason)
}

// resumeLent lets the suspended jobs continue whose GPUs are free again, those first that were suspended last: they
// were running on GPUs that others had lent them.
func (y *Yard) resumeLent() {
	y.lent = slices.DeleteFunc(y.lent, func(r *jobRecord) bool { return r.run == nil || !r.run.Suspended() })
	slices.SortFunc(y.lent, func(a, b *jobRecord) int { // after a restart they are in any order
		return cmp.Or(a.Suspended.Compare(b.Suspended), cmp.Compare(a.entry.Number, b.entry.Number))
	})

	for _, r := range slices.Backward(slices.Clone(y.lent)) {
		if r.run.Stop == job.StopNone && y.mayResume(r) {
			y.resume(r)
		}
	}
}

// mayResume reports whether what a suspended job needs is free, and not kept for the one that it was lent to.
func (y *Yard) mayResume(r *jobRecord) bool {
	k := &r.run.Ranks[0]

	room, ok := y.nodes.Rooms.Get(k.Node)
	if !ok || room.Node.State != fleet.Ready || fleet.Mask(k.GPUs)&^room.Free != 0 || room.CPUs < k.CPUs {
		return false
	}

	// A promise to the other job is booked, and the GPUs are not free then. Without one it may still be queued.
	to, ok := y.jobs[y.suspendOrder(r.run).For]
	if until := k.Suspended.Add(borrowWait); ok && to.item != nil && y.now.Before(until) {
		if !r.run.loan.kept {
			r.run.loan.kept = true
			y.after(until, func() {}) // looks again
		}

		return false
	}

	return true
}

// resume lets a suspended job continue. It holds its GPUs from now on.
func (y *Yard) resume(r *jobRecord) {
	run := r.run
	k := &run.Ranks[0]

	if h := y.quotaReached(r, len(k.GPUs)); h.reason != "" {
		y.giveUpSuspended(r, h.reason)
		return
	}

	was := job.Duration(max(y.now.Sub(k.Suspended), 0)) // the clock of another server may be behind
	k.Lent += was
	k.Suspended, k.Resumed, r.Suspended = time.Time{}, y.now, time.Time{}
	y.changedRun(run)

	rn := r.running
	rn.Began, rn.Stopping = run.WorkingSince(), false
	rn.Rate = place.ExpectedRate(rn.Outlook, rn.Allocations, y.nodes.Of)
	if !rn.Outlook.At.IsZero() {
		rn.Outlook.At = y.now
	}

	y.running.insert(rn)
	y.bookNodes(r, run)
	y.countUse(r, k, 1)
	y.people.Charge(y.now, r.Owner, r.Project, k.Weight)
	y.resumeDecision(r, run)

	if d := time.Duration(r.Spec.MaxDuration); d > 0 {
		y.setTimeout(run.ID, d)
	}

	y.orders.Suspend(run.ID, 0, job.SuspendOrder{})
	y.awaitSuspension(r, run, y.now.Add(suspendWait))
	y.suspendEvent(r, "run.resuming", fmt.Sprintf("its GPU on %s is free again; continues after it was suspended for %s",
		k.Node, job.Duration(time.Duration(was).Round(time.Second))))
}

// resumeDecision lets a run carry out the decision by which it was suspended: it need not start again.
func (y *Yard) resumeDecision(r *jobRecord, run *runRecord) {
	d := y.ledger.Decision(r.ID)
	if d == nil || d.Run != "" {
		return
	}

	d.Startup, d.Restart, d.Ratio = 0, 0, 1
	y.carryOut(r, run)
}

// loadSuspension restores how far the suspension of a run was when the server ended. Its rank is booked.
func (y *Yard) loadSuspension(r *jobRecord, run *runRecord) {
	order := y.suspendOrder(run)

	switch {
	case order.Number == 0 || run.Stop != job.StopNone:
	case run.Suspended():
		y.limitSuspension(r, run)
	case run.Ranks[0].Suspension.Number < order.Number:
		r.running.Stopping = order.On()
		y.awaitSuspension(r, run, y.now.Add(suspendWait))
	}

	if run.Suspended() {
		holdProgress(r.running, run.Ranks[0].Suspended)
		y.running.remove(r.running)
		y.lent = append(y.lent, r)
	}
}
