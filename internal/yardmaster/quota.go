package yardmaster

import (
	"fmt"
	"slices"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/inbox"
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
	// Restrict gives a project a record, if it has none, so that nobody but its members uses up the quota.
	Restrict bool
}

func (m PutQuota) handle(y *Yard) (any, error) {
	q := m.Quota
	before, after := "", "" // no quota

	if old, ok := y.quotas.Own(q.Subject); ok {
		q.Seq = old.Seq
		before = old.Text()
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
	} else {
		after = q.Text()
	}

	if project := q.Subject.Project; m.Restrict && project != "" && !q.Removed {
		if err := y.restrict(project, m.By); err != nil {
			return nil, err
		}
	}

	y.changedQuotas = append(y.changedQuotas, q)
	y.event(Event{Kind: "quota.set", Actor: m.By, Owner: q.Subject.User, From: before, To: after, Reason: reason})
	y.requeueHeld()
	y.holdExceeding()
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

// quotaReached returns which quota keeps a job from using so many GPUs now, zero if none does.
func (y *Yard) quotaReached(r *jobRecord, gpus int) hold {
	if !y.limited() && r.Spec.Budget == 0 {
		return hold{}
	}

	return holdFor(y.allowance(r), gpus)
}

// holdFor returns what keeps a job with an allowance from using so many GPUs, zero if nothing
// does.
func holdFor(allowance tenant.Allowance, gpus int) hold {
	switch {
	case allowance.HoldReason != "":
		return hold{reason: allowance.HoldReason, kind: allowance.Hold, until: allowance.HeldUntil}
	case gpus > allowance.Ceiling:
		return hold{
			reason: fmt.Sprintf("quota reached: %s; %d needed, %d left", allowance.LimitedBy.GPUs, gpus,
				max(allowance.GPUs, 0)),
			kind: tenant.HoldGPUs,
		}
	}

	return hold{}
}

// provisionQuotaReached says which quota forbids to provision nodes with an allowance, "" if
// none does.
func provisionQuotaReached(allowance tenant.Allowance, h *place.Provision) string {
	gpus := h.Item.Shape.Need.GPUs * h.Item.Shape.Need.Nodes
	if h.Running != nil { // it gives back what it has
		gpus = max(h.GPUs-h.Running.GPUs, 0)
	}

	switch {
	case allowance.HoldReason != "":
		return allowance.HoldReason
	case allowance.NoProvisioning:
		return allowance.LimitedBy.Money + " is used up; the job may only run on local and reserved nodes"
	case gpus > allowance.Ceiling:
		return "quota reached: " + allowance.LimitedBy.GPUs
	case h.Count > allowance.Nodes:
		return fmt.Sprintf("%s is reached: %d needed, %d left", allowance.LimitedBy.Nodes, h.Count, allowance.Nodes)
	case h.Cost > allowance.Money:
		return fmt.Sprintf("%s has %s left, estimated cost is %s", allowance.LimitedBy.Money,
			humanize.Dollars(max(allowance.Money, 0)), humanize.Dollars(h.Cost))
	}

	return ""
}

// holdJob keeps a job out of the queue until its owner may use more, or its secrets are there. Held jobs are in
// y.heldJobs, from where requeueHeld takes them.
func (y *Yard) holdJob(r *jobRecord, h hold) {
	number, _ := r.ID.Number()
	y.heldJobs.Put(queuePayer(r), number)

	if r.hold == h {
		return
	}

	r.hold, r.Reason = h, h.reason
	y.changedJob(r)
	y.event(Event{
		Kind: "job.held", Actor: theYard, Owner: r.Owner, Job: r.ID, To: string(r.State), Reason: h.reason,
		Hold: h.kind, NotBefore: h.until,
	})

	if h.kind == tenant.HoldBudget {
		y.after(y.now, func() { y.releaseUnpaid(r.ID) }) // not now: a plan may be under way that uses them
	}
}

// releaseUnpaid releases the machines that were provisioned for a job whose own budget was used up before it started,
// as by a long boot, and that nothing uses: it would pay for them until they have been idle for as long as others may.
func (y *Yard) releaseUnpaid(j id.Job) {
	if r, ok := y.jobs[j]; !ok || r.hold.kind != tenant.HoldBudget {
		return
	}

	for _, l := range y.leases.Live() {
		n, joined := y.nodes.Get(l.Node)
		if l.Job == j && (!joined || len(n.Runs) == 0) {
			y.releaseLease(l, fmt.Sprintf("the budget of %s, for which it was provisioned, is used up", j))
		}
	}
}

// holdExceeding holds the queued jobs that need more GPUs than those that have just started, or are
// about to, leave of their quotas. A policy would plan them, and others would wait behind them.
func (y *Yard) holdExceeding() {
	if !y.quotas.Any() {
		return
	}

	left := make(map[queue.Payer]int, len(y.payers))
	limited := false
	for p := range y.payers {
		left[p] = y.quotas.Allow(y.now, quota.Payer{Owner: p.User, Project: p.Project}, 0, 0).Ceiling
		limited = limited || left[p] != tenant.NoLimit
	}

	if !limited {
		return
	}

	var exceeding []*jobRecord
	for _, it := range y.queue.Stays {
		need := &it.Shape.Need
		if need.GPUs*need.Nodes > left[queue.Payer{User: it.User, Project: it.Project}] {
			exceeding = append(exceeding, y.jobs[it.Job])
		}
	}

	for _, r := range exceeding {
		// What is kept for the job itself is left to it.
		if h := y.quotaReached(r, y.minGPUs(r)); h.kind == tenant.HoldGPUs {
			y.dequeue(r)
			y.holdJob(r, h)
			y.holds++
		}
	}
}

// clearHold removes a job from the held jobs, if it is one of them.
func (y *Yard) clearHold(r *jobRecord) {
	if r.hold.reason == "" {
		return
	}

	if r.hold.kind == tenant.HoldArray {
		y.leaveArray(r)
	} else {
		number, _ := r.ID.Number()
		y.heldJobs.Remove(queuePayer(r), number)
	}

	r.hold = hold{}
	y.touch(r)
}

// queuePayer is whose quotas may hold a job.
func queuePayer(r *jobRecord) queue.Payer { return queue.Payer{User: r.Owner, Project: r.Project} }

// requeueHeld puts held jobs back into the queue as far as quotas allow: for each payer in
// order of submission, until one has to stay, and then those behind it stay as well. Nobody waits
// behind a job that cannot start whatever the others release.
func (y *Yard) requeueHeld() {
	for _, p := range y.heldJobs.Payers() {
		for _, number := range slices.Clone(y.heldJobs.Of(p)) {
			r := y.jobs[id.NewJob(number)]

			gpus := y.minGPUs(r)
			if h := y.heldBack(r, gpus); h.reason != "" {
				y.holdJob(r, h)
				if y.standsAlone(r, h, gpus) {
					continue
				}

				break
			}

			y.clearHold(r)
			r.Reason = "queued"
			y.changedJob(r)
			y.addToQueue(r, y.describeItem(r))
		}
	}
}

// minGPUs returns how many GPUs a job needs at least.
func (y *Yard) minGPUs(r *jobRecord) int {
	need := y.need(r)
	return need.GPUs * need.Nodes
}

// standsAlone reports whether a job is held by something that the end of other jobs does not change:
// its own budget, a secret, or a quota that is smaller than what it needs.
func (y *Yard) standsAlone(r *jobRecord, h hold, gpus int) bool {
	return h.kind == tenant.HoldBudget || h.kind == tenant.HoldSecret ||
		h.kind == tenant.HoldGPUs && gpus > y.quotas.MaxGPUs(r.payer())
}

// explainHold says what holds a job now: its array, a secret, a quota, or a job before it that is held by the same one.
func (y *Yard) explainHold(r *jobRecord) place.Why {
	if r.hold.kind == tenant.HoldArray {
		return y.explainLimit(r)
	}

	h := y.heldBack(r, y.minGPUs(r))
	if h.reason != "" {
		return h.why()
	}

	number, _ := r.ID.Number()
	for _, n := range y.heldJobs.Of(queuePayer(r)) {
		before := y.jobs[id.NewJob(n)]
		if n >= number {
			break
		}

		gpus := y.minGPUs(before)
		if b := y.heldBack(before, gpus); b.reason != "" && !y.standsAlone(before, b, gpus) {
			b.reason = fmt.Sprintf("%s was submitted before it and is held: %s", before.ID, b.reason)
			return b.why()
		}
	}

	return r.hold.why()
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

		y.renewQuestions()
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
	if a.Job == "" {
		e.To = a.Subject.String() // whose quota it is
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
		if affected && r.run.Stop == job.StopNone && (a.Action == tenant.ExceededStop || y.onDemand(rn)) {
			if r.run.move != nil {
				y.abandonMove(r, a.Sentence)
			}

			y.endPart(r, nil, decided{}) // there is no choice: it may not continue
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
	y.ask(r, inbox.OverBudget)
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

// withinQuota returns a start on as many GPUs as the quotas of the job leave, as far as its minimum
// allows. A policy looks at each job for itself; together they may ask for more than is left.
func (y *Yard) withinQuota(r *jobRecord, s *place.Start) *place.Start {
	if !y.limited() {
		return s
	}

	most := y.allowance(r).Ceiling
	if most == tenant.NoLimit {
		return s
	}

	if r.running != nil { // what it holds counts as used, and it gives that back
		most += r.running.GPUs
	}

	return s.Capped(most)
}

// reserveGPUs keeps the GPUs of its quotas for a job that will hold them and does not yet: those of
// a promised start, or its minimum while nodes are provisioned for it. Otherwise another job
// could take them, and the nodes would be paid for in vain.
func (y *Yard) reserveGPUs(r *jobRecord) {
	gpus := 0.0

	switch {
	case r.promise != nil:
		gpus = float64(r.promise.start.GPUs())
		if r.running != nil {
			gpus = max(gpus-r.running.GPUCount(), 0)
		}
	case r.item != nil && y.hasLease(r.ID):
		need := &r.item.Shape.Need
		gpus = float64(need.GPUs * need.Nodes)
	case r.run != nil:
		gpus = float64(r.run.faster.gpus)
	}

	y.quotas.Reserve(r.payer(), gpus)

	if gpus > 0 && !r.committed {
		r.committed = true
		y.updateOwnAllowance(r)
	}
}

// hasLease reports whether nodes were provisioned for a job, or are being.
func (y *Yard) hasLease(j id.Job) bool {
	return slices.ContainsFunc(y.leases.Live(), func(l *fleet.Lease) bool { return l.Job == j && l.Live() })
}
