package quota

import (
	"cmp"
	"math"
	"slices"
	"time"

	"trainyard/internal/money"
	"trainyard/internal/tenant"
)

// Measure is what a quota counts in a period.
type Measure string

// The measures.
const (
	Money    Measure = "money"
	GPUHours Measure = "gpu_hours"
)

func (m measure) name() Measure {
	if m == dollars {
		return Money
	}

	return GPUHours
}

func measureOf(m Measure) measure {
	if m == GPUHours {
		return gpuHours
	}

	return dollars
}

// Status is the current and expected usage of a user or project.
type Status struct {
	Subject  tenant.Subject
	Quota    tenant.Quota // that applies; zero if none does
	Local    float64      // GPUs in use now, by class
	Reserved float64
	OnDemand float64
	Nodes    int           // on-demand nodes held now
	Hourly   money.PerHour // now
	Begin    time.Time
	End      time.Time // of the period, when usage resets
	Cost     Projection
	GPUHours Projection
}

// Projection is the usage of one measure in a period, so far and expected.
type Projection struct {
	Limit     float64 // 0 if there is none
	Used      float64
	Expected  float64   // at the end of the period, if nothing more starts
	Exhausted time.Time // when the quota is used up; zero if it lasts for the period
}

// Statuses returns the status of everyone who has a quota, or uses something and is bound by
// the quota for each, by name. Expected usage is projected from the jobs that run now: one
// whose remaining usage is known ends, another goes on.
func (t *Tracker) Statuses(now time.Time) []Status {
	now = t.latest(now)
	var all []Status
	for _, a := range t.accounts {
		if r := t.limitOf(a); r != nil && (a.own != nil || a.active(r.Period, now)) {
			all = append(all, a.status(r, now))
		}
	}

	return all
}

// active reports whether anything is used, or was in the period.
func (a *account) active(p tenant.Period, now time.Time) bool {
	return len(a.jobs) > 0 || a.nodes > 0 || now.Before(a.windows[periodIndex(p)].end)
}

// Status returns the status of one user or project. Without a quota its usage is by month.
func (t *Tracker) Status(now time.Time, s tenant.Subject) Status {
	a := t.users[s.User]
	if s.User == "" {
		a = t.projects[s.Project]
	}

	if a == nil {
		a = &account{subject: s}
	}

	if r := t.limitOf(a); r != nil {
		return a.status(r, t.latest(now))
	}

	out := a.status(&limit{Quota: tenant.Quota{Period: tenant.Month}}, t.latest(now))
	out.Quota = tenant.Quota{}

	return out
}

func (a *account) status(r *limit, now time.Time) Status {
	return Status{
		Subject: a.subject, Quota: r.Quota, Nodes: a.nodes, Hourly: money.PerHour(dollars.value(a.rate[dollars])),
		Local: float64(a.gpus[0]) / micro, Reserved: float64(a.gpus[1]) / micro, OnDemand: float64(a.gpus[2]) / micro,
		Begin: r.Period.Begin(now), End: r.Period.End(now),
		Cost: a.projection(r, dollars, now), GPUHours: a.projection(r, gpuHours, now),
	}
}

// projection projects the usage of one measure to the end of the period.
func (a *account) projection(r *limit, m measure, now time.Time) Projection {
	used, limit := a.used(m, r.Period, now), r.amounts[m]
	c := Projection{Limit: m.value(limit), Used: m.value(used)}
	rest := a.periodEnd(r.Period, now).Sub(now)
	sum, after := a.project(m, rest, limit-used)
	c.Expected = m.value(used) + sum
	switch {
	case limit == 0:
	case used >= limit:
		c.Exhausted = now
	case after < rest:
		c.Exhausted = now.Add(after)
	}

	return c
}

// exhaustedWithin returns after how long what is left of a quota will be used up, and
// whether that is within the given time.
func (a *account) exhaustedWithin(m measure, rest time.Duration, left int64) (time.Duration, bool) {
	// If every running job went on to the end, that would be an upper bound.
	if a.rate[m] <= 0 || float64(a.rate[m])*rest.Hours() <= float64(left) {
		return 0, false
	}

	_, after := a.project(m, rest, left)

	return after, after < rest
}

// stretch is the use of one job for so many hours.
type stretch struct {
	hours float64
	rate  int64
	who   Payer
}

// project returns what running jobs will use within the given time, in dollars or GPU-hours,
// and after how long they will have used up what is left: the whole time if they will not.
func (a *account) project(m measure, rest time.Duration, left int64) (sum float64, after time.Duration) {
	stretches := make([]stretch, 0, len(a.jobs))
	var rate int64 // of all jobs that still run
	for who, s := range a.jobs {
		if s.rate[m] <= 0 {
			continue
		}

		hours := rest.Hours()
		if s.remainingKnown[m] {
			hours = min(hours, float64(s.remaining[m])/float64(s.rate[m]))
		}

		stretches = append(stretches, stretch{hours, s.rate[m], who})
		rate += s.rate[m]
	}

	// A fixed order makes the floating-point sum the same each time.
	slices.SortFunc(
		stretches,
		func(x, y stretch) int { return cmp.Or(cmp.Compare(x.hours, y.hours), comparePayers(x.who, y.who)) },
	)

	at, used := 0.0, 0.0
	after = rest

	for _, s := range stretches {
		step := float64(rate) * (s.hours - at)
		if after == rest && used+step > float64(left) {
			after = min(rest, hoursDuration(at+(float64(left)-used)/float64(rate)))
		}

		used += step
		at = s.hours
		rate -= s.rate
	}

	return used / m.scale(), after
}

func hoursDuration(hours float64) time.Duration {
	d := hours * float64(time.Hour)
	if d >= math.MaxInt64 {
		return math.MaxInt64
	}

	return time.Duration(max(d, 0))
}

func comparePayers(x, y Payer) int {
	return cmp.Or(compareJobs(x.Job, y.Job), cmp.Compare(x.Owner, y.Owner), cmp.Compare(x.Project, y.Project))
}
