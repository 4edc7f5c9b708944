package forecaster

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/forecast"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/metric"
	"trainyard/internal/yardmaster"
)

// pass makes the forecasts that are due, writes what has changed, and drops jobs that have ended.
func (f *Forecaster) pass(ctx context.Context) {
	if !f.fenced {
		f.renew(ctx)
		f.finish(ctx)
	}
}

// renew makes the forecasts that are due and writes what has changed.
func (f *Forecaster) renew(ctx context.Context) {
	err := errors.Join(f.loadAll(ctx), f.make(ctx, f.due(f.Clock.Now())), f.forecastQueue(ctx))
	f.lastError.log(ctx, f.Log, f.Clock.Now(), err)
	f.flush(ctx, false)
}

// loggedError is the last logged error. A lasting error is not logged at each pass.
type loggedError struct {
	text string
	at   time.Time
}

// log logs an error unless the same error was logged recently.
func (t *loggedError) log(ctx context.Context, log *slog.Logger, now time.Time, err error) {
	if err == nil || ctx.Err() != nil {
		t.text = ""
		return
	}

	if text := err.Error(); text != t.text || passed(t.at, now, maxPause) {
		t.text, t.at = text, now
		log.ErrorContext(ctx, "making forecasts failed, retrying", "error", err)
	}
}

// pendingForecast is a forecast that has not been sent yet.
type pendingForecast struct {
	w      *liveJob
	before []string // notices that were active before it
	yardmaster.JobForecast
}

// make makes forecasts for jobs and sends them to the yardmaster.
func (f *Forecaster) make(ctx context.Context, due []id.Job) error {
	if len(due) == 0 {
		return nil
	}

	began := f.Clock.Now()
	renew := f.marketStale(began)

	var asked *yardmaster.StatusQuery // written by the loop, perhaps after this call has timed out
	var offers []fleet.Offer
	err := f.Query(ctx, func(y *yardmaster.Yard) {
		asked = y.JobStatuses(due)
		if renew {
			offers, _ = y.Offers(began)
		}
	})
	if err != nil {
		return err
	}

	if renew {
		f.setOffers(offers)
	}

	stands := asked.Answer()

	var all []pendingForecast

	var updates []yardmaster.JobForecast
	for i, j := range due {
		if m, ok := f.one(j, &stands[i]); ok {
			all, updates = append(all, m), append(updates, m.JobForecast)
		}

		if ctx.Err() != nil || passed(began, f.Clock.Now(), passBudget) {
			break // the others are first in the next pass
		}
	}

	err = f.send(ctx, updates)
	if err != nil {
		f.restoreNotices(all)
	}

	return err
}

// restoreNotices withdraws notices that could not be sent, so that they are sent with the next forecast.
func (f *Forecaster) restoreNotices(all []pendingForecast) {
	f.mu.Lock()
	defer f.mu.Unlock()

	for i := range all {
		m := &all[i]
		m.w.changed = true
		if len(m.Notices) > 0 && m.w.forecast == m.Forecast {
			again := *m.Forecast // a copy, because others have the original
			again.Notices = m.before
			m.w.forecast = &again
		}
	}
}

func (f *Forecaster) send(ctx context.Context, updates []yardmaster.JobForecast) error {
	if len(updates) == 0 {
		return nil
	}

	_, err := f.Do(ctx, yardmaster.PutForecasts{Jobs: updates})

	return err
}

// one makes the forecast of a job. It computes without the lock, so points may arrive meanwhile.
func (f *Forecaster) one(j id.Job, stand *yardmaster.JobStatus) (pendingForecast, bool) {
	now := f.Clock.Now()
	f.mu.Lock()

	w, ok := f.jobs[j]
	if !ok || !w.endedAt.IsZero() {
		f.mu.Unlock()
		return pendingForecast{}, false
	}

	in := f.input(w, stand, now)
	before := w.forecast
	w.forecastAt, w.changed = now, false
	f.mu.Unlock()

	in.Library, in.Record = f.trainer.current()
	out := pendingForecast{w: w, JobForecast: yardmaster.JobForecast{Job: j, Forecast: forecast.Make(in)}}
	for _, n := range forecast.Compare(before, out.Forecast, watch(in)) {
		out.Notices = append(out.Notices, yardmaster.Notice{Kind: "job." + n.Code, Reason: n.Text})
	}

	if before != nil {
		out.before = before.Notices
	}

	f.mu.Lock()
	defer f.mu.Unlock()

	w.forecast = out.Forecast
	w.unsavedNotices = w.unsavedNotices || len(out.Notices) > 0

	return out, true
}

// input collects what is known of a job. Data that may change is copied.
func (f *Forecaster) input(w *liveJob, stand *yardmaster.JobStatus, now time.Time) *forecast.Input {
	j := w.job
	in := &forecast.Input{Job: &j, Now: now, Progress: w.progress, Speed: stand.Speed, CostSoFar: stand.Cost}
	in.Progress.Marks = slices.Clone(w.progress.Marks)
	in.Progress.Reports = slices.Clone(w.progress.Reports)
	for i := range w.runs {
		if r := &w.runs[i]; r.started {
			in.Runs = append(in.Runs, r.Stretch)
			in.Hourly, in.Rent = r.hourly, f.rent(r.lease, now)
		}
	}

	if p := stand.Progress; p != nil && in.Progress.Total == 0 && p.Work > 0 &&
		!p.At.IsZero() { // from the progress file or the job file
		in.Progress.Done = p.Done
		in.Progress.Total = p.Work
		in.Progress.At = p.At
		in.Progress.Source = "its progress file"
	}

	in.Series = w.curves()
	f.surroundings(in, stand)

	return in
}

// surroundings adds the state of the yard to the input of a forecast. The caller holds the lock.
func (f *Forecaster) surroundings(in *forecast.Input, stand *yardmaster.JobStatus) {
	need, m := demandOf(in.Job, stand), f.market(in.Now)
	in.Places = m.places(&need)
	waits := in.Job.State.Waiting()
	if waits || len(in.Runs) == 0 {
		in.Hourly, in.Rent.Offer, _ = m.hourly(&need)
		in.Rent.Kept = 0
	}

	if !waits {
		return
	}

	in.StartUnknown = stand.Outside
	if at := stand.Start; at.After(in.Now) { // otherwise the wait follows from the history of similar jobs
		s := at.Sub(in.Now).Seconds()
		in.Wait = job.Band{Low: s / 2, Mid: s, High: 2 * s} // others may come before it, and those before it may end sooner
	}
}

// rent returns how the nodes of a run are billed that were provisioned for its job.
func (f *Forecaster) rent(name id.Lease, now time.Time) forecast.Rent {
	l, live := f.leases[name]
	if !live {
		return forecast.Rent{}
	}

	return forecast.Rent{Offer: &l.Offer, Kept: l.PaidTime(now)}
}

// demandOf returns what a job asks for: as the yardmaster sees it, with the places that its data
// and its quotas allow.
func demandOf(j *job.Job, stand *yardmaster.JobStatus) demand {
	if stand.Need.Nodes > 0 {
		return demand{Need: stand.Need, ownNodes: stand.NoProvisioning}
	}

	return demand{Need: fleet.NeedOf(j.Spec, j.Floor, j.Avoid)}
}

// watch returns the data on which notices are based.
func watch(in *forecast.Input) forecast.Watch {
	w := forecast.Watch{
		Now:       in.Now,
		Submitted: in.Job.Submitted,
		Expect:    time.Duration(in.Job.Spec.Expect),
		Ran:       in.Ran(),
		Series:    in.Series,
	}

	if d := in.Job.Spec.Deadline; d != nil {
		w.Deadline = *d
	}

	if in.Speed != nil {
		w.Save = time.Duration(in.Speed.Save)
	}

	if n := len(in.Runs); n > 0 && in.Runs[n-1].To.IsZero() {
		r := &in.Runs[n-1]
		w.Running = r.From.Add(job.Seconds(r.Setup))
	}

	return w
}

// curves returns a copy of the metrics of a job, by name.
func (w *liveJob) curves() []metric.Series {
	var list []metric.Series
	for _, name := range sortedKeys(w.series) {
		s := *w.series[name]
		s.Points = slices.Clone(s.Points) // points may be added while the copy is read
		list = append(list, s)
	}

	return list
}
