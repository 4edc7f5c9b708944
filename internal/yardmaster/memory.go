package yardmaster

import (
	"trainyard/internal/job"
	"trainyard/internal/yardmaster/batch"
)

// What the yard learns is stored with the change that taught it, so that it expects the same after a restart: the
// durations of past runs, and what was observed of each job that has not ended.

// observedRecord marks a job of which more was learned than is stored.
type observedRecord struct {
	batch.Mark
	job *jobRecord
}

// changedObserved records that something was learned of a job.
func (y *Yard) changedObserved(r *jobRecord) {
	if r.observed == nil {
		r.observed = &observedRecord{job: r}
	}

	y.observed.Add(r.observed)
}

// forgetObserved drops from the store what was learned of a job that has ended.
func (y *Yard) forgetObserved(r *jobRecord) {
	if r.observed != nil {
		y.observedForgotten = append(y.observedForgotten, r.ID)
	}
}

// takeMemory adds to a batch what was learned and what was forgotten.
func (y *Yard) takeMemory(b *Batch) {
	b.Observed = batch.Take(&y.observed, b.Observed, func(to *job.Observed, o *observedRecord) {
		*to = o.job.outlook.Observed(&o.job.Job)
	})

	b.ObservedForgotten = append(b.ObservedForgotten[:0], y.observedForgotten...)
	b.Past = append(b.Past[:0], y.pastRuns...)
	b.PastForgotten = append(b.PastForgotten[:0], y.pastForgotten...)

	y.takeShortages(b)
	y.takeBeside(b)

	y.observedForgotten, y.pastRuns, y.pastForgotten = y.observedForgotten[:0], y.pastRuns[:0], y.pastForgotten[:0]
}

// loadObserved restores what was learned of jobs.
func (y *Yard) loadObserved(list []job.Observed) {
	for i := range list {
		r, ok := y.jobs[list[i].Job]
		if !ok || r.State.Final() {
			y.observedForgotten = append(y.observedForgotten, list[i].Job)
			continue
		}

		r.observed = &observedRecord{job: r}
		r.outlook.Restore(&list[i])
	}
}
