package yardmaster

import (
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/ledger"
	"trainyard/internal/place"
	"trainyard/internal/provision"
)

// The decisions about a job divide its life into parts. A decision accounts for the time from when
// it was made until the next one about the same job, or until the job has ended; at most one is
// open at a time, so nothing is counted twice. A start that only carries out what was decided
// before (on the node that the job waited for, or that was provisioned for it, or to which it
// moves) is no decision of its own.

// decided says how a decision is carried out.
type decided struct {
	awaited    bool // by a later start
	provisions bool // on a node that is provisioned for the job
}

// decide records a decision about a job, which ends the part of the one before. Without a
// counterfactual nothing is accounted for from now on.
func (y *Yard) decide(r *jobRecord, c *place.Counterfactual, how decided) {
	if y.cfg.Unmetered {
		return
	}

	unused := y.unusedRent(r)
	y.closeDecision(r, unused, false)

	if c == nil {
		return
	}

	terms, known := y.termsOf(r, c)
	if !known {
		return // its node or its offer is gone: nobody knows what it would have cost
	}

	y.ledger.Decide(r.ID, r.Owner, r.Project, ledger.Decision{
		Kind: string(c.Kind), At: y.now, Counterfactual: terms, CostBefore: y.costNow(r) + unused,
		Awaited: how.awaited, Provisions: how.provisions,
	})
}

// termsOf returns a counterfactual with the prices of its nodes.
func (y *Yard) termsOf(r *jobRecord, c *place.Counterfactual) (terms ledger.Counterfactual, known bool) {
	terms = ledger.Counterfactual{
		What:     c.What,
		StartsIn: ledger.SpanOf(c.StartsIn),
		Lead:     ledger.SpanOf(c.ReadyIn - c.StartsIn),
		Runs:     ledger.SpanOf(c.Runs),
		Startup:  ledger.SpanOf(c.Startup),
		Restart:  ledger.SpanOf(c.Restart),
		Ratio:    c.Ratio,
	}

	if c.Offer != "" {
		o, offered := y.leases.Market.Offer(c.Offer)
		terms.Hourly = o.PerHour()
		terms.Nodes = c.Count
		terms.BillingUnit = ledger.SpanOf(time.Duration(o.BillingIncrement))
		terms.MinBilled = ledger.SpanOf(time.Duration(o.MinBilling))

		return terms, offered
	}

	for _, a := range c.Allocations {
		n := y.nodes.Of(a.Node)
		if n == nil {
			return terms, false
		}

		k := job.Rank{GPUs: fleet.Indices(a.GPUs), Share: a.Share, CPUs: r.entry.Shape.Need.CPUs}
		terms.Hourly += y.ledger.Rate(n, &k, y.Lease(n.Lease))
	}

	return terms, len(c.Allocations) > 0
}

// recordDeferrals records which queued jobs wait although nodes could be provisioned for them. A job
// that was preempted waits because of that.
func (y *Yard) recordDeferrals(list []place.Deferral) {
	for i := range list {
		w := &list[i]
		r, ok := y.jobs[w.Item.Job]
		if !ok || r.item != w.Item {
			continue
		}

		r.item.Deferred = true

		if w.Counterfactual != nil && y.ledger.Decision(r.ID) == nil {
			y.decide(r, w.Counterfactual, decided{awaited: true})
		}
	}
}

// decideStart records the decision to start a job, unless the start only carries out an earlier
// one.
func (y *Yard) decideStart(r *jobRecord, s *place.Start) {
	d := y.ledger.Decision(r.ID)
	preempts := s.Counterfactual != nil && s.Counterfactual.Kind == place.Preemption

	if d != nil && d.Awaited && d.Run == "" && !preempts && (!d.Provisions || y.leasedFor(r, s)) {
		y.compareWith(r, s, d)
		return
	}

	y.decide(r, s.Counterfactual, decided{})
}

// compareWith compares the counterfactual of a decision to wait with the nodes that the job really gets:
// what provisions does not always know on which of them the policy will start it.
func (y *Yard) compareWith(r *jobRecord, s *place.Start, d *ledger.Decision) {
	if d.Kind != string(place.Waiting) || d.Runs <= d.Startup {
		return
	}

	if works := ledger.SpanOf(place.RunTimeOn(s.Item, s.Allocations, y.nodes.Of)) - d.Startup; works > 0 {
		d.Ratio = float64(d.Runs-d.Startup) / float64(works)
		y.ledger.DecisionChanged(r.ID)
	}
}

// decideProvision records the decision to provision nodes for a job. What a job that was preempted
// pays and waits for because it has no other choice is a loss by its preemption.
func (y *Yard) decideProvision(r *jobRecord, c *place.Counterfactual) {
	d := y.ledger.Decision(r.ID)
	if c == nil && d != nil && d.Kind == string(place.Preemption) && !d.Awaited && d.Run == "" {
		return
	}

	y.decide(r, c, decided{awaited: true, provisions: true})
}

// leasedFor reports whether a start is on a node that was provisioned for its job.
func (y *Yard) leasedFor(r *jobRecord, s *place.Start) bool {
	n := y.nodes.Of(s.Allocations[0].Node)
	if n == nil {
		return false
	}

	l := y.Lease(n.Lease)

	return l != nil && l.Job == r.ID
}

// chargeLoss records in the decision that took a job from its nodes that it has to do work again that it had saved
// there.
func (y *Yard) chargeLoss(r *jobRecord, s *place.Start, lost float64) {
	d := y.ledger.Decision(r.ID)
	rate := place.ExpectedRate(r.outlook, s.Allocations, y.nodes.Of)
	if lost == 0 || d == nil || d.Run != "" || rate <= 0 {
		return
	}

	d.Restart += ledger.SpanOf(job.Seconds(lost / rate))
	y.ledger.DecisionChanged(r.ID)
}

// carryOut records that a run carries out the open decision about its job.
func (y *Yard) carryOut(r *jobRecord, run *runRecord) {
	if d := y.ledger.Decision(r.ID); d != nil {
		d.Run, d.Awaited = run.ID, false
		y.ledger.DecisionChanged(r.ID)
	}
}

// decideStop records the decision to stop a running job, to move it or to preempt it. Whoever made
// the plan, the job would have continued where it is.
func (y *Yard) decideStop(r *jobRecord, s *place.Stop, next *place.Start) {
	if y.cfg.Unmetered {
		return
	}

	y.endPart(r, place.Stay(y.now, s, next, y.nodes.Of), decided{awaited: next != nil})
}

// endPart ends the part of the decision that a run carries out, because the run is stopped.
func (y *Yard) endPart(r *jobRecord, c *place.Counterfactual, how decided) {
	if d := y.ledger.Decision(r.ID); d != nil && d.Run == r.run.ID {
		d.Ran += ranUntil(r.run, y.now)
	}

	y.decide(r, c, how)
}

// ranUntil returns how long a run has run by a time. If it was suspended, what it ran before belongs to another
// decision.
func ranUntil(run *runRecord, at time.Time) ledger.Span {
	since := later(run.Started, run.Ranks[0].Resumed)
	if run.Suspended() {
		at = earlier(at, run.Ranks[0].Suspended)
	}

	if run.Started.IsZero() || at.Before(since) {
		return 0
	}

	return ledger.SpanOf(at.Sub(since))
}

// creditRun records in the open decision how long the job ran there. done is the work that was
// done before the run.
func (y *Yard) creditRun(r *jobRecord, run *runRecord, cause job.Cause, done float64) {
	d := y.ledger.Decision(r.ID)
	if d == nil {
		return
	}

	switch {
	case (run.stoppedByPlan || run.Suspended()) && d.Run != run.ID:
		y.chargeStop(r, run, d, cause, done)
	case d.Run != run.ID:
		return
	case ownEnd(cause) || r.State == job.Cancelling || r.State == job.Pausing:
		d.Ran += ranUntil(run, y.now)
		d.SameMoment = !ownEnd(cause)

		if cause == job.CauseTimedOut {
			d.Ratio = 1 // its limit is the same everywhere
		}
	default:
		d.Ran += y.kept(r, run, cause, done)
	}

	y.ledger.DecisionChanged(r.ID)
}

// chargeStop records in the decision to stop a run what that made necessary: to start again, and to
// do again what had not been saved.
func (y *Yard) chargeStop(r *jobRecord, run *runRecord, d *ledger.Decision, cause job.Cause, done float64) {
	ran := ranUntil(run, run.stopOrdered)
	if ownEnd(cause) { // it ended by itself before it had stopped
		d.Ran += ranUntil(run, y.now) - ran
		d.Startup, d.Restart, d.Ratio = 0, 0, 1

		return
	}

	d.Restart = ran - y.saved(r, max(ran-d.Startup, 0), cause, done)
}

// saved returns how much of the time that a run had worked when it was told to stop its job need not
// work again. done is the work that was done before the run.
func (y *Yard) saved(r *jobRecord, worked ledger.Span, cause job.Cause, done float64) ledger.Span {
	o := r.running.Outlook

	switch {
	case !o.Resumes:
		return 0
	case o.Speed != nil && r.running.Rate > 0:
		return ledger.SpanOf(job.Seconds(max(r.Done-done, 0) / r.running.Rate))
	case cause == job.CausePreempted:
		return worked // it saved a checkpoint
	case o.Every > 0:
		return worked - worked%ledger.SpanOf(o.Every)
	}

	return 0
}

// ownEnd reports whether a run ended because of what its program did: after the same work it would
// have ended in the same way elsewhere.
func ownEnd(cause job.Cause) bool {
	switch cause {
	case job.CauseNone, job.CauseUserCode, job.CauseHostOOM, job.CauseGPUOOM, job.CauseSetupFailed, job.CauseTimedOut,
		job.CauseDiskLimit:
		return true
	case job.CauseNodeLost, job.CauseImageFailed, job.CauseDataFailed, job.CauseLaunchFailed, job.CauseCancelled,
		job.CausePreempted, job.CauseNeedFailed, job.CauseRestoreFailed, job.CauseSupervisorLost:
	}

	return false
}

// kept returns how much of the time of a run that was broken off was not in vain: until its last
// checkpoint.
func (y *Yard) kept(r *jobRecord, run *runRecord, cause job.Cause, done float64) ledger.Span {
	ran := ranUntil(run, y.now)
	o := r.running.Outlook

	switch {
	case !o.Resumes:
		return 0
	case o.Speed != nil && r.running.Rate > 0:
		if r.Done <= done {
			return 0
		}

		worked := job.Seconds((r.Done - done) / r.running.Rate)

		return min(ledger.SpanOf(time.Duration(o.Speed.Start)+worked), ran)
	case cause == job.CausePreempted:
		return ran // it was told to stop, and saved a checkpoint
	case o.Every > 0:
		return ran - ran%ledger.SpanOf(o.Every)
	}

	return 0
}

// leaveRun ends the part of the decision that a run carried out, if its job goes on. The time until
// a job runs again that its node let down belongs to the decision that put it there.
func (y *Yard) leaveRun(r *jobRecord, run *runRecord, cause job.Cause) {
	d := y.ledger.Decision(r.ID)
	if d == nil || d.Run != run.ID {
		return
	}

	if ownEnd(cause) || d.SameMoment {
		y.closeDecision(r, 0, false)
	}
}

// suspendDecision ends the part of the open decision about a job that was paused while it was
// queued.
func (y *Yard) suspendDecision(r *jobRecord) {
	if d := y.ledger.Decision(r.ID); d != nil {
		d.SameMoment = true
		y.closeDecision(r, 0, false)
	}
}

// settleDecisions books what the decisions about a job saved, now that the job has ended.
func (y *Yard) settleDecisions(r *jobRecord) {
	if d := y.ledger.Decision(r.ID); d != nil {
		d.SameMoment = d.SameMoment || r.Cause == job.CauseCancelled
		y.closeDecision(r, y.remainingRent(r), true)
	}

	y.ledger.BookSavings(y.now, r.ID)
}

// closeDecision ends the part of the open decision about a job, if there is one. owed is what it
// makes the job pay later.
func (y *Yard) closeDecision(r *jobRecord, owed ledger.Nanos, final bool) {
	if y.ledger.Decision(r.ID) == nil {
		return
	}

	p := ledger.Part{End: y.now, Cost: y.costNow(r) + owed, Final: final, Released: y.released}
	y.ledger.CloseDecision(r.ID, &p)
}

// unusedRent returns what nodes will still cost that were provisioned for a job in vain, because it
// starts elsewhere: that is the cost of the decision to provision them.
func (y *Yard) unusedRent(r *jobRecord) ledger.Nanos {
	if d := y.ledger.Decision(r.ID); d == nil || !d.Provisions || d.Run != "" {
		return 0
	}

	return y.remainingRent(r)
}

// costNow returns what a job has cost until now, with what is not posted yet.
func (y *Yard) costNow(r *jobRecord) ledger.Nanos {
	var nodes []id.Node
	var arriving []id.Lease

	if r.run != nil {
		for i := range r.run.Ranks {
			nodes = append(nodes, r.run.Ranks[i].Node)
		}
	}

	for _, l := range y.leases.Live() {
		if l.Job == r.ID {
			nodes = append(nodes, l.Node)
			arriving = append(arriving, l.ID)
		}
	}

	slices.Sort(nodes)

	return ledger.NanosOf(r.Cost) + y.ledger.Unposted(y.now, r.ID, slices.Compact(nodes), arriving)
}

// remainingRent returns what the nodes that were provisioned for a job will still cost, as far as
// nobody else uses them: they are kept for a while, and paid for in whole billing increments.
func (y *Yard) remainingRent(r *jobRecord) ledger.Nanos {
	var sum ledger.Nanos
	for _, l := range y.leases.Live() {
		if l.Job != r.ID {
			continue
		}

		n, joined := y.nodes.Get(l.Node)
		if !joined || !l.Live() {
			sum += ledger.RemainingCost(l, y.now, y.now) // it is released at once
			continue
		}

		others := len(n.Runs)
		if r.run != nil {
			if _, here := n.Runs[r.run.ID]; here {
				others--
			}
		}

		if others == 0 {
			sum += ledger.RemainingCost(l, y.now, y.released(l, y.now))
		}
	}

	return sum
}

// released returns when a provisioned node is released that nothing uses since a time.
func (y *Yard) released(l *fleet.Lease, since time.Time) time.Time {
	return provision.ReleaseAt(l, since, y.cfg.Keep)
}
