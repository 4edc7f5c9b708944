package yardmaster

import (
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// Foresee tells the yard what is expected of jobs. It comes from beside the loop,
// where curves and history are; what has gone stale meanwhile is dropped.
type PutForecasts struct {
	Jobs []JobForecast
}

// Foreseen is what is expected of one job, and what its people are to be told.
type JobForecast struct {
	Job      id.Job
	Forecast *job.Forecast // nil if there is nothing new
	Notices  []Notice
}

// Notice is something about a job that the feed is to tell.
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
			y.foreseen(r, f)
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

// foreseen takes a forecast. When nodes will be free is worked out anew, and asked about
// retry, only if it has changed by something that could matter.
func (y *Yard) foreseen(r *jobRecord, f *job.Forecast) {
	before := r.outlook.Forecast
	r.outlook.Forecast = f
	if r.item != nil && r.Epoch == 0 && r.item.Lasts == 0 && f.Informed() {
		y.requeue(r) // with how long it will take, once: that does not change while it waits
	}

	if r.running == nil || r.run == nil || !moved(before, f) {
		return
	}

	y.hold(r, r.run)
	y.round = true
}

// moved reports whether the expected end has moved by more than a twentieth of what is left,
// and by more than half a minute.
func moved(before, now *job.Forecast) bool {
	if before == nil || !before.Informed() || !now.Informed() {
		return now.Informed()
	}

	by := now.End().Sub(before.End()).Abs()

	return by > 30*time.Second && by.Seconds() > now.Remaining.Mid/20
}

// Stand is where a job stands, for forecasts.
type JobStatus struct {
	Cost     float64       // so far, with what is not posted yet
	Progress *job.Progress // how far its program says it is, nil if it has ended
	Speed    *job.Speed    // as told; nil if nobody did
	Start    time.Time     // when it is expected to start, if it is the next in line
}

// Stands tells where jobs stand; of one that is not in memory it is empty.
func (y *Yard) JobStatuses(jobs []id.Job) []JobStatus {
	list := make([]JobStatus, len(jobs))

	for i, j := range jobs {
		r, ok := y.jobs[j]
		if !ok {
			continue
		}

		s := &list[i]
		s.Cost, s.Speed = y.costOf(r), r.outlook.Speed
		if !r.State.Final() {
			s.Progress = progressOf(y.now, r.outlook, r.running)
		}

		if y.held != nil && y.held.Job == j {
			s.Start = y.held.At
		}
	}

	return list
}

// Tariff returns what nodes cost, nil if nobody told.
func (y *Yard) Tariff() *fleet.Tariff { return y.cfg.Tariff }
