package quota

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

// Usage is what one user or project has used in one period. It is stored, because it must
// survive a restart; what runs then is entered anew by Use, Nodes and Commit.
type Usage struct {
	Subject    tenant.Subject `json:"subject"`
	Period     tenant.Period  `json:"period"`
	Begin      time.Time      `json:"begin"`
	GPUSeconds float64        `json:"gpu_seconds"`
	Cost       float64        `json:"cost"`
}

// Notice is what people were notified of about one quota or budget. It is stored, so that a
// restart neither repeats nor forgets an alert. One that is not Sent may be deleted.
type Notice struct {
	Subject  tenant.Subject `json:"subject,omitzero"` // whose quota
	Job      id.Job         `json:"job,omitempty"`    // or whose budget
	Measure  Measure        `json:"measure"`
	Mark     string         `json:"mark,omitempty"` // identifies the quota as it was then
	Begin    time.Time      `json:"begin,omitzero"` // of the period
	Near     bool           `json:"near,omitempty"`
	UsedUp   bool           `json:"used_up,omitempty"`
	Forecast bool           `json:"forecast,omitempty"`
	Held     bool           `json:"held,omitempty"` // jobs were held or stopped and may not continue yet
}

// Sent reports whether people were notified of anything.
func (n *Notice) Sent() bool { return n.Near || n.UsedUp || n.Forecast || n.Held }

// noticeKey identifies a notice: by account and measure, or by job.
type noticeKey struct {
	account *account
	measure measure
	job     id.Job
}

// markChanged records that the usage of an account has to be stored.
func (t *Tracker) markChanged(a *account) {
	if !a.changed {
		a.changed = true
		t.changedAccounts = append(t.changedAccounts, a)
	}
}

// Usage lists what was used in the current periods, by subject and period.
func (t *Tracker) Usage() []Usage { return t.usageOf(t.accounts) }

func (t *Tracker) usageOf(accounts []*account) []Usage {
	var all []Usage
	periods := tenant.Periods()

	for _, a := range accounts {
		for i, p := range periods {
			if w := &a.windows[i]; t.now.Before(w.end) {
				if all == nil {
					all = make([]Usage, 0, len(accounts)*len(periods))
				}

				all = append(all, Usage{
					Subject: a.subject, Period: p, Begin: w.begin,
					GPUSeconds: float64(w.used[gpuHours]) / micro, Cost: dollars.value(w.used[dollars]),
				})
			}
		}
	}

	return all
}

// Notices lists what people were notified of about current quotas and budgets.
func (t *Tracker) Notices() []Notice {
	var all []Notice
	for _, a := range t.accounts {
		for m := range measures {
			if n := a.notices[m].stored(noticeKey{account: a, measure: m}); n.Sent() {
				all = append(all, n)
			}
		}
	}

	for _, j := range slices.SortedFunc(maps.Keys(t.budgetNotices), compareJobs) {
		if n := t.budgetNotices[j].stored(noticeKey{job: j}); n.Sent() {
			all = append(all, n)
		}
	}

	return all
}

// Changed lists what has to be stored since the last call.
func (t *Tracker) Changed() ([]Usage, []Notice) {
	slices.SortFunc(t.changedAccounts, compareAccounts)
	usage := t.usageOf(t.changedAccounts)

	var notices []Notice

	for _, k := range slices.SortedFunc(maps.Keys(t.changedNotices), compareNoticeKeys) {
		switch n, ok := t.budgetNotices[k.job]; {
		case k.account != nil:
			notices = append(notices, k.account.notices[k.measure].stored(k))
		case ok:
			notices = append(notices, n.stored(k))
		default: // the job has ended
			notices = append(notices, Notice{Job: k.job, Measure: Money})
		}
	}

	for _, a := range t.changedAccounts {
		a.changed = false
	}

	clear(t.changedAccounts)
	t.changedAccounts = t.changedAccounts[:0]
	clear(t.changedNotices)

	return usage, notices
}

// Load restores what Usage and Notices, or Changed over time, have listed.
func (t *Tracker) Load(usage []Usage, notices []Notice) error {
	for _, n := range usage {
		a, err := t.accountOf(n.Subject)
		if err != nil {
			return err
		}
		if !slices.Contains(tenant.Periods(), n.Period) {
			return fmt.Errorf("stored usage of %s has the unknown period %q", n.Subject, n.Period)
		}

		w := &a.windows[periodIndex(n.Period)]
		*w = window{begin: n.Period.Begin(n.Begin), end: n.Period.End(n.Begin)}
		w.used[dollars], w.used[gpuHours] = toUnits(n.Cost, nano), toUnits(n.GPUSeconds, micro)
		t.advance(w.begin)
	}

	for _, n := range notices {
		row := notice{mark: n.Mark, begin: n.Begin.UTC(), near: n.Near, usedUp: n.UsedUp, forecast: n.Forecast, held: n.Held}
		if n.Job != "" {
			t.budgetNotices[n.Job] = &row
			continue
		}

		a, err := t.accountOf(n.Subject)
		if err != nil {
			return err
		}

		a.notices[measureOf(n.Measure)] = row
	}

	return nil
}

func (t *Tracker) accountOf(s tenant.Subject) (*account, error) {
	switch {
	case s.User != "":
		return t.userAccount(s.User), nil
	case s.Project != "":
		return t.projectAccount(s.Project), nil
	}

	return nil, fmt.Errorf("stored usage of %s, which is neither a user nor a project", s)
}

// stored returns the notice as it is stored.
func (n *notice) stored(k noticeKey) Notice {
	row := Notice{
		Job: k.job, Measure: k.measure.name(),
		Mark: n.mark, Begin: n.begin, Near: n.near, UsedUp: n.usedUp, Forecast: n.forecast, Held: n.held,
	}

	if k.account != nil {
		row.Subject = k.account.subject
	}

	return row
}

func compareAccounts(x, y *account) int { return strings.Compare(x.name, y.name) }

func compareNoticeKeys(x, y noticeKey) int {
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

// compareJobs orders jobs by submission.
func compareJobs(x, y id.Job) int {
	return cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y))
}
