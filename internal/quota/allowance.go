package quota

import (
	"math"
	"time"

	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/tenant"
)

// Allow returns what a job may still use: the tightest of what its owner's quota, its
// project's quota and its own budget leave. What the job holds already counts as used, and
// so does what other running jobs are expected to use before the period ends; what the job
// itself is still expected to use does not.
//
// The quotas on GPUs and on-demand nodes are firm, except for GPUs that may be borrowed.
// When GPU-hours or money are used up, the quota says what happens: warn allows everything,
// ask and stop allow nothing, downgrade allows only nodes that are paid for anyway.
func (t *Tracker) Allow(now time.Time, w Payer, budget job.Money, cost money.Amount) tenant.Allowance {
	q := allowanceQuery{
		now:         t.latest(now),
		allowance:   tenant.Unlimited(),
		freeGPUs:    math.MaxInt64,
		ceilingGPUs: math.MaxInt64,
	}

	if w.Job != "" {
		q.job = t.jobs[w]
	}

	if w.Owner != "" {
		a := t.users[w.Owner]
		q.addLimit(a, a.limitOr(t.eachUser))
	}

	if w.Project != "" {
		a := t.projects[w.Project]
		q.addLimit(a, a.limitOr(t.eachProject))
	}

	if budget > 0 {
		q.addBudget(w, budget, cost)
	}

	return q.result()
}

// MaxGPUs returns how many GPUs the quotas of a payer allow at a time if none are in use;
// tenant.NoLimit if they are not limited or more may be borrowed.
func (t *Tracker) MaxGPUs(w Payer) int {
	most := int64(math.MaxInt64)
	add := func(a *account, each *limit) {
		if r := a.limitOr(each); r != nil && r.gpus > 0 && !r.Borrow {
			most = min(most, r.gpus)
		}
	}

	if w.Owner != "" {
		add(t.users[w.Owner], t.eachUser)
	}

	if w.Project != "" {
		add(t.projects[w.Project], t.eachProject)
	}

	if most == math.MaxInt64 {
		return tenant.NoLimit
	}

	return int(most / micro)
}

// limitOr returns the account's own limit, or else that for each. The account may be nil.
func (a *account) limitOr(each *limit) *limit {
	if a != nil && a.own != nil {
		return a.own
	}

	return each
}

// allowanceQuery is an allowance while it is computed.
type allowanceQuery struct {
	now         time.Time
	allowance   tenant.Allowance
	job         *jobUsage      // of the asking job, nil if it has none
	freeGPUs    int64          // without borrowing, in millionths of a GPU
	ceilingGPUs int64          // with all that may be borrowed
	longest     exhaustedLimit // the exhausted limit that resets last
	// names the exhausted limit that allows only nodes that are paid for anyway, "" if none does
	downgradedBy string
}

// exhaustedLimit is a limit that is used up.
type exhaustedLimit struct {
	account *account
	limit   *limit
	measure measure
	reset   time.Time
}

// addLimit applies a limit of an account.
func (q *allowanceQuery) addLimit(a *account, r *limit) {
	if r == nil {
		return
	}

	if r.gpus > 0 {
		left := r.gpus
		if a != nil {
			left = max(left-a.gpusTaken(q.job), 0)
		}

		if left < q.freeGPUs {
			q.freeGPUs, q.allowance.LimitedBy.GPUs = left, r.names.GPUs
		}

		if !r.Borrow {
			q.ceilingGPUs = min(q.ceilingGPUs, left)
		}
	}

	if r.Nodes > 0 {
		left := r.Nodes
		if a != nil {
			left = max(left-a.nodes, 0)
		}

		if left < q.allowance.Nodes {
			q.allowance.Nodes, q.allowance.LimitedBy.Nodes = left, r.names.Nodes
		}
	}

	if r.OnExceeded == tenant.ExceededWarn {
		return
	}

	for m := range measures {
		if r.amounts[m] > 0 {
			q.addPeriod(a, r, m)
		}
	}
}

// addPeriod applies a limit on usage in a period.
func (q *allowanceQuery) addPeriod(a *account, r *limit, m measure) {
	left := r.amounts[m]
	if a != nil {
		left -= a.used(m, r.Period, q.now)
	}

	if left <= 0 {
		q.addExhausted(a, r, m)
		return
	}

	if a != nil && a.expected[m].remaining > 0 {
		left = max(left-a.committedByOthers(m, a.periodEnd(r.Period, q.now).Sub(q.now), q.job), 0)
	}

	q.tighten(m, m.value(left), r.names)
}

// tighten lowers how much of a measure is left.
func (q *allowanceQuery) tighten(m measure, left float64, words tenant.Bounds) {
	switch {
	case m == dollars && money.Amount(left) < q.allowance.Money:
		q.allowance.Money, q.allowance.LimitedBy.Money = money.Amount(left), words.Money
	case m == gpuHours && left < q.allowance.GPUHours:
		q.allowance.GPUHours, q.allowance.LimitedBy.GPUHours = left, words.GPUHours
	}
}

// addExhausted applies a limit that is used up.
func (q *allowanceQuery) addExhausted(a *account, r *limit, m measure) {
	if r.OnExceeded == tenant.ExceededDowngrade {
		if m == dollars {
			q.downgradedBy = r.names.Money
		} else if q.downgradedBy == "" {
			q.downgradedBy = r.names.GPUHours
		}

		return
	}

	q.tighten(m, 0, r.names)

	reset := a.periodEnd(r.Period, q.now)
	if q.longest.account == nil || reset.After(q.longest.reset) {
		q.longest = exhaustedLimit{a, r, m, reset}
	}
}

// committedByOthers returns what running jobs other than the asking one are expected to use
// before the period ends. With many jobs it is a slight overestimate, because it uses
// their sums and does not look at each.
func (a *account) committedByOthers(m measure, rest time.Duration, asking *jobUsage) int64 {
	l := a.expected[m]
	if asking != nil && asking.predictable(m) {
		l.remaining -= asking.remaining[m]
		l.rate -= asking.rate[m]
	}

	return int64(math.Min(float64(l.remaining), float64(l.rate)*rest.Hours()))
}

// addBudget applies the job's own budget.
func (q *allowanceQuery) addBudget(w Payer, budget job.Money, cost money.Amount) {
	left := budget.Amount() - cost
	if left <= 0 {
		left = 0
		q.allowance.HoldReason = budgetExhausted(w.Job, budget, cost)
		q.allowance.Hold = tenant.HoldBudget
	}

	if left < q.allowance.Money {
		q.allowance.Money = left
		if q.job != nil && q.job.budget == int64(budget)*(nano/micro) {
			q.allowance.LimitedBy.Money = q.job.budgetName
		} else {
			q.allowance.LimitedBy.Money = budgetName(budget)
		}
	}
}

// result returns the allowance.
func (q *allowanceQuery) result() tenant.Allowance {
	o := &q.allowance
	if q.freeGPUs < math.MaxInt64 {
		o.GPUs, o.Part = int(q.freeGPUs/micro), float64(q.freeGPUs%micro)/micro
	}

	if q.ceilingGPUs < math.MaxInt64 {
		o.Ceiling = int(q.ceilingGPUs / micro)
	}

	o.Borrow = o.Ceiling > o.GPUs
	if q.downgradedBy != "" {
		o.NoProvisioning, o.LimitedBy.Money = true, q.downgradedBy
	}

	if o.HoldReason == "" && q.longest.account != nil {
		o.HoldReason = q.longest.sentence(q.now)
		o.HeldUntil = q.longest.reset
		o.Hold = tenant.HoldMoney
		if q.longest.measure == gpuHours {
			o.Hold = tenant.HoldGPUHours
		}
	}

	o.FirstLimit = bindingQuota(o)

	return *o
}

// bindingQuota names the quota that binds first.
func bindingQuota(o *tenant.Allowance) string {
	switch {
	case o.NoProvisioning, o.LimitedBy.Money != "" && o.Money <= 0:
		return o.LimitedBy.Money
	case o.LimitedBy.GPUHours != "" && o.GPUHours <= 0:
		return o.LimitedBy.GPUHours
	case o.LimitedBy.GPUs != "" && o.GPUs == 0:
		return o.LimitedBy.GPUs
	case o.LimitedBy.Nodes != "" && o.Nodes == 0:
		return o.LimitedBy.Nodes
	}

	for _, words := range []string{o.LimitedBy.GPUs, o.LimitedBy.Nodes, o.LimitedBy.Money} {
		if words != "" {
			return words
		}
	}

	return o.LimitedBy.GPUHours
}

// Borrowed returns how many GPUs owner or project use beyond their quota, so that a policy
// can preempt them first when others wait. That includes GPUs that were in use when the
// quota was lowered.
func (t *Tracker) Borrowed(w Payer) float64 {
	var borrowed int64

	add := func(a *account) {
		if r := t.limitOf(a); r != nil && r.gpus > 0 {
			borrowed = max(borrowed, a.gpusInUse()-r.gpus)
		}
	}

	if a, ok := t.users[w.Owner]; ok {
		add(a)
	}

	if a, ok := t.projects[w.Project]; ok {
		add(a)
	}

	return float64(borrowed) / micro
}

// periodEnd returns when the current period ends.
func (a *account) periodEnd(p tenant.Period, now time.Time) time.Time {
	if w := &a.windows[periodIndex(p)]; now.Before(w.end) {
		return w.end
	}

	return p.End(now)
}
