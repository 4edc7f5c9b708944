package yardmaster

import (
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/place"
	"trainyard/internal/queue"
)

// PutForecasts sets the forecasts of jobs. They are made outside the loop; those of jobs that
// have ended meanwhile are dropped.
type PutForecasts struct {
	Jobs []JobForecast
}

// JobForecast is the forecast of one job, with notices for its owner.
type JobForecast struct {
	Job      id.Job
	Forecast *job.Forecast // nil if there is nothing new
	Notices  []Notice
}

// Notice is an event about a job for the feed.
type Notice struct {
	Kind   string
	Reason string
}

func (m PutForecasts) handle(y *Yard) (any, error) { //nolint:unparam // the form of Message
	for i := range m.Jobs {
		r, ok := y.jobs[m.Jobs[i].Job]
		if !ok || r.State.Final() {
			continue
		}

		if f := m.Jobs[i].Forecast; f != nil {
			y.applyForecast(r, f)
		}

		for _, n := range m.Jobs[i].Notices {
			e := Event{Kind: n.Kind, Actor: theYard, Owner: r.Owner, Job: r.ID, Reason: n.Reason}
			if r.run != nil {
				e.Run = r.run.ID
			}

			y.event(e)
		}
	}

	return nil, nil
}

// applyForecast records a forecast. The expected ends of its nodes' bookings are updated, and a
// plan is due, only if the estimated finish has moved noticeably.
func (y *Yard) applyForecast(r *jobRecord, f *job.Forecast) {
	before := r.outlook.Forecast
	r.outlook.Forecast = f
	if r.item != nil && r.Epoch == 0 && r.item.Lasts == 0 && f.Informed() {
		y.requeue(r) // with its duration, once: the forecast does not change while the job is queued
	}

	if r.running == nil || r.run == nil {
		return
	}

	y.countSlow(r, f)

	if !finishMoved(before, f) {
		return
	}

	y.bookNodes(r, r.run)
	y.planDue = true
}

// countSlow counts the forecasts in a row by which a job is too slow, or is not. From the third on each makes a plan
// due, which may move it or provision nodes for it. So does each forecast of a job for which some were provisioned.
func (y *Yard) countSlow(r *jobRecord, f *job.Forecast) {
	if len(y.awaited(r)) > 0 {
		y.planDue = true
	}

	if !r.running.TooSlow(f) {
		r.outlook.Slow = min(r.outlook.Slow, 0) - 1
		y.withdrawSlow(r)

		return
	}

	r.outlook.Slow = max(r.outlook.Slow, 0) + 1

	if r.outlook.Slow >= place.SlowForecasts {
		y.slowDue, y.planDue = true, true
		y.slow[r.ID] = true
	}
}

// anySlow reports whether a running job may be too slow by enough forecasts in a row for a plan to look at it. One that
// is suspended still counts.
func (y *Yard) anySlow() bool {
	for j := range y.slow {
		if r := y.jobs[j]; r == nil || r.State.Final() || r.outlook.Slow < place.SlowForecasts {
			delete(y.slow, j)
		}
	}

	return len(y.slow) > 0
}

// finishMoved reports whether the estimated finish has moved by more than a twentieth of the
// remaining time and by more than half a minute.
func finishMoved(before, now *job.Forecast) bool {
	if before == nil || !before.Informed() || !now.Informed() {
		return now.Informed()
	}

	by := now.End().Sub(before.End()).Abs()

	return by > 30*time.Second && by.Seconds() > now.Remaining.Mid/20
}

// JobStatus is what forecasts need to know of a job.
type JobStatus struct {
	Cost     money.Amount  // so far, with what is not posted yet
	Progress *job.Progress // as its program reports it, nil if it has ended
	Speed    *job.Speed    // as declared or observed; nil if unknown
	Start    time.Time     // expected; zero if unknown
	// Outside says that it is no candidate for a start now, so that how long others like it were
	// queued says nothing about when it starts.
	Outside bool
	Need    fleet.Need // what it asks of its nodes, in the places that its data allow
	// NoProvisioning says that its quotas let no nodes be provisioned for it.
	NoProvisioning bool
}

// Status returns the status of a job that was read from the store. That of one that is not known yet, or has ended, has
// its cost alone.
func (s *Snapshot) Status(now time.Time, j *job.Job, explainer Explainer) JobStatus {
	now = s.clamp(now)
	status := JobStatus{Cost: j.Cost}
	f := s.factsFor(j.ID)
	if f == nil || j.State.Final() {
		return status
	}

	status.Speed, status.Need, status.Progress = f.speed(j), f.need, f.progress(now, j)
	status.NoProvisioning = s.downgraded[queue.Payer{User: j.Owner, Project: j.Project}]
	if f.live != nil {
		status.Cost = f.live.costAt(now, j.ID)
	}

	if why, waits := s.explain(now, j, f, explainer); waits {
		status.Start, status.Outside = why.Start, why.Outside()
	}

	return status
}

// StatusQuery is the question for the status of jobs. It is answered outside the loop: why jobs wait takes longest to
// find out.
type StatusQuery struct {
	snapshot *Snapshot
	jobs     []job.Job // without an id if they are not in memory
}

// JobStatuses asks for the status of jobs as they are now.
func (y *Yard) JobStatuses(jobs []id.Job) *StatusQuery {
	q := &StatusQuery{snapshot: y.Snapshot(y.now), jobs: make([]job.Job, len(jobs))}
	for i, j := range jobs {
		if r, ok := y.jobs[j]; ok {
			q.jobs[i] = r.Job
		}
	}

	return q
}

// Answer returns the status of each job; that of one that is not in memory is empty.
func (q *StatusQuery) Answer() []JobStatus {
	list := make([]JobStatus, len(q.jobs))
	explainer := q.snapshot.Explainer(q.snapshot.at)

	for i := range q.jobs {
		if j := &q.jobs[i]; j.ID != "" {
			list[i] = q.snapshot.Status(q.snapshot.at, j, explainer)
		}
	}

	return list
}

// Tariff returns what nodes cost, nil if it was not configured.
func (y *Yard) Tariff() *fleet.Tariff { return y.cfg.Tariff }
