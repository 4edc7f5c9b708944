package yardmaster

import (
	"fmt"
	"math/bits"
	"slices"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/ledger"
	"trainyard/internal/money"
	"trainyard/internal/place"
	"trainyard/internal/queue"
	"trainyard/internal/quota"
	"trainyard/internal/tenant"
)

// PutQuota sets, changes or removes the quota of a user or project. The answer is the quota.
type PutQuota struct {
	Quota tenant.Quota
	By    string
}

func (m PutQuota) handle(y *Yard) (any, error) {
	q := m.Quota

	if old, ok := y.quotas.Own(q.Subject); ok {
		q.Seq = old.Seq
	} else if q.Removed {
		return nil, fault.New(fault.NotFound, "quota_not_found", "%s has no quota", q.Subject)
	}

	q.Seq++
	reason := "quota of " + q.Subject.String() + " set by " + m.By

	if q.Removed {
		y.quotas.Remove(q.Subject)
		reason = "quota of " + q.Subject.String() + " removed by " + m.By
	} else if err := y.quotas.Put(q); err != nil {
		return nil, err
	}

	y.changedQuotas = append(y.changedQuotas, q)
	y.event(Event{Kind: "quota.set", Actor: m.By, Owner: q.Subject.User, Reason: reason})
	y.requeueHeld()
	y.planDue = true

	return q, nil
}

// limited reports whether anyone has a quota, or a job that has not ended has a budget.
func (y *Yard) limited() bool { return y.quotas.Any() || y.budgets > 0 || y.heldJobs.Len() > 0 }

// countBudget counts a job with a budget that has not ended, or with -1 one that has.
func (y *Yard) countBudget(r *jobRecord, delta int) {
	if r.Spec.Budget > 0 {
		y.budgets += delta
	}
}

// payer is who pays for a job.
func (r *jobRecord) payer() quota.Payer {
	return quota.Payer{Owner: r.Owner, Project: r.Project, Job: r.ID}
}

// budgetCost is what a job has cost so far against its own budget.
func (r *jobRecord) budgetCost() money.Amount { return r.Cost - r.Paid }

// allowance returns what a job may still use.
func (y *Yard) allowance(r *jobRecord) tenant.Allowance {
	return y.quotas.Allow(y.now, r.payer(), r.Spec.Budget, r.budgetCost())
}

// quotaReached says which quota keeps a job from using so many GPUs now, "" if none does.
func (y *Yard) quotaReached(r *jobRecord, gpus int) string {
	if !y.limited() && r.Spec.Budget == 0 {
		return ""
	}

	allowance := y.allowance(r)

	switch {
	case allowance.HoldReason != "":
		return allowance.HoldReason
	case gpus > allowance.Ceiling:
		return fmt.Sprintf("quota reached: %s; %d needed, %d left", allowance.LimitedBy.GPUs, gpus, max(allowance.GPUs, 0))
	}

	return ""
}

// provisionQuotaReached says which quota forbids to provision nodes for a job, "" if none does.
func (y *Yard) provisionQuotaReached(r *jobRecord, h *place.Provision) string {
	allowance := y.allowance(r)

	switch {
	case allowance.HoldReason != "":
		return allowance.HoldReason
	case allowance.NoProvisioning:
		return allowance.LimitedBy.Money + " is used up; the job may only run on local and reserved nodes"
	case h.Count > allowance.Nodes:
		return fmt.Sprintf("%s is reached: %d needed, %d left", allowance.LimitedBy.Nodes, h.Count, allowance.Nodes)
	case h.Cost > allowance.Money:
		return fmt.Sprintf("%s has %s left, estimated cost is %s", allowance.LimitedBy.Money,
			humanize.Dollars(max(allowance.Money, 0)), humanize.Dollars(h.Cost))
	}

	return ""
}

// holdForQuota keeps a job out of the queue until its owner may use more. Held jobs are in
// y.heldJobs, from where requeueHeld takes them.
func (y *Yard) holdForQuota(r *jobRecord, reason string) {
	number, _ := r.ID.Number()
	y.heldJobs.Put(queuePayer(r), number)

	if r.holdReason == reason {
		return
	}

	r.holdReason, r.Reason = reason, reason
	y.changedJob(r)
	y.event(Event{
		Kind: "job.held", Actor: theYard, Owner: r.Owner, Job: r.ID, To: string(r.State), Reason: reason,
	})
}

// clearHold removes a job from the held jobs, if it is one of them.
func (y *Yard) clearHold(r *jobRecord) {
	if r.holdReason == "" {
		return
	}

	number, _ := r.ID.Number()
	y.heldJobs.Remove(queuePayer(r), number)
	r.holdReason = ""
}

// queuePayer is whose quotas may hold a job.
func queuePayer(r *jobRecord) queue.Payer { return queue.Payer{User: r.Owner, Project: r.Project} }

// requeueHeld puts held jobs back into the queue as far as quotas allow: for each payer in
// order of submission, until one has to stay, and then those behind it stay as well.
func (y *Yard) requeueHeld() {
	for _, p := range y.heldJobs.Payers() {
		for {
			number, ok := y.heldJobs.First(p)
			if !ok {
				break
			}

			r := y.jobs[id.NewJob(number)]

			need := y.need(r)
			if why := y.quotaReached(r, need.GPUs*need.Nodes); why != "" {
				y.holdForQuota(r, why)
				break
			}

			y.clearHold(r)
			r.Reason = "queued"
			y.changedJob(r)
			y.addToQueue(r, y.describeItem(r))
		}
	}
}

// quotaInterval is how often quotas are checked.
const quotaInterval = time.Minute

// watchQuotas checks the quotas regularly: usage is posted, people are notified, and what a
// quota asks for is done. It is called again when something changed that may exhaust a
// quota sooner.
func (y *Yard) watchQuotas() {
	if y.cfg.Unmetered {
		return
	}

	y.timers.Stop(y.quotaCheck)

	// A check that is due is not put off: a budget may be used up since, and is not seen coming then.
	next := y.nextQuotaCheck()
	if !y.quotaCheckAt.IsZero() && y.quotaCheckAt.Before(next) {
		next = y.quotaCheckAt
	}

	y.quotaCheckAt = next

	y.quotaCheck = y.after(next, func() {
		y.quotaCheckAt = time.Time{}
		y.ledger.Roll(y.now)

		if y.limited() {
			y.ledger.Settle(y.now, y.payerLimited)
			y.projectBudgets()

			for _, a := range y.quotas.Alerts(y.now) {
				y.alert(&a)
			}

			y.requeueHeld()
		}

		y.watchQuotas()
	})
}

// projectBudgets projects the budgets of all jobs that run.
func (y *Yard) projectBudgets() {
	if y.budgets == 0 {
		return
	}

	for _, rn := range y.running {
		y.projectBudget(y.jobs[rn.Job])
	}
}

// overrun is how long after a budget is used up, at the rates of now, it is checked: late enough
// that it is used up then, whatever is rounded. A budget of a job is exceeded by what this time
// costs, and by what the program costs until it has stopped.
const overrun = time.Second

// nextQuotaCheck returns when quotas have to be checked: at the next full minute, or when
// one will be used up if that is sooner.
func (y *Yard) nextQuotaCheck() time.Time {
	next := y.now.Truncate(quotaInterval).Add(quotaInterval)
	if !y.limited() {
		return next
	}

	bringForward := func(at time.Time) {
		at = at.Add(overrun)
		if !at.Before(y.now) && at.Before(next) {
			next = at
		}
	}

	for _, s := range y.quotas.Statuses(y.now) {
		for _, projection := range []quota.Projection{s.Cost, s.GPUHours} {
			if projection.Exhausted.After(y.now) {
				bringForward(projection.Exhausted)
			}
		}
	}

	for _, rn := range y.running {
		r := y.jobs[rn.Job]
		if r.Spec.Budget == 0 || r.run == nil {
			continue
		}

		if r.exhausts.After(y.now) {
			bringForward(r.exhausts)
		}
	}

	return next
}

// payerLimited reports whether someone who holds a node, or for whom it was provisioned, has
// a quota or a job with a budget.
func (y *Yard) payerLimited(s *ledger.State) bool {
	limited := func(owner id.User, project id.Project, j id.Job) bool {
		r, ok := y.jobs[j]

		return ok && r.Spec.Budget > 0 || y.quotas.Binds(quota.Payer{Owner: owner, Project: project})
	}

	if limited(s.Owner, s.Project, s.Job) {
		return true
	}

	return slices.ContainsFunc(s.Holders, func(h ledger.Holder) bool { return limited(h.Owner, h.Project, h.Job) })
}

// alert notifies people that a quota is nearly used up, used up or lifted, and does what an
// exceeded quota asks for.
func (y *Yard) alert(a *quota.Alert) {
	e := Event{Kind: "budget." + string(a.Kind), Actor: theYard, Owner: a.Subject.User, Job: a.Job, Reason: a.Sentence}
	if r, ok := y.jobs[a.Job]; ok {
		e.Owner = r.Owner
	}

	y.event(e)

	if a.Kind != quota.UsedUp || a.Action != tenant.ExceededStop && a.Action != tenant.ExceededDowngrade {
		return
	}

	for _, rn := range slices.Clone(y.running) {
		r := y.jobs[rn.Job]

		if a.Job != "" {
			if r.ID == a.Job {
				y.pauseOverBudget(r, a.Sentence)
			}

			continue
		}

		affected := r.Owner == a.Subject.User || a.Subject.Project != "" && r.Project == a.Subject.Project
		if affected && !rn.Stopping && (a.Action == tenant.ExceededStop || y.onDemand(rn)) {
			y.stopPlanned(r, &place.Stop{Running: rn, Reason: a.Sentence})
			y.planDue = true
		}
	}
}

// pauseOverBudget pauses a job whose own budget is used up: its owner decides whether it
// may spend more.
func (y *Yard) pauseOverBudget(r *jobRecord, sentence string) {
	reason := sentence + "; trainyard resume " + string(r.ID) + " lets it spend the same again"
	y.must(y.moveJob(r, job.EventPause, theYard, reason))
	y.stop(r.run, job.StopTerm, job.CausePreempted)
}

// onDemand reports whether a job runs on on-demand nodes.
func (y *Yard) onDemand(rn *place.Running) bool {
	for _, s := range rn.Allocations {
		if n := y.nodes.Of(s.Node); n != nil && n.Lease != "" {
			return true
		}
	}

	return false
}

// gpusOf counts the GPUs of a start.
func gpusOf(s *place.Start) int {
	n := 0
	for _, allocation := range s.Allocations {
		n += bits.OnesCount64(allocation.GPUs)
	}

	return n
}
