// Package quota keeps quotas and budgets: who has used how much, and how much more they may use.
//
// On the path of a job it stands before the queue and beside the policy: the yardmaster
// reports what runs, what is provisioned and what was spent, and asks what a job may still
// use before it queues, starts or provisions anything. A quota applies to a user, to a
// project, or to each user or project without one of its own; a job brings its own budget.
// GPUs and on-demand nodes are counted while they are held, GPU-hours and money by day, week
// and month in UTC.
//
// The package only counts and answers: what happens to a job is up to the yardmaster. It is
// pure. The time is an argument, and amounts are whole numbers inside, so that what is added
// and taken away again leaves nothing behind.
package quota

import (
	"math"
	"slices"
	"strings"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/tenant"
)

// Payer is who pays for something. Job is "" for what is done for no job in particular, such
// as a node that is kept warm.
type Payer struct {
	Owner   id.User
	Project id.Project
	Job     id.Job
}

// Tracker knows all quotas and what is used of them. It is not safe for concurrent use.
// Asking it something changes no later answer.
type Tracker struct {
	now             time.Time // the latest time seen; time does not go back
	quotas          map[tenant.Subject]*limit
	eachUser        *limit
	eachProject     *limit
	users           map[id.User]*account
	projects        map[id.Project]*account
	accounts        []*account // by name
	jobs            map[Payer]*jobUsage
	budgetNotices   map[id.Job]*notice // about budgets of jobs
	changedAccounts []*account         // whose usage has to be stored
	changedNotices  map[noticeKey]bool // that have to be stored
}

// New returns a tracker without quotas and without usage.
func New() *Tracker {
	return &Tracker{
		quotas: map[tenant.Subject]*limit{}, users: map[id.User]*account{}, projects: map[id.Project]*account{},
		jobs: map[Payer]*jobUsage{}, budgetNotices: map[id.Job]*notice{}, changedNotices: map[noticeKey]bool{},
	}
}

// limit is a quota in whole units, with the names that sentences use for it.
type limit struct {
	tenant.Quota
	gpus    int64            // in millionths; 0 is no limit
	amounts [measures]int64  // in a period; 0 is no limit
	marks   [measures]string // identify the quota in notices: another mark notifies anew
	names   tenant.Bounds
}

// Put sets a quota in place of the one that its subject had. Defaults are a period of a
// month, ask when it is exceeded, and a warning at 80 %.
func (t *Tracker) Put(l tenant.Quota) error {
	if l.Removed {
		t.Remove(l.Subject)
		return nil
	}

	if err := validate(&l); err != nil {
		return err
	}

	if l.Period == "" {
		l.Period = tenant.Month
	}

	if l.OnExceeded == "" {
		l.OnExceeded = tenant.ExceededAsk
	}

	if l.WarnAt == 0 {
		l.WarnAt = warnAt
	}

	t.set(l.Subject, newLimit(l))

	return nil
}

// warnAt is the default share of a quota from which people are warned.
const warnAt = 0.8

// Remove drops the quota of a subject. A user or project falls back to the quota for each,
// if there is one.
func (t *Tracker) Remove(s tenant.Subject) { t.set(s, nil) }

// set sets or drops the limit of a subject.
func (t *Tracker) set(s tenant.Subject, r *limit) {
	if r == nil {
		delete(t.quotas, s)
	} else {
		t.quotas[s] = r
	}

	switch {
	case s.User != "" && (r != nil || t.users[s.User] != nil):
		t.userAccount(s.User).own = r
	case s.Project != "" && (r != nil || t.projects[s.Project] != nil):
		t.projectAccount(s.Project).own = r
	case s.Each == eachUser:
		t.eachUser = r
	case s.Each == eachProject:
		t.eachProject = r
	}
}

// What a quota for each may apply to.
const (
	eachUser    = "user"
	eachProject = "project"
)

// Quotas lists the quotas by the names of their subjects.
func (t *Tracker) Quotas() []tenant.Quota {
	all := make([]tenant.Quota, 0, len(t.quotas))
	for _, r := range t.quotas {
		all = append(all, r.Quota)
	}

	slices.SortFunc(all, func(x, y tenant.Quota) int { return strings.Compare(x.Subject.String(), y.Subject.String()) })

	return all
}

// Own returns the quota that was set for a subject itself.
func (t *Tracker) Own(s tenant.Subject) (tenant.Quota, bool) {
	r, ok := t.quotas[s]
	if !ok {
		return tenant.Quota{}, false
	}

	return r.Quota, true
}

// Of returns the quota of a user or project: its own, or that for each.
func (t *Tracker) Of(s tenant.Subject) (tenant.Quota, bool) {
	r := t.quotas[s]
	switch {
	case r != nil:
	case s.User != "":
		r = t.eachUser
	case s.Project != "":
		r = t.eachProject
	}

	if r == nil {
		return tenant.Quota{}, false
	}

	return r.Quota, true
}

// limitOf returns the limit of an account, nil if it has none.
func (t *Tracker) limitOf(a *account) *limit {
	switch {
	case a.own != nil:
		return a.own
	case a.subject.User != "":
		return t.eachUser
	}

	return t.eachProject
}

// validate refuses an invalid quota.
func validate(l *tenant.Quota) error {
	bad := func(field, format string, args ...any) error {
		return fault.New(fault.Invalid, "bad_quota", format, args...).WithField(field)
	}
	s := l.Subject

	named := 0
	for _, part := range []string{string(s.User), string(s.Project), s.Each} {
		if part != "" {
			named++
		}
	}

	switch {
	case named != 1, s.User != "" && !id.Name(string(s.User)), s.Project != "" && !id.Name(string(s.Project)),
		s.Each != "" && s.Each != eachUser && s.Each != eachProject:
		return bad("subject",
			"subject must be one user, one project, each user or each project: "+
				"write user/ann, project/vision, each/user or each/project")
	case l.GPUs < 0 || l.GPUs > maxCount:
		return bad("gpus", "gpus must be between 0 (no limit) and %d, got %d", maxCount, l.GPUs)
	case l.Nodes < 0 || l.Nodes > maxCount:
		return bad("nodes", "nodes must be between 0 (no limit) and %d, got %d", maxCount, l.Nodes)
	case !(l.GPUHours >= 0 && l.GPUHours <= maxGPUHours):
		return bad("gpu_hours", "gpu_hours must be between 0 (no limit) and %g, got %g", maxGPUHours, l.GPUHours)
	case l.Budget < 0 || l.Budget > maxMoney:
		return bad("money", "money must be between $0.00 (no limit) and %s, got %s",
			humanize.Dollars(maxMoney.Amount()), humanize.Dollars(l.Budget.Amount()))
	case l.Period != "" && !slices.Contains(tenant.Periods(), l.Period):
		return bad("period", "period must be day, week or month, got %q", l.Period)
	case l.OnExceeded != "" && !slices.Contains(tenant.ExceededActions(), l.OnExceeded):
		return bad("at", "at must be warn, ask, downgrade or stop, got %q", l.OnExceeded)
	case !(l.WarnAt >= 0 && l.WarnAt <= 1):
		return bad("warn_at", "warn_at must be between 0 and 1, got %g", l.WarnAt)
	}

	return nil
}

// Upper bounds of a quota. Larger numbers are mistakes, and sums stay exact below them.
const (
	maxCount              = 1_000_000
	maxGPUHours           = 1e9
	maxMoney    job.Money = 1e9 * 1e6
)

func newLimit(l tenant.Quota) *limit {
	r := &limit{Quota: l, gpus: int64(l.GPUs) * micro}
	r.amounts[dollars] = int64(l.Budget) * (nano / micro)
	r.amounts[gpuHours] = toUnits(l.GPUHours, float64(hour*micro))
	for m := range measures {
		if r.amounts[m] > 0 {
			r.marks[m] = mark(m, r)
		}
	}

	r.names = boundNames(r)

	return r
}

// latest returns now, or the latest time seen if that is later.
func (t *Tracker) latest(now time.Time) time.Time {
	if now.Before(t.now) {
		return t.now
	}

	return now
}

// advance moves the time forward, never back, and returns it.
func (t *Tracker) advance(now time.Time) time.Time {
	t.now = t.latest(now)
	return t.now
}

// measure is what a quota counts in a period.
type measure int

const (
	dollars  measure = iota // in billionths of a dollar
	gpuHours                // in GPU-microseconds
	measures
)

// The units of usage. Money goes to 9 billion dollars, GPU-time to 2.5 billion
// GPU-hours; both come through a float64 and back unchanged while they are below
// 9 million dollars and 2.5 million GPU-hours.
const (
	micro = 1_000_000
	nano  = 1_000_000_000
	hour  = int64(time.Hour / time.Second)
)

// toUnits returns an amount in whole units of one scale-th. NaN is 0, and what does not fit
// is cut off.
func toUnits(x, scale float64) int64 {
	const limit = 1 << 62

	x = math.Round(x * scale)

	switch {
	case math.IsNaN(x):
		return 0
	case x >= limit:
		return limit
	case x <= -limit:
		return -limit
	}

	return int64(x)
}

// scale is how many units make one dollar or one GPU-hour.
func (m measure) scale() float64 {
	if m == dollars {
		return nano
	}

	return float64(hour * micro)
}

// value returns an amount in dollars or GPU-hours.
func (m measure) value(n int64) float64 { return float64(n) / m.scale() }
