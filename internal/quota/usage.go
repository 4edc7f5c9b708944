package quota

import (
	"math"
	"slices"
	"strings"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/tenant"
)

// account is the usage of one user or project.
type account struct {
	subject    tenant.Subject
	name       string // accounts are sorted by it
	own        *limit // nil if only the quota for each applies
	gpus       [classes]int64
	reserved   int64 // GPUs that are kept for jobs, in millionths
	nodes      int
	rate       [measures]int64         // usage per hour now
	windows    [3]window               // in the order of tenant.Periods
	jobs       map[Payer]*jobUsage     // that run now
	expected   [measures]expectedUsage // of the predictable ones among them
	notices    [measures]notice
	holdReason holdReason // the last one that was given
	changed    bool       // its usage has to be stored
}

// expectedUsage is what running jobs are still expected to use, in all and per hour.
type expectedUsage struct{ remaining, rate int64 }

// window is what was used in one period.
type window struct {
	begin, end time.Time
	used       [measures]int64
}

// jobUsage is what one job uses now and what it is still expected to use.
type jobUsage struct {
	rate           [measures]int64
	remainingKnown [measures]bool // whether remaining is known
	remaining      [measures]int64
	reserved       int64 // GPUs that are kept for it, in millionths
	committed      bool  // whether Commit was called
	budget         int64
	budgetName     string // as sentences name it
	cost           int64  // so far, against the budget
}

// classes is how many classes of nodes are counted separately.
const classes = 3

func classOf(c fleet.Class) int {
	switch c {
	case fleet.OnDemand:
		return 2
	case fleet.Reserved:
		return 1
	case fleet.Local:
	}

	return 0
}

func (t *Tracker) userAccount(u id.User) *account {
	a, ok := t.users[u]
	if !ok {
		a = t.openAccount(tenant.Subject{User: u})
		t.users[u] = a
	}

	return a
}

func (t *Tracker) projectAccount(p id.Project) *account {
	a, ok := t.projects[p]
	if !ok {
		a = t.openAccount(tenant.Subject{Project: p})
		t.projects[p] = a
	}

	return a
}

// openAccount makes an account and inserts it by name.
func (t *Tracker) openAccount(s tenant.Subject) *account {
	a := &account{subject: s, name: s.String(), jobs: map[Payer]*jobUsage{}}
	at, _ := slices.BinarySearchFunc(
		t.accounts,
		a.name,
		func(o *account, name string) int { return strings.Compare(o.name, name) },
	)

	t.accounts = slices.Insert(t.accounts, at, a)

	return a
}

// eachAccount calls do for the accounts of a payer.
func (t *Tracker) eachAccount(w Payer, do func(*account)) {
	if w.Owner != "" {
		do(t.userAccount(w.Owner))
	}

	if w.Project != "" {
		do(t.projectAccount(w.Project))
	}
}

// Use records that a payer uses so many more GPUs on nodes of a class, at so
// much more per hour. When that use ends, it is called again with negative amounts.
func (t *Tracker) Use(now time.Time, w Payer, class fleet.Class, gpus float64, hourly money.PerHour) {
	t.advance(now)
	devices := toUnits(gpus, micro)
	var delta [measures]int64
	delta[dollars], delta[gpuHours] = toUnits(float64(hourly), nano), devices*hour
	t.updateJob(w, func(s *jobUsage) {
		for m := range measures {
			s.rate[m] += delta[m]
		}
	})

	t.eachAccount(w, func(a *account) {
		a.gpus[classOf(class)] += devices
		for m := range measures {
			a.rate[m] += delta[m]
		}
	})
}

// Nodes records that so many more on-demand nodes are provisioned, or released if negative.
func (t *Tracker) Nodes(now time.Time, w Payer, delta int) {
	t.advance(now)
	t.eachAccount(w, func(a *account) { a.nodes += delta })
}

// Spend records what was used evenly over a stretch of time. The part that lies in a period
// that is over does not count.
func (t *Tracker) Spend(from, to time.Time, w Payer, gpuSeconds float64, cost money.Amount) {
	t.advance(to)
	var used [measures]int64
	used[dollars], used[gpuHours] = toUnits(float64(cost), nano), toUnits(gpuSeconds, micro)
	t.eachAccount(w, func(a *account) {
		for i, p := range tenant.Periods() {
			a.windows[i].add(p, from, to, used)
		}

		t.markChanged(a)
	})

	if _, ok := t.jobs[w]; !ok {
		return
	}

	t.updateJob(w, func(s *jobUsage) {
		s.cost += used[dollars]
		for m := range measures {
			s.remaining[m] = max(s.remaining[m]-used[m], 0)
		}
	})
}

// Commitment is what a job is expected to use until it ends.
type Commitment struct {
	RemainingCost     money.Amount // negative if unknown
	RemainingGPUHours float64      // negative if unknown
	Budget            job.Money    // for the whole job, 0 if it has none
	CostSoFar         money.Amount // against the budget
}

// Commit sets what a job is expected to use from now on. What it spends is subtracted from
// that. A running job whose remaining usage is unknown is expected to go on as it does.
func (t *Tracker) Commit(w Payer, o Commitment) {
	t.updateJob(w, func(s *jobUsage) {
		if budget := int64(o.Budget) * (nano / micro); budget != s.budget {
			s.budget, s.budgetName = budget, budgetName(o.Budget)
		}

		s.committed, s.cost = true, toUnits(float64(o.CostSoFar), nano)
		s.remainingKnown[dollars] = o.RemainingCost >= 0
		s.remaining[dollars] = toUnits(float64(max(o.RemainingCost, 0)), nano)
		s.remainingKnown[gpuHours], s.remaining[gpuHours] = o.RemainingGPUHours >= 0, toUnits(
			max(o.RemainingGPUHours, 0),
			float64(hour*micro),
		)
	})
}

// Reserve keeps so many GPUs of its quotas for a job that does not hold them yet: nodes are being
// provisioned for it, or runs are being stopped. To other jobs they count as used. 0 ends that.
func (t *Tracker) Reserve(w Payer, gpus float64) {
	units := toUnits(gpus, micro)
	if s, ok := t.jobs[w]; ok && s.reserved == units || !ok && units == 0 {
		return
	}

	t.updateJob(w, func(s *jobUsage) { s.reserved = units })
}

// Done forgets the commitment and the budget of a job that has ended.
func (t *Tracker) Done(w Payer) {
	if _, ok := t.jobs[w]; ok {
		t.updateJob(w, func(s *jobUsage) { *s = jobUsage{rate: s.rate} })
	}

	if _, ok := t.budgetNotices[w.Job]; ok {
		delete(t.budgetNotices, w.Job)
		t.changedNotices[noticeKey{job: w.Job}] = true
	}
}

// updateJob changes the usage of a job and brings its accounts up to date.
func (t *Tracker) updateJob(w Payer, change func(*jobUsage)) {
	s, ok := t.jobs[w]
	if !ok {
		s = &jobUsage{}
		t.jobs[w] = s
	}

	t.eachAccount(w, func(a *account) { a.addExpected(s, -1) })
	change(s)
	live := s.rate != [measures]int64{}
	t.eachAccount(w, func(a *account) {
		a.addExpected(s, 1)

		if live {
			a.jobs[w] = s
		} else {
			delete(a.jobs, w)
		}
	})

	if !live && !s.committed && s.reserved == 0 {
		delete(t.jobs, w)
	}
}

// addExpected adds a job to the expected usage of the account and to what is kept, or subtracts it.
func (a *account) addExpected(s *jobUsage, sign int64) {
	a.reserved += sign * s.reserved

	for m := range measures {
		if s.predictable(m) {
			a.expected[m].remaining += sign * s.remaining[m]
			a.expected[m].rate += sign * s.rate[m]
		}
	}
}

// predictable reports whether the job runs and its remaining usage is known.
func (s *jobUsage) predictable(m measure) bool { return s.remainingKnown[m] && s.rate[m] > 0 }

// add adds what was used in a stretch, as far as it lies in the window. A stretch that
// reaches beyond the window first moves the window to the period in which it ends.
func (w *window) add(p tenant.Period, from, to time.Time, used [measures]int64) {
	if to.After(w.end) {
		last := to.Add(-1)
		*w = window{begin: p.Begin(last), end: p.End(last)}
	}

	if !to.After(w.begin) {
		return
	}

	for m := range measures {
		n := used[m]
		if from.Before(w.begin) {
			n = int64(math.Round(float64(n) * (float64(to.Sub(w.begin)) / float64(to.Sub(from)))))
		}

		w.used[m] += n
	}
}

// used returns what was used in the current period.
func (a *account) used(m measure, p tenant.Period, now time.Time) int64 {
	if w := &a.windows[periodIndex(p)]; now.Before(w.end) {
		return w.used[m]
	}

	return 0
}

// periodIndex is the index of a period in tenant.Periods.
func periodIndex(p tenant.Period) int {
	switch p {
	case tenant.Day:
		return 0
	case tenant.Week:
		return 1
	case tenant.Month:
	}

	return 2
}

// gpusTaken returns the GPUs that are in use or kept for other jobs than the asking one, in
// millionths.
func (a *account) gpusTaken(asking *jobUsage) int64 {
	taken := a.gpusInUse() + a.reserved
	if asking != nil {
		taken -= asking.reserved
	}

	return taken
}

// gpusInUse returns the GPUs in use, in millionths.
func (a *account) gpusInUse() int64 {
	var sum int64
	for _, n := range a.gpus {
		sum += n
	}

	return sum
}
