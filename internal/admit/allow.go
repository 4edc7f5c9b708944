package admit

import (
	"math"
	"time"

	"trainyard/internal/job"
	"trainyard/internal/tenant"
)

// Allow tells what a job may still take: the tightest of what its owner's limit,
// its project's limit and its own budget leave. What it holds already counts as
// taken; what it is still expected to spend does not, and what other running jobs
// are expected to spend before the period ends does.
//
// GPUs and on-demand nodes at once are firm, GPUs unless they may be borrowed. At
// the end of GPU-hours and money the limit says what happens: warn binds nothing,
// ask and stop hold, downgrade leaves only what costs no rent.
func (b *Books) Allow(now time.Time, w Who, budget job.Money, spent float64) tenant.Allowance {
	q := question{now: b.at(now), out: tenant.Unlimited(), left: math.MaxInt64, hard: math.MaxInt64}
	if w.Job != "" {
		q.stake = b.stakes[w]
	}
	if w.Owner != "" {
		a := b.users[w.Owner]
		q.bind(a, a.bound(b.eachUser))
	}
	if w.Project != "" {
		a := b.projects[w.Project]
		q.bind(a, a.bound(b.eachProject))
	}
	if budget > 0 {
		q.budget(w, budget, spent)
	}
	return q.answer()
}

// bound returns what binds an account, which may not be opened yet.
func (a *account) bound(each *rule) *rule {
	if a != nil && a.own != nil {
		return a.own
	}
	return each
}

// question is an allowance while it is worked out.
type question struct {
	now   time.Time
	out   tenant.Allowance
	stake *stake // of the job itself, nil if it has none
	left  int64  // GPUs, in millionths, with nothing borrowed
	hard  int64  // and with all that may be borrowed
	hold  usedUp // the limit that is used up for longest
	rent  string // the limit that is used up and leaves what costs no rent, "" if none is
}

// usedUp is a limit of which nothing is left.
type usedUp struct {
	account *account
	rule    *rule
	measure measure
	ends    time.Time // it starts anew
}

// bind takes in what a limit leaves to an account.
func (q *question) bind(a *account, r *rule) {
	if r == nil {
		return
	}
	if r.gpus > 0 {
		left := r.gpus
		if a != nil {
			left = max(left-a.inUse(), 0)
		}
		if left < q.left {
			q.left, q.out.By.GPUs = left, r.words.GPUs
		}
		if !r.Borrow {
			q.hard = min(q.hard, left)
		}
	}
	if r.Nodes > 0 {
		left := r.Nodes
		if a != nil {
			left = max(left-a.nodes, 0)
		}
		if left < q.out.Nodes {
			q.out.Nodes, q.out.By.Nodes = left, r.words.Nodes
		}
	}
	if r.At == tenant.LimitWarn {
		return
	}
	for m := range measures {
		if r.amount[m] > 0 {
			q.period(a, r, m)
		}
	}
}

// period takes in what is left of a limit on what is used in a period.
func (q *question) period(a *account, r *rule, m measure) {
	left := r.amount[m]
	if a != nil {
		left -= a.usedOf(m, r.Period, q.now)
	}
	if left <= 0 {
		q.exhausted(a, r, m)
		return
	}
	if a != nil && a.known[m].left > 0 {
		left = max(left-a.pledged(m, a.endOf(r.Period, q.now).Sub(q.now), q.stake), 0)
	}
	q.tighten(m, m.plain(left), r.words)
}

// tighten takes in how much of a measure is left.
func (q *question) tighten(m measure, left float64, words tenant.Bounds) {
	switch {
	case m == money && left < q.out.Money:
		q.out.Money, q.out.By.Money = left, words.Money
	case m == gpuHours && left < q.out.GPUHours:
		q.out.GPUHours, q.out.By.GPUHours = left, words.GPUHours
	}
}

// exhausted takes in a limit of which nothing is left.
func (q *question) exhausted(a *account, r *rule, m measure) {
	if r.At == tenant.LimitDowngrade {
		if m == money {
			q.rent = r.words.Money
		} else if q.rent == "" {
			q.rent = r.words.GPUHours
		}
		return
	}
	q.tighten(m, 0, r.words)
	if ends := a.endOf(r.Period, q.now); q.hold.account == nil || ends.After(q.hold.ends) {
		q.hold = usedUp{a, r, m, ends}
	}
}

// pledged returns what running jobs other than the asking one are expected to use
// before the period ends. Of many jobs it may count a little more than they will:
// it does not look at each.
func (a *account) pledged(m measure, rest time.Duration, but *stake) int64 {
	l := a.known[m]
	if but != nil && but.counts(m) {
		l.left -= but.left[m]
		l.rate -= but.rate[m]
	}
	return int64(math.Min(float64(l.left), float64(l.rate)*rest.Hours()))
}

// budget takes in what a job's own budget leaves.
func (q *question) budget(w Who, budget job.Money, spent float64) {
	left := float64(budget)/micro - spent
	if left <= 0 {
		left = 0
		q.out.Hold = budgetHold(w.Job, budget, spent)
	}
	if left < q.out.Money {
		q.out.Money = left
		if q.stake != nil && q.stake.budget == int64(budget)*(nano/micro) {
			q.out.By.Money = q.stake.words
		} else {
			q.out.By.Money = budgetWords(budget)
		}
	}
}

// answer puts the allowance together.
func (q *question) answer() tenant.Allowance {
	o := &q.out
	if q.left < math.MaxInt64 {
		o.GPUs, o.Part = int(q.left/micro), float64(q.left%micro)/micro
	}
	if q.hard < math.MaxInt64 {
		o.Ceiling = int(q.hard / micro)
	}
	o.Borrow = o.Ceiling > o.GPUs
	if q.rent != "" {
		o.NoRent, o.By.Money = true, q.rent
	}
	if o.Hold == "" && q.hold.account != nil {
		o.Hold = q.hold.sentence(q.now)
	}
	o.Bound = first(o)
	return *o
}

// first names the limit that binds first.
func first(o *tenant.Allowance) string {
	switch {
	case o.NoRent, o.By.Money != "" && o.Money <= 0:
		return o.By.Money
	case o.By.GPUHours != "" && o.GPUHours <= 0:
		return o.By.GPUHours
	case o.By.GPUs != "" && o.GPUs == 0:
		return o.By.GPUs
	case o.By.Nodes != "" && o.Nodes == 0:
		return o.By.Nodes
	}
	for _, words := range []string{o.By.GPUs, o.By.Nodes, o.By.Money} {
		if words != "" {
			return words
		}
	}
	return o.By.GPUHours
}

// Borrowed returns how many GPUs are in use beyond what the limits of owner and
// project say, so that a policy can take them back first when others wait. GPUs
// count too that were in use when a limit was lowered.
func (b *Books) Borrowed(w Who) float64 {
	var most int64
	over := func(a *account) {
		if r := b.ruleOf(a); r != nil && r.gpus > 0 {
			most = max(most, a.inUse()-r.gpus)
		}
	}
	if a, ok := b.users[w.Owner]; ok {
		over(a)
	}
	if a, ok := b.projects[w.Project]; ok {
		over(a)
	}
	return float64(most) / micro
}

// endOf returns when the period ends that it is now.
func (a *account) endOf(p tenant.Period, now time.Time) time.Time {
	if w := &a.windows[slot(p)]; now.Before(w.end) {
		return w.end
	}
	return p.End(now)
}
