package admit

import (
	"cmp"
	"math"
	"slices"
	"time"

	"trainyard/internal/tenant"
)

// Measure is what a period's limit counts.
type Measure string

// The measures.
const (
	Money    Measure = "money"
	GPUHours Measure = "gpu_hours"
)

func (m measure) name() Measure {
	if m == money {
		return Money
	}
	return GPUHours
}

func measureOf(m Measure) measure {
	if m == GPUHours {
		return gpuHours
	}
	return money
}

// Standing is where a user or project stands: what they have now, have used, and
// will have used when the period ends.
type Standing struct {
	Subject  tenant.Subject
	Limit    tenant.Limit // that binds; zero if none does
	Local    float64      // GPUs in use now by class
	Reserved float64
	OnDemand float64
	Nodes    int     // on-demand nodes now
	Hourly   float64 // money spent per hour now
	Begin    time.Time
	Ends     time.Time // the period does, and all starts anew
	Money    Course
	GPUHours Course
}

// Course is what a period's use has come to and where it goes.
type Course struct {
	Limit    float64 // 0 if there is none
	Used     float64
	Expected float64   // at the end of the period, if nothing more starts
	UsedUp   time.Time // when the limit is, or was found to be, reached; zero if it lasts for the period
}

// Forecast tells where everyone stands who has a limit, or uses something and is
// bound by the limit for each, by name. It goes by what runs now: a job of which
// the rest is known ends, another goes on.
func (b *Books) Forecast(now time.Time) []Standing {
	now = b.at(now)
	var all []Standing
	for _, a := range b.order {
		if r := b.ruleOf(a); r != nil && (a.own != nil || a.active(r.Period, now)) {
			all = append(all, a.standing(r, now))
		}
	}
	return all
}

// active reports whether anything is used, or was in the period.
func (a *account) active(p tenant.Period, now time.Time) bool {
	return len(a.live) > 0 || a.nodes > 0 || now.Before(a.windows[slot(p)].end)
}

// Standing tells where one user or project stands, limited or not. Use that is not
// limited is shown by month.
func (b *Books) Standing(now time.Time, s tenant.Subject) Standing {
	a := b.users[s.User]
	if s.User == "" {
		a = b.projects[s.Project]
	}
	if a == nil {
		a = &account{subject: s}
	}
	if r := b.ruleOf(a); r != nil {
		return a.standing(r, b.at(now))
	}
	out := a.standing(&rule{Limit: tenant.Limit{Period: tenant.Month}}, b.at(now))
	out.Limit = tenant.Limit{}
	return out
}

func (a *account) standing(r *rule, now time.Time) Standing {
	return Standing{
		Subject: a.subject, Limit: r.Limit, Nodes: a.nodes, Hourly: money.plain(a.rate[money]),
		Local: float64(a.gpus[0]) / micro, Reserved: float64(a.gpus[1]) / micro, OnDemand: float64(a.gpus[2]) / micro,
		Begin: r.Period.Begin(now), Ends: r.Period.End(now),
		Money: a.course(r, money, now), GPUHours: a.course(r, gpuHours, now),
	}
}

// course works out where the use of one measure goes.
func (a *account) course(r *rule, m measure, now time.Time) Course {
	used, limit := a.usedOf(m, r.Period, now), r.amount[m]
	c := Course{Limit: m.plain(limit), Used: m.plain(used)}
	rest := a.endOf(r.Period, now).Sub(now)
	sum, after := a.ahead(m, rest, limit-used)
	c.Expected = m.plain(used) + sum
	switch {
	case limit == 0:
	case used >= limit:
		c.UsedUp = now
	case after < rest:
		c.UsedUp = now.Add(after)
	}
	return c
}

// overspends returns after how long the rest of a limit will be used up, and
// whether that is within the time.
func (a *account) overspends(m measure, rest time.Duration, left int64) (time.Duration, bool) {
	// If all that runs now went on, it would be the most that can be used.
	if a.rate[m] <= 0 || float64(a.rate[m])*rest.Hours() <= float64(left) {
		return 0, false
	}
	_, after := a.ahead(m, rest, left)
	return after, after < rest
}

// stretch is a job that uses something for so many hours.
type stretch struct {
	hours float64
	rate  int64
	who   Who
}

// ahead adds up what running jobs will use in the time, in dollars or GPU-hours, and
// tells after how long they will have used up what is left: all the time, if they
// will not.
func (a *account) ahead(m measure, rest time.Duration, left int64) (sum float64, after time.Duration) {
	stretches := make([]stretch, 0, len(a.live))
	var rate int64 // of all that go on
	for who, s := range a.live {
		if s.rate[m] <= 0 {
			continue
		}
		hours := rest.Hours()
		if s.known[m] {
			hours = min(hours, float64(s.left[m])/float64(s.rate[m]))
		}
		stretches = append(stretches, stretch{hours, s.rate[m], who})
		rate += s.rate[m]
	}
	// The order makes the sum of fractions the same each time.
	slices.SortFunc(stretches, func(x, y stretch) int { return cmp.Or(cmp.Compare(x.hours, y.hours), compareWho(x.who, y.who)) })
	at, used := 0.0, 0.0
	after = rest
	for _, s := range stretches {
		step := float64(rate) * (s.hours - at)
		if after == rest && used+step > float64(left) {
			after = min(rest, duration(at+(float64(left)-used)/float64(rate)))
		}
		used += step
		at = s.hours
		rate -= s.rate
	}
	return used / m.scale(), after
}

func duration(hours float64) time.Duration {
	d := hours * float64(time.Hour)
	if d >= math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(max(d, 0))
}

func compareWho(x, y Who) int {
	return cmp.Or(compareJobs(x.Job, y.Job), cmp.Compare(x.Owner, y.Owner), cmp.Compare(x.Project, y.Project))
}
