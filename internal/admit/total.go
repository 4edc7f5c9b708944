package admit

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/tenant"
)

// Total is what one user or project has used in one period: what has to be kept
// over a restart. What runs and is hired is told anew by Use, Nodes and Commit.
type Total struct {
	Subject    tenant.Subject
	Period     tenant.Period
	Begin      time.Time
	GPUSeconds float64
	Money      float64
}

// Told is what people were told of one limit or budget, kept so that a restart
// neither repeats nor forgets it. One without a word said may be deleted.
type Told struct {
	Subject  tenant.Subject // whose limit
	Job      id.Job         // or whose budget
	Measure  Measure
	Mark     string    // the limit as it was then
	Begin    time.Time // of the period
	Near     bool
	UsedUp   bool
	Forecast bool
	Held     bool // something was held or stopped, and has not been set free
}

// Said reports whether anything was said.
func (t *Told) Said() bool { return t.Near || t.UsedUp || t.Forecast || t.Held }

// toldKey names what was told of: an account and a measure, or a job.
type toldKey struct {
	account *account
	measure measure
	job     id.Job
}

// touch notes that totals of an account changed.
func (b *Books) touch(a *account) {
	if !a.dirty {
		a.dirty = true
		b.spent = append(b.spent, a)
	}
}

// Totals lists what was used in the periods that it is now, by subject and period.
func (b *Books) Totals() []Total { return b.totals(b.order) }

func (b *Books) totals(accounts []*account) []Total {
	var all []Total
	for _, a := range accounts {
		for i, p := range tenant.Periods() {
			if w := &a.windows[i]; b.now.Before(w.end) {
				all = append(all, Total{
					Subject: a.subject, Period: p, Begin: w.begin,
					GPUSeconds: float64(w.used[gpuHours]) / micro, Money: money.plain(w.used[money]),
				})
			}
		}
	}
	return all
}

// Told lists what people were told of the limits and budgets that are in force.
func (b *Books) Told() []Told {
	var all []Told
	for _, a := range b.order {
		for m := range measures {
			if t := a.told[m].row(toldKey{account: a, measure: m}); t.Said() {
				all = append(all, t)
			}
		}
	}
	for _, j := range slices.SortedFunc(maps.Keys(b.told), compareJobs) {
		if t := b.told[j].row(toldKey{job: j}); t.Said() {
			all = append(all, t)
		}
	}
	return all
}

// Changed lists what must be written down since it was asked last.
func (b *Books) Changed() ([]Total, []Told) {
	slices.SortFunc(b.spent, compareAccounts)
	totals := b.totals(b.spent)
	var told []Told
	for _, k := range slices.SortedFunc(maps.Keys(b.said), compareKeys) {
		switch t, ok := b.told[k.job]; {
		case k.account != nil:
			told = append(told, k.account.told[k.measure].row(k))
		case ok:
			told = append(told, t.row(k))
		default: // it ended
			told = append(told, Told{Job: k.job, Measure: Money})
		}
	}
	for _, a := range b.spent {
		a.dirty = false
	}
	b.spent = nil
	clear(b.said)
	return totals, told
}

// Load puts back what Totals and Told, or Changed by and by, have listed.
func (b *Books) Load(totals []Total, said []Told) error {
	for _, t := range totals {
		a, err := b.accountOf(t.Subject)
		if err != nil {
			return err
		}
		if !slices.Contains(tenant.Periods(), t.Period) {
			return fmt.Errorf("a total of %s is by %q, which is no period", t.Subject, t.Period)
		}
		w := &a.windows[slot(t.Period)]
		*w = window{begin: t.Period.Begin(t.Begin), end: t.Period.End(t.Begin)}
		w.used[money], w.used[gpuHours] = units(t.Money, nano), units(t.GPUSeconds, micro)
		b.tick(w.begin)
	}
	for _, t := range said {
		row := told{mark: t.Mark, begin: t.Begin.UTC(), near: t.Near, usedUp: t.UsedUp, forecast: t.Forecast, held: t.Held}
		if t.Job != "" {
			b.told[t.Job] = &row
			continue
		}
		a, err := b.accountOf(t.Subject)
		if err != nil {
			return err
		}
		a.told[measureOf(t.Measure)] = row
	}
	return nil
}

func (b *Books) accountOf(s tenant.Subject) (*account, error) {
	switch {
	case s.User != "":
		return b.user(s.User), nil
	case s.Project != "":
		return b.project(s.Project), nil
	}
	return nil, fmt.Errorf("a total is of %s, which is neither a user nor a project", s)
}

// row returns what was told as it is kept.
func (t *told) row(k toldKey) Told {
	row := Told{Job: k.job, Measure: k.measure.name(), Mark: t.mark, Begin: t.begin, Near: t.near, UsedUp: t.usedUp, Forecast: t.forecast, Held: t.held}
	if k.account != nil {
		row.Subject = k.account.subject
	}
	return row
}

func compareAccounts(x, y *account) int { return strings.Compare(x.name, y.name) }

func compareKeys(x, y toldKey) int {
	switch {
	case x.account != nil && y.account != nil:
		return cmp.Or(compareAccounts(x.account, y.account), cmp.Compare(x.measure, y.measure))
	case x.account != nil:
		return -1
	case y.account != nil:
		return 1
	}
	return compareJobs(x.job, y.job)
}

// compareJobs puts jobs in the order of submission.
func compareJobs(x, y id.Job) int {
	return cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y))
}
