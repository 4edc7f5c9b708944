package forecaster

import (
	"context"
	"slices"
	"time"

	"trainyard/internal/forecast"
	"trainyard/internal/forecast/history"
	"trainyard/internal/job"
	"trainyard/internal/yardmaster"
)

// A yard may end many jobs per second, and the forecasts of each job that becomes history are replayed. The number
// of jobs added at a time is therefore limited, and so is the number that waits: the oldest are dropped.
const (
	learnEvery    = 5 * time.Second
	maxLearn      = 50
	maxLearnQueue = 200
	maxEnded      = 50_000
)

// finish adds successful jobs to the history once their last points have arrived, and drops all
// jobs that have ended.
func (f *Forecaster) finish(ctx context.Context) {
	now := f.Clock.Now()
	f.countEnded()

	well := f.dropEnded(ctx, now)
	if len(well) == 0 || f.fenced || f.resting(now) || !passed(f.lastLearned, now, learnEvery) {
		return
	}

	f.lastLearned = now
	well = well[:min(len(well), maxLearn)]

	var past []history.Past
	for _, w := range well {
		f.mu.Lock()
		in := f.input(w, &yardmaster.JobStatus{Cost: w.job.Cost, Speed: w.job.Spec.Speed}, w.job.Ended)
		f.mu.Unlock()

		if p, ok := forecast.Finished(in); ok {
			past = append(past, p)
		}
	}

	if len(past) > 0 {
		if err := f.trainer.learn(ctx, past); err != nil {
			f.failed(ctx, "jobs that have ended", err)
			return
		}
	}

	f.mu.Lock()
	defer f.mu.Unlock()

	for _, w := range well {
		delete(f.jobs, w.job.ID)
	}
}

// countEnded lets the durations of jobs that have just succeeded count for those like them, before they become history.
func (f *Forecaster) countEnded() {
	var past []history.Past
	f.mu.Lock()

	changed := false
	for _, w := range f.jobs {
		if w.endedAt.IsZero() || w.job.State != job.Succeeded || !w.loaded || len(past) == maxLearnQueue {
			continue
		}

		in := &forecast.Input{Job: &w.job, Now: w.job.Ended}
		for i := range w.runs {
			if w.runs[i].started {
				in.Runs = append(in.Runs, w.runs[i].Stretch)
			}
		}

		if p, ok := forecast.Finished(in); ok {
			past = append(past, p)
			changed = changed || !w.counted
			w.counted = true
		}
	}

	f.mu.Unlock()

	if changed {
		f.trainer.setEnded(past)
	}
}

// dropEnded drops jobs that have ended and are written, and returns those that can become history,
// the oldest first.
func (f *Forecaster) dropEnded(ctx context.Context, now time.Time) []*liveJob {
	var well, unwritten []*liveJob
	f.mu.Lock()
	defer f.mu.Unlock()

	for j, w := range f.jobs {
		switch {
		case w.endedAt.IsZero() || !passed(w.endedAt, now, settleAfter):
		case len(w.dirty) > 0 || !w.loaded:
			unwritten = append(unwritten, w)
		case w.job.State == job.Succeeded:
			well = append(well, w)
		default:
			delete(f.jobs, j)
		}
	}

	byEnd := func(a, b *liveJob) int {
		if c := a.job.Ended.Compare(b.job.Ended); c != 0 {
			return c
		}

		return compareJobs(a.job.ID, b.job.ID)
	}

	slices.SortFunc(well, byEnd)
	for len(well) > maxLearnQueue {
		delete(f.jobs, well[0].job.ID)
		well = well[1:]
	}

	if over := len(unwritten) - maxEnded; over > 0 {
		slices.SortFunc(unwritten, byEnd)
		for _, w := range unwritten[:over] {
			delete(f.jobs, w.job.ID)
		}

		f.Log.ErrorContext(ctx, "jobs end faster than they can be stored; the last points of some are lost", "jobs", over)
	}

	return well
}
