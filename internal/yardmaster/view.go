package yardmaster

import (
	"time"

	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/queue"
	"trainyard/internal/quota"
	"trainyard/internal/tenant"
)

// View returns what a policy sees, as a clone that does not change with the yard.
func (y *Yard) View(now time.Time) *place.View { return y.copyView(y.view(now)).View() }

// CopyView copies what a policy sees, quickly; the rest of View is done outside the loop.
func (y *Yard) CopyView(now time.Time) *place.Copy { return y.copyView(y.view(now)) }

// copyView copies a view of now, quickly: the rooms are those of the snapshots.
func (y *Yard) copyView(v *place.View) *place.Copy { return v.Copy(y.nodes.Rooms.Freeze().Rooms) }

// view returns what a policy sees. It shares memory with the yard and must not be used after
// the next change.
func (y *Yard) view(now time.Time) *place.View {
	v := y.basicView(now)
	v.Usage = y.people.UsageByUser(y.now)
	v.ProjectUsage = y.people.UsageByProject(y.now)
	v.Limits = y.limitsOf()
	v.Data = y.data.Snapshot()
	v.Tariff = y.cfg.Tariff
	v.Offers, v.Exhausted = y.leases.Offers(y.now)
	v.NodeLimit = place.NodeLimit{Max: y.leases.MaxNodes(), InUse: y.leases.Count()}
	v.Leases = y.leases.Live()
	v.Past = y.pastForPlans()
	v.Beside = y.beside
	v.Network = y.cfg.Network
	v.NoneSlow = !y.anySlow()

	return v
}

// pastRenewal is after how long policies are told of runs that have ended, at the latest.
const pastRenewal = time.Minute

// pastForPlans returns the durations of earlier runs as policies see them. They estimate from it how long jobs
// last, and do so anew when it changes: it is renewed when it has grown by a sixteenth, and after pastRenewal.
func (y *Yard) pastForPlans() *queue.Past {
	added := y.past.Version() - y.planPast.Version()
	passed := y.now.Sub(y.planPastAt)

	if y.planPast == nil || added > 0 && (16*added >= y.past.Version() || passed >= pastRenewal || passed < 0) {
		y.planPast, y.planPastAt = y.past.Clone(), y.now
	}

	return y.planPast
}

// basicView is the part of a view that costs nothing to make: nodes, queue and running jobs.
// It is enough to check a plan and to say why a job is queued.
func (y *Yard) basicView(now time.Time) *place.View {
	y.setNow(now)

	return &place.View{
		Now:     y.now,
		Rooms:   y.nodes.Rooms.SharedRooms(),
		Bands:   y.nodes.Rooms.Bands(),
		Changes: y.nodes.Rooms.Changes(),
		Queue:   y.queue,
		Running: y.running,
	}
}

// limitsOf returns what quotas and budgets allow, nil if there are none.
func (y *Yard) limitsOf() *place.Limits {
	if !y.limited() {
		return nil
	}

	l := &place.Limits{
		Payers: make(map[queue.Payer]place.PayerLimit, len(y.payers)),
		Jobs:   make(map[id.Job]tenant.Allowance, len(y.ownAllowances)),
	}

	for p := range y.payers {
		payer := quota.Payer{Owner: p.User, Project: p.Project}
		l.Payers[p] = place.PayerLimit{
			Allowance: y.quotas.Allow(y.now, payer, 0, 0),
			Borrows:   y.quotas.Any() && y.quotas.Borrowed(payer) > 0,
		}
	}

	for j, r := range y.ownAllowances {
		l.Jobs[j] = y.allowance(r)
	}

	for _, rn := range y.running { // for which nodes may be provisioned
		if rn.Outlook.Slow >= place.SlowForecasts || !rn.Hurried.IsZero() {
			l.Jobs[rn.Job] = y.allowance(y.jobs[rn.Job])
		}
	}

	return l
}

// countJob counts an unfinished job; jobs is 1 when it is submitted and -1 when it has ended.
func (y *Yard) countJob(r *jobRecord, jobs int) {
	var text job.Bytes
	if jobs > 0 {
		text = y.texts.take(r)
	} else {
		text = -y.texts.drop(r)
	}

	y.jobText += text
	y.people.Count(r.Owner, jobs, text)
	y.countBudget(r, jobs)
	y.countElement(r, jobs)

	p := queue.Payer{User: r.Owner, Project: r.Project}
	y.payers[p] += jobs
	if y.payers[p] == 0 {
		delete(y.payers, p)
	}
}

// updateOwnAllowance records whether a queued job has an allowance of its own, other than that
// of the other jobs of its owner and project: it has a budget, or usage was committed to it.
func (y *Yard) updateOwnAllowance(r *jobRecord) {
	if r.item != nil && (r.Spec.Budget > 0 || r.committed) {
		y.ownAllowances[r.ID] = r
		return
	}

	delete(y.ownAllowances, r.ID)
}
