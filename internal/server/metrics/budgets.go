package metrics

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"trainyard/internal/quota"
	"trainyard/internal/tenant"
)

// budgets is what may be used in a period, and what was used of it.
type budgets struct {
	limits  map[tenant.Subject]tenant.Quota
	totals  map[period]quota.Usage
	notices map[measured]quota.Notice
}

type period struct {
	subject tenant.Subject
	period  tenant.Period
}

type measured struct {
	subject tenant.Subject
	measure quota.Measure
}

// What a limit for each may be for.
const (
	eachUser    = "user"
	eachProject = "project"
	// warnAt is from which share people are warned where a limit does not say it.
	warnAt = 0.8
)

func newBudgets() budgets {
	return budgets{
		limits:  map[tenant.Subject]tenant.Quota{},
		totals:  map[period]quota.Usage{},
		notices: map[measured]quota.Notice{},
	}
}

// take takes what has changed.
func (b *budgets) take(limits []tenant.Quota, totals []quota.Usage, sent []quota.Notice) {
	for _, l := range limits {
		if l.Removed {
			delete(b.limits, l.Subject)
			continue
		}

		l.Period, l.WarnAt = cmp.Or(l.Period, tenant.Month), cmp.Or(l.WarnAt, warnAt)
		b.limits[l.Subject] = l
	}

	for i := range totals {
		b.totals[period{totals[i].Subject, totals[i].Period}] = totals[i]
	}

	for i := range sent {
		if sent[i].Job == "" {
			b.notices[measured{sent[i].Subject, sent[i].Measure}] = sent[i]
		}
	}
}

// standing is how it stands with one limit of one user or project.
type standing struct {
	subject tenant.Subject
	period  tenant.Period
	measure quota.Measure
	limit   float64
	used    float64
	over    bool // a notice was sent that it will be used up before the period ends
}

// look lists how everyone stands by their limits, by name. Who is bound by the limit for
// each alone is shown when it is time to warn, or if all are wanted: there may be many.
func (b *budgets) look(now time.Time, all bool) []standing {
	var list []standing
	for s, l := range b.limits {
		if s.Each == "" {
			list = b.of(list, s, &l, now, 0)
			continue
		}

		threshold := l.WarnAt
		if all {
			threshold = 0
		}

		for key := range b.totals {
			_, own := b.limits[key.subject]
			bound := key.subject.User != "" && s.Each == eachUser || key.subject.Project != "" && s.Each == eachProject
			if bound && !own && key.period == l.Period {
				list = b.of(list, key.subject, &l, now, threshold)
			}
		}
	}

	slices.SortFunc(list, func(x, y standing) int {
		return cmp.Or(strings.Compare(x.subject.String(), y.subject.String()), cmp.Compare(x.measure, y.measure))
	})

	return list
}

// of adds the standing of a subject under a quota, if at least the threshold share of it is used.
func (b *budgets) of(list []standing, s tenant.Subject, l *tenant.Quota, now time.Time, threshold float64) []standing {
	begin := l.Period.Begin(now)
	total := b.totals[period{s, l.Period}]
	if !total.Begin.Equal(begin) {
		total = quota.Usage{}
	}

	for _, m := range []struct {
		measure     quota.Measure
		limit, used float64
	}{
		{quota.Money, float64(l.Budget.Amount()), total.Cost},
		{quota.GPUHours, l.GPUHours, total.GPUSeconds / time.Hour.Seconds()},
	} {
		if m.limit <= 0 || m.used < threshold*m.limit {
			continue
		}

		notice := b.notices[measured{s, m.measure}]
		over := notice.Begin.Equal(begin) && (notice.Forecast || notice.UsedUp)
		list = append(
			list,
			standing{subject: s, period: l.Period, measure: m.measure, limit: m.limit, used: m.used, over: over},
		)
	}

	return list
}
