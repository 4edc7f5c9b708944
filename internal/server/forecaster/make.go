package forecaster

import (
	"context"
	"errors"
	"slices"
	"time"

	"trainyard/internal/forecast"
	"trainyard/internal/forecast/history"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/metric"
	"trainyard/internal/yardmaster"
)

// pass makes the forecasts that are due, writes what has changed, and lets jobs go that have ended.
func (f *Forecaster) pass(ctx context.Context) {
	if err := errors.Join(f.make(ctx, f.due(f.Clock.Now())), f.greet(ctx)); err != nil && ctx.Err() == nil {
		f.Log.ErrorContext(ctx, "making forecasts failed, trying again", "error", err)
	}
	f.flush(ctx, false)
	f.finish(ctx)
}

// make asks about jobs and tells the yardmaster.
func (f *Forecaster) make(ctx context.Context, due []id.Job) error {
	if len(due) == 0 {
		return nil
	}
	var stands []yardmaster.Stand // written by the loop, perhaps after we gave up on it
	if err := f.Query(ctx, func(y *yardmaster.Yard) { stands = y.Stands(due) }); err != nil {
		return err
	}
	said := make([]yardmaster.Foreseen, 0, len(due))
	for i, j := range due {
		if s, ok := f.one(j, &stands[i]); ok {
			said = append(said, s)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return f.tell(ctx, said)
}

func (f *Forecaster) tell(ctx context.Context, said []yardmaster.Foreseen) error {
	if len(said) == 0 {
		return nil
	}
	_, err := f.Do(ctx, yardmaster.Foresee{Jobs: said})
	return err
}

// one makes the forecast of a job. It is made without the lock: points may come meanwhile.
func (f *Forecaster) one(j id.Job, stand *yardmaster.Stand) (yardmaster.Foreseen, bool) {
	now := f.Clock.Now()
	f.mu.Lock()
	w, ok := f.jobs[j]
	if !ok || !w.over.IsZero() {
		f.mu.Unlock()
		return yardmaster.Foreseen{}, false
	}
	in := f.input(w, stand, now)
	before := w.forecast
	w.asked, w.news = now, false
	f.mu.Unlock()

	in.Library, in.Record = f.school.lessons()
	made := forecast.Make(in)
	notices := forecast.Compare(before, made, watch(in))
	f.mu.Lock()
	w.forecast = made
	f.mu.Unlock()
	out := yardmaster.Foreseen{Job: j, Forecast: made}
	for _, n := range notices {
		out.Notices = append(out.Notices, yardmaster.Notice{Kind: "job." + n.Code, Reason: n.Text})
	}
	return out, true
}

// input puts together what is known of a job. What may change is copied.
func (f *Forecaster) input(w *watched, stand *yardmaster.Stand, now time.Time) *forecast.Input {
	j := w.job
	in := &forecast.Input{Job: &j, Now: now, Told: w.told, Speed: stand.Speed, Spent: stand.Cost}
	in.Told.Marks = slices.Clone(w.told.Marks)
	for i := range w.runs {
		if r := &w.runs[i]; r.started {
			in.Runs = append(in.Runs, r.Stretch)
			in.Hourly = r.hourly
		}
	}
	if p := stand.Progress; p != nil && in.Told.Total == 0 && p.Work > 0 && !p.At.IsZero() { // told by file, or in the job file
		in.Told.Done, in.Told.Total, in.Told.At, in.Told.Source = p.Done, p.Work, p.At, "its progress file"
	}
	for _, name := range sortedKeys(w.series) {
		s := *w.series[name]
		s.Points = slices.Clone(s.Points)
		in.Series = append(in.Series, s)
	}
	f.surroundings(in, stand)
	return in
}

// surroundings adds what the yard around a job is like. The caller has the lock.
func (f *Forecaster) surroundings(in *forecast.Input, stand *yardmaster.Stand) {
	need, m := &in.Job.Spec.Resources, f.market(in.Now)
	in.Places = m.places(need)
	waits := in.Job.State.Waiting()
	if waits || in.Hourly == 0 {
		in.Hourly = m.hourly(need)
	}
	if !waits {
		return
	}
	if at := stand.Start; at.After(in.Now) { // else history says how long the like of it wait
		s := at.Sub(in.Now).Seconds()
		in.Wait = job.Band{Low: s / 2, Mid: s, High: 2 * s} // others may come before it, and those before it may end sooner
	}
}

// watch says what notices go by.
func watch(in *forecast.Input) forecast.Watch {
	w := forecast.Watch{Now: in.Now, Submitted: in.Job.Submitted, Expect: time.Duration(in.Job.Spec.Expect), Series: in.Series}
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

// curves lists the metrics of a job by name.
func (w *watched) curves() []metric.Series {
	var list []metric.Series
	for _, name := range sortedKeys(w.series) {
		list = append(list, *w.series[name])
	}
	return list
}

// A yard may end many jobs a second, and each that becomes history is replayed: so many are
// learned from in a pass, and of more than so many that wait the oldest are let go.
const (
	learnMost = 10
	learnLine = 200
)

// finish makes history of jobs that have ended well, when their last points have come, and
// lets all go that have ended.
func (f *Forecaster) finish(ctx context.Context) {
	now := f.Clock.Now()
	var well []*watched
	f.mu.Lock()
	for j, w := range f.jobs {
		switch {
		case w.over.IsZero() || now.Sub(w.over) < settleAfter || len(w.dirty) > 0:
		case w.job.State == job.Succeeded:
			well = append(well, w)
		default:
			delete(f.jobs, j)
		}
	}
	slices.SortFunc(well, func(a, b *watched) int {
		if c := a.job.Ended.Compare(b.job.Ended); c != 0 {
			return c
		}
		return compareJobs(a.job.ID, b.job.ID)
	})
	for len(well) > learnLine {
		delete(f.jobs, well[0].job.ID)
		well = well[1:]
	}
	well = well[:min(len(well), learnMost)]
	var past []history.Past
	for _, w := range well {
		in := f.input(w, &yardmaster.Stand{Cost: w.job.Cost, Speed: w.job.Spec.Speed}, w.job.Ended)
		if p, ok := forecast.Finished(in); ok {
			past = append(past, p)
		}
	}
	f.mu.Unlock()
	if len(past) > 0 {
		if err := f.school.learn(ctx, past); err != nil {
			if ctx.Err() == nil {
				f.Log.ErrorContext(ctx, "remembering jobs that ended failed, trying again", "error", err)
			}
			return
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range well {
		delete(f.jobs, w.job.ID)
	}
}
