package yardmaster

import (
	"time"

	"trainyard/internal/id"
	"trainyard/internal/place"
	"trainyard/internal/queue"
	"trainyard/internal/quota"
	"trainyard/internal/tenant"
)

// View returns what a policy sees, as a value of its own: the yard may go on.
func (y *Yard) View(now time.Time) *place.View { return y.view(now).Clone() }

// view is what a policy sees. It shares memory with the yard and is for who is done with
// it before anything changes.
func (y *Yard) view(now time.Time) *place.View {
	v := y.glance(now)
	v.Usage = y.people.Uses(y.now)
	v.ProjectUsage = y.people.ProjectUses(y.now)
	v.Limits = y.limitsOf()
	v.Data = y.data.Snapshot()
	v.Tariff = y.cfg.Tariff
	v.Offers = y.leases.Market.Available(y.now)
	v.Leases = y.leases.Live()
	v.Past = &y.past

	return v
}

// glance is the part of a view that costs nothing: what there is and what runs on it.
// It is enough to check a plan and to say why a job waits.
func (y *Yard) glance(now time.Time) *place.View {
	y.setNow(now)

	return &place.View{
		Now:     y.now,
		Rooms:   y.nodes.Rooms.Own(),
		Bands:   y.nodes.Rooms.Bands(),
		Queue:   y.line,
		Running: y.running,
	}
}

// limitsOf returns what quotas and budgets leave, nil if nobody is limited.
func (y *Yard) limitsOf() *place.Limits {
	if !y.limited() {
		return nil
	}

	l := &place.Limits{
		Payers: make(map[queue.Payer]place.PayerLimit, len(y.purses)),
		Jobs:   make(map[id.Job]tenant.Allowance, len(y.apart)),
	}

	for p := range y.purses {
		payer := quota.Payer{Owner: p.User, Project: p.Project}
		l.Payers[p] = place.PayerLimit{
			Allowance: y.quotas.Allow(y.now, payer, 0, 0),
			Borrows:   y.quotas.Any() && y.quotas.Borrowed(payer) > 0,
		}
	}

	for j, r := range y.apart {
		l.Jobs[j] = y.allowance(r)
	}

	return l
}

// countJob counts a job that has not ended, or with a minus sign one that has.
func (y *Yard) countJob(r *jobRecord, jobs int) {
	y.people.Count(r.Owner, jobs)
	y.countBudget(r, jobs)

	p := queue.Payer{User: r.Owner, Project: r.Project}
	y.purses[p] += jobs
	if y.purses[p] == 0 {
		delete(y.purses, p)
	}
}

// setApart notes whether a job that is in line may take something else than the other
// jobs of its owner and project: it has a budget of its own, or something was committed
// to it.
func (y *Yard) setApart(r *jobRecord) {
	if r.item != nil && (r.Spec.Budget > 0 || r.committed) {
		y.apart[r.ID] = r
		return
	}

	delete(y.apart, r.ID)
}
