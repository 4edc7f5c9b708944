package forecaster

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"trainyard/internal/forecast"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/metric"
	"trainyard/internal/yardmaster"
)

// pass makes the forecasts that are due, writes what has changed, and lets jobs go that have ended.
func (f *Forecaster) pass(ctx context.Context) {
	if f.ousted {
		return
	}
	err := errors.Join(f.recall(ctx), f.make(ctx, f.due(f.Clock.Now())), f.greet(ctx))
	f.trouble.tell(ctx, f.Log, f.Clock.Now(), err)
	f.flush(ctx, false)
	f.finish(ctx)
}

// trouble is an error that was logged. While it lasts it is not logged at each pass.
type trouble struct {
	text string
	at   time.Time
}

// tell logs an error that is another than before, or was last logged long ago.
func (t *trouble) tell(ctx context.Context, log *slog.Logger, now time.Time, err error) {
	if err == nil || ctx.Err() != nil {
		t.text = ""
		return
	}
	if text := err.Error(); text != t.text || passed(t.at, now, pauseMost) {
		t.text, t.at = text, now
		log.ErrorContext(ctx, "making forecasts failed, trying again", "error", err)
	}
}

// made is a forecast of a job that nobody was told of yet.
type made struct {
	w      *watched
	before []string // what was said of the job until then
	yardmaster.Foreseen
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
	began := f.Clock.Now()
	var all []made
	var said []yardmaster.Foreseen
	for i, j := range due {
		if m, ok := f.one(j, &stands[i]); ok {
			all, said = append(all, m), append(said, m.Foreseen)
		}
		if ctx.Err() != nil || passed(began, f.Clock.Now(), passFor) {
			break // the others are the first of the next pass
		}
	}
	err := f.tell(ctx, said)
	if err != nil {
		f.unsay(all)
	}
	return err
}

// unsay takes back what could not be told, so that it is told with the next forecast.
func (f *Forecaster) unsay(all []made) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range all {
		m := &all[i]
		if m.w.news = true; len(m.Notices) > 0 && m.w.forecast == m.Forecast {
			again := *m.Forecast // others have the one that was made
			again.Said = m.before
			m.w.forecast = &again
		}
	}
}

func (f *Forecaster) tell(ctx context.Context, said []yardmaster.Foreseen) error {
	if len(said) == 0 {
		return nil
	}
	_, err := f.Do(ctx, yardmaster.Foresee{Jobs: said})
	return err
}

// one makes the forecast of a job. It is made without the lock: points may come meanwhile.
func (f *Forecaster) one(j id.Job, stand *yardmaster.Stand) (made, bool) {
	now := f.Clock.Now()
	f.mu.Lock()
	w, ok := f.jobs[j]
	if !ok || !w.over.IsZero() {
		f.mu.Unlock()
		return made{}, false
	}
	in := f.input(w, stand, now)
	before := w.forecast
	w.asked, w.news = now, false
	f.mu.Unlock()

	in.Library, in.Record = f.school.lessons()
	out := made{w: w, Foreseen: yardmaster.Foreseen{Job: j, Forecast: forecast.Make(in)}}
	for _, n := range forecast.Compare(before, out.Forecast, watch(in)) {
		out.Notices = append(out.Notices, yardmaster.Notice{Kind: "job." + n.Code, Reason: n.Text})
	}
	if before != nil {
		out.before = before.Said
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	w.forecast = out.Forecast
	w.said = w.said || len(out.Notices) > 0
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
	in.Series = w.curves()
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

// curves copies the metrics of a job, by name.
func (w *watched) curves() []metric.Series {
	var list []metric.Series
	for _, name := range sortedKeys(w.series) {
		s := *w.series[name]
		s.Points = slices.Clone(s.Points) // more may come while they are read
		list = append(list, s)
	}
	return list
}
