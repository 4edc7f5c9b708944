package forecaster

import (
	"context"
	"slices"
	"time"

	"trainyard/internal/forecast"
	"trainyard/internal/forecast/calibrate"
	"trainyard/internal/forecast/pipeline"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/yardmaster"
)

// forecastQueue makes forecasts for recently submitted jobs, so that policies know how long they
// may take. One forecast is enough: what is known of a job does not change while it waits.
func (f *Forecaster) forecastQueue(ctx context.Context) error {
	f.mu.Lock()
	n := min(len(f.queue), queuePerPass)
	jobs := slices.Clone(f.queue[:n])

	f.queue = f.queue[n:]
	if len(f.queue) == 0 {
		f.queue = nil // releases the memory of the list
	}

	for i := range jobs {
		delete(f.queued, jobs[i].ID)
	}

	f.mu.Unlock()

	if n == 0 {
		return nil
	}

	err := f.forecastQueued(ctx, jobs)
	if err != nil { // they are tried first in the next pass
		f.mu.Lock()
		defer f.mu.Unlock()

		f.queue = append(jobs, f.queue...)
		for i := range jobs {
			f.queued[jobs[i].ID] = true
		}
	}

	return err
}

// forecastQueued sends forecasts of queued jobs to the yardmaster.
func (f *Forecaster) forecastQueued(ctx context.Context, jobs []job.Job) error {
	made, err := f.Waiting(jobs)
	if err != nil {
		return err
	}

	var updates []yardmaster.JobForecast
	for i := range jobs {
		if made[i] != nil && made[i].Basis != job.BasisNone {
			updates = append(updates, yardmaster.JobForecast{Job: jobs[i].ID, Forecast: made[i]})
		}
	}

	return f.send(ctx, updates)
}

// Waiting returns the forecasts of jobs: the latest one for jobs that have had a run, and one from
// history for the others. It is nil for a job that has ended.
func (f *Forecaster) Waiting(jobs []job.Job) ([]*job.Forecast, error) {
	out := make([]*job.Forecast, len(jobs))
	ask, asked := make([]int, 0, len(jobs)), make([]*job.Job, 0, len(jobs))
	f.mu.Lock()

	for i := range jobs {
		w, ran := f.jobs[jobs[i].ID]
		switch {
		case jobs[i].State.Final():
		case ran:
			out[i] = w.forecast
		case jobs[i].Epoch == 0:
			ask, asked = append(ask, i), append(asked, &jobs[i])
		}
	}

	f.mu.Unlock()

	if len(ask) == 0 {
		return out, nil
	}

	stands, err := f.Statuses(asked)
	if err != nil {
		return out, err
	}

	library, record := f.trainer.current()
	for k, i := range ask {
		out[i] = f.fromHistory(&jobs[i], &stands[k], library, record)
	}

	return out, nil
}

// madeForecasts are the last forecasts of queued jobs that have had no run. All of them are from the same sources:
// others would hold on to the whole history that they were made from, long after it was replaced.
type madeForecasts struct {
	from  sources
	byJob map[id.Job]madeForecast
}

// sources is what all forecasts of a moment are made from.
type sources struct {
	library *forecast.Library
	record  *calibrate.Record
	market  *market
}

// madeForecast is a forecast of a job, and what else it was made of beside the time.
type madeForecast struct {
	basis    basis
	forecast *job.Forecast
}

type basis struct {
	seq     uint64 // of the job
	demand  demand
	start   time.Time
	outside bool
}

const (
	sameFor = time.Second // how long a forecast counts while nothing changes but the time
	maxMade = 2000        // forecasts that are kept
)

// find returns the last forecast of a job if it was made of the same. Forecasts from other sources are dropped.
func (m *madeForecasts) find(j id.Job, from sources, of basis) (*job.Forecast, bool) {
	if m.from != from {
		*m = madeForecasts{from: from, byJob: map[id.Job]madeForecast{}}
	}

	last, known := m.byJob[j]

	return last.forecast, known && last.basis == of
}

// keep keeps a forecast, unless there are newer sources since it was begun.
func (m *madeForecasts) keep(j id.Job, from sources, made madeForecast) {
	if m.from != from {
		return
	}

	if len(m.byJob) >= maxMade {
		clear(m.byJob)
	}

	m.byJob[j] = made
}

// fromHistory returns the forecast of a job that has had no run: the last one, if nothing has changed since. Lists ask
// for the same ones again and again.
func (f *Forecaster) fromHistory(
	j *job.Job, stand *yardmaster.JobStatus, library *forecast.Library, record *calibrate.Record,
) *job.Forecast {
	now := f.Clock.Now()

	f.mu.Lock()
	from := sources{library, record, f.market(now)}
	of := basis{seq: j.Seq, demand: demandOf(j, stand), start: stand.Start, outside: stand.Outside}

	last, same := f.made.find(j.ID, from, of)
	if same && now.Sub(last.At).Abs() < sameFor {
		f.mu.Unlock()
		return last
	}

	in := &forecast.Input{Job: j, Now: now, Speed: j.Spec.Speed, Library: library, Record: record}
	f.surroundings(in, stand)
	f.mu.Unlock()

	made := forecast.Make(in)
	if j.ID == "" { // it has not been submitted
		return made
	}

	f.mu.Lock()
	defer f.mu.Unlock()

	f.made.keep(j.ID, from, madeForecast{of, made})

	return made
}

// maxPipeline is how many jobs of a file are simulated for the forecast of one of them. With more, as with a large
// array, it is forecast as if it could start now.
const maxPipeline = 1000

// Forecast returns the forecast of one job, including those it depends on.
func (f *Forecaster) Forecast(ctx context.Context, j *job.Job) (*job.Forecast, error) {
	jobs := []job.Job{*j}

	_, elements, _ := j.Element()
	if needs := len(j.Needs); needs > 0 && max(needs, elements) <= maxPipeline && j.Epoch == 0 && j.Pipeline != "" {
		all, err := f.Store.Pipeline(ctx, j.Pipeline)
		if err != nil {
			return nil, err
		}

		if len(all) <= maxPipeline {
			jobs = all
		}
	}

	made, err := f.Waiting(jobs)
	if err != nil {
		return nil, err
	}

	at := slices.IndexFunc(jobs, func(o job.Job) bool { return o.ID == j.ID })
	if len(jobs) == 1 || at < 0 || made[at] == nil {
		return made[max(at, 0)], nil
	}

	nodes := make([]pipeline.Node, len(jobs))
	for i := range jobs {
		nodes[i] = pipeline.Node{Job: jobs[i].ID, Forecast: made[i], Needs: jobs[i].Needs}
	}

	number, _ := nodes[0].Job.Number() // a fixed seed, so that repeated requests get the same answer
	spans, err := pipeline.Simulate(nodes, number)
	if err != nil {
		return nil, err
	}

	out, span := *made[at], spans[at]
	out.Path = span.Path
	out.Wait = job.Band{
		Low:  max(span.End.Low-out.Remaining.Low, 0),
		Mid:  max(span.End.Mid-out.Remaining.Mid, 0),
		High: max(span.End.High-out.Remaining.High, 0),
	}

	return &out, nil
}
