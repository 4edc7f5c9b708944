// Package admit keeps the books of quota and budget: who may take how much more.
//
// On the path of a job it stands before the queue and beside the policy: the
// yardmaster tells it what runs, what is hired and what was spent, and asks it
// what a job may still take before anything starts or is hired. A limit holds for
// a user, for a project, or for each of them that has none of its own; a job
// brings its own budget. GPUs and on-demand nodes are counted as they are held,
// GPU-hours and money by day, week and month, in UTC.
//
// The package is pure: the time is an argument, and amounts are whole numbers
// inside, so that what was added and taken away again leaves nothing behind.
package admit

import (
	"math"
	"slices"
	"strings"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/tenant"
)

// Who is on whose account something is done. What is done for no job, such as a
// node that is kept warm, has none.
type Who struct {
	Owner   id.User
	Project id.Project
	Job     id.Job
}

// Books know all limits and what is used of them. They are not safe for use by
// several at once. A question changes no answer.
type Books struct {
	now         time.Time // the latest that was told; time does not go back
	limits      map[tenant.Subject]*rule
	eachUser    *rule
	eachProject *rule
	users       map[id.User]*account
	projects    map[id.Project]*account
	order       []*account // by name
	stakes      map[Who]*stake
	told        map[id.Job]*told // of budgets
	spent       []*account       // whose totals are to be written down
	said        map[toldKey]bool // what was told and is to be written down
}

// New returns books in which nothing is limited and nothing used.
func New() *Books {
	return &Books{
		limits: map[tenant.Subject]*rule{}, users: map[id.User]*account{}, projects: map[id.Project]*account{},
		stakes: map[Who]*stake{}, told: map[id.Job]*told{}, said: map[toldKey]bool{},
	}
}

// rule is a limit in the units of the books, with the words it is named by.
type rule struct {
	tenant.Limit
	gpus   int64            // in millionths; 0 is no limit
	amount [measures]int64  // in a period; 0 is no limit
	mark   [measures]string // what people were warned of: another mark warns anew
	words  tenant.Bounds
}

// Put enters a limit, in place of the one that its subject had. What it leaves
// open is filled in: money and GPU-hours are counted by month, at the limit
// nothing new starts, and people are warned at four fifths.
func (b *Books) Put(l tenant.Limit) error {
	if l.Removed {
		b.Remove(l.Subject)
		return nil
	}
	if err := check(&l); err != nil {
		return err
	}
	if l.Period == "" {
		l.Period = tenant.Month
	}
	if l.At == "" {
		l.At = tenant.LimitAsk
	}
	if l.WarnAt == 0 {
		l.WarnAt = warnAt
	}
	b.set(l.Subject, newRule(l))
	return nil
}

// warnAt is the share of a limit from which people are warned if nobody said another.
const warnAt = 0.8

// Remove drops the limit of a subject. A user or project falls back to the limit
// for each, if there is one.
func (b *Books) Remove(s tenant.Subject) { b.set(s, nil) }

// set enters or drops what a subject is bound by.
func (b *Books) set(s tenant.Subject, r *rule) {
	if r == nil {
		delete(b.limits, s)
	} else {
		b.limits[s] = r
	}
	switch {
	case s.User != "" && (r != nil || b.users[s.User] != nil):
		b.user(s.User).own = r
	case s.Project != "" && (r != nil || b.projects[s.Project] != nil):
		b.project(s.Project).own = r
	case s.Each == eachUser:
		b.eachUser = r
	case s.Each == eachProject:
		b.eachProject = r
	}
}

// What a limit for each may be for.
const (
	eachUser    = "user"
	eachProject = "project"
)

// Limits lists the limits by the names of their subjects.
func (b *Books) Limits() []tenant.Limit {
	all := make([]tenant.Limit, 0, len(b.limits))
	for _, r := range b.limits {
		all = append(all, r.Limit)
	}
	slices.SortFunc(all, func(x, y tenant.Limit) int { return strings.Compare(x.Subject.String(), y.Subject.String()) })
	return all
}

// Own returns the limit that was entered for a subject itself.
func (b *Books) Own(s tenant.Subject) (tenant.Limit, bool) {
	r, ok := b.limits[s]
	if !ok {
		return tenant.Limit{}, false
	}
	return r.Limit, true
}

// Of returns the limit that binds a user or a project: its own, or that for each.
func (b *Books) Of(s tenant.Subject) (tenant.Limit, bool) {
	r := b.limits[s]
	switch {
	case r != nil:
	case s.User != "":
		r = b.eachUser
	case s.Project != "":
		r = b.eachProject
	}
	if r == nil {
		return tenant.Limit{}, false
	}
	return r.Limit, true
}

// ruleOf returns what binds an account, nil if nothing does.
func (b *Books) ruleOf(a *account) *rule {
	switch {
	case a.own != nil:
		return a.own
	case a.subject.User != "":
		return b.eachUser
	}
	return b.eachProject
}

// check finds what is wrong with a limit.
func check(l *tenant.Limit) error {
	bad := func(field, format string, args ...any) error {
		return fault.New(fault.Invalid, "bad_limit", format, args...).WithField(field)
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
		return bad("subject", "a limit is for one user, one project, each user or each project: write user/ann, project/vision, each/user or each/project")
	case l.GPUs < 0 || l.GPUs > maxCount:
		return bad("gpus", "%d is no number of GPUs: write 0 for no limit, at most %d", l.GPUs, maxCount)
	case l.Nodes < 0 || l.Nodes > maxCount:
		return bad("nodes", "%d is no number of nodes: write 0 for no limit, at most %d", l.Nodes, maxCount)
	case !(l.GPUHours >= 0 && l.GPUHours <= maxGPUHours):
		return bad("gpu_hours", "%g is no number of GPU-hours: write 0 for no limit, at most %g", l.GPUHours, maxGPUHours)
	case l.Money < 0 || l.Money > maxMoney:
		return bad("money", "%s is no amount to limit to: write $0 for no limit, at most %s", l.Money, maxMoney)
	case l.Period != "" && !slices.Contains(tenant.Periods(), l.Period):
		return bad("period", "%q is no period: choose day, week or month", l.Period)
	case l.At != "" && !slices.Contains(tenant.LimitActions(), l.At):
		return bad("at", "%q is nothing that can be done at a limit: choose warn, ask, downgrade or stop", l.At)
	case !(l.WarnAt >= 0 && l.WarnAt <= 1):
		return bad("warn_at", "%g is no share of the limit: write a number from 0 to 1", l.WarnAt)
	}
	return nil
}

// What a limit is at most. Greater numbers are mistakes, and sums stay exact below them.
const (
	maxCount              = 1_000_000
	maxGPUHours           = 1e9
	maxMoney    job.Money = 1e9 * 1e6
)

func newRule(l tenant.Limit) *rule {
	r := &rule{Limit: l, gpus: int64(l.GPUs) * micro}
	r.amount[money] = int64(l.Money) * (nano / micro)
	r.amount[gpuHours] = units(l.GPUHours, hour*micro)
	for m := range measures {
		if r.amount[m] > 0 {
			r.mark[m] = mark(m, r)
		}
	}
	r.words = boundsOf(r)
	return r
}

// at returns the time to go by: now, unless later was told before.
func (b *Books) at(now time.Time) time.Time {
	if now.Before(b.now) {
		return b.now
	}
	return now
}

// tick takes note of the time.
func (b *Books) tick(now time.Time) time.Time {
	b.now = b.at(now)
	return b.now
}

// measure is what a period's limit counts.
type measure int

const (
	money    measure = iota // in billionths of a dollar
	gpuHours                // in GPU-microseconds
	measures
)

// The units of the books. Money goes to 9 billion dollars, GPU-time to 2.5 billion
// GPU-hours; both come through a float64 and back unchanged while they are below
// 9 million dollars and 2.5 million GPU-hours.
const (
	micro = 1_000_000
	nano  = 1_000_000_000
	hour  = 3600 // seconds
)

// units returns an amount in whole units of one scale-th. What is no number is
// nothing, and what is beyond all measure is the most there is.
func units(x, scale float64) int64 {
	const most = 1 << 62
	switch x = math.Round(x * scale); {
	case math.IsNaN(x):
		return 0
	case x >= most:
		return most
	case x <= -most:
		return -most
	}
	return int64(x)
}

// scale is how many units make one dollar or one GPU-hour.
func (m measure) scale() float64 {
	if m == money {
		return nano
	}
	return hour * micro
}

// plain returns an amount as people count it: dollars, GPU-hours.
func (m measure) plain(n int64) float64 { return float64(n) / m.scale() }
