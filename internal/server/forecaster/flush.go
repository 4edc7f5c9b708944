package forecaster

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/metric"
	"trainyard/internal/store"
)

// The loop's commits wait for the writing of curves, so transactions are small and their number per
// pass is limited. With very many jobs each is written less often; after a crash the agents send
// the lost points again.
const (
	maxFlush    = 100                    // documents per transaction
	flushBytes  = 1 << 20                // bytes per transaction, unless a single job has more
	flushBudget = 200 * time.Millisecond // time per pass
	maxPause    = 30 * time.Second       // between attempts while the store fails
)

// draft is a copy of what has to be written for a job.
type draft struct {
	w        *liveJob
	id       id.Job
	series   []metric.Series
	forecast *job.Forecast
}

// flush writes the curves that have changed: at most once per flushEvery for each job, or all of
// them if all is set. The curves of an ended job are written once more after settleAfter, when its
// last points have arrived. What was sent to the feed is written at once, so that it is not sent
// again after a restart.
func (f *Forecaster) flush(ctx context.Context, all bool) {
	began := f.Clock.Now()
	if f.fenced || !all && f.resting(began) {
		return
	}

	waiting := f.unwritten(began, all)
	for len(waiting) > 0 && (all || !passed(began, f.Clock.Now(), flushBudget)) {
		drafts, docs, n := f.nextDocuments(ctx, waiting)
		waiting = waiting[n:]

		if len(docs) == 0 {
			continue
		}

		if err := f.Store.Keep(ctx, docs...); err != nil {
			f.redo(drafts)
			f.failed(ctx, "curves", err)
			return
		}

		f.pause = 0
	}
}

// resting reports whether the store failed recently, so that nothing should be written yet.
func (f *Forecaster) resting(now time.Time) bool {
	left := f.resume.Sub(now)
	return left > 0 && left <= maxPause
}

// failed logs that the store did not save something, and doubles the pause before the next attempt.
// If another server has taken over the store, nothing is written any more; the loop notices that by
// itself and stops this server.
func (f *Forecaster) failed(ctx context.Context, what string, err error) {
	f.pause = min(max(2*f.pause, passEvery), maxPause)
	f.resume = f.Clock.Now().Add(f.pause)

	if e := (*fault.Error)(nil); errors.As(err, &e) && e.Code == store.ErrNotLeader.Code {
		f.fenced = true
		f.Log.ErrorContext(ctx, "another server has taken over the store; no more forecasts are made", "error", err)
		return
	}

	if ctx.Err() == nil {
		f.Log.ErrorContext(ctx, "the store failed, retrying", "keeping", what, "error", err, "wait", f.pause)
	}
}

// unwritten lists the jobs with something to write: ended jobs first, then those that were written
// longest ago.
func (f *Forecaster) unwritten(now time.Time, all bool) []*liveJob {
	var list []*liveJob
	f.mu.Lock()
	defer f.mu.Unlock()

	for _, w := range f.jobs {
		ended := !w.endedAt.IsZero() && passed(w.endedAt, now, settleAfter)
		if w.loaded && (w.unsavedNotices || len(w.dirty) > 0 && (all || ended || passed(w.flushedAt, now, flushEvery))) {
			list = append(list, w)
		}
	}

	slices.SortFunc(list, func(a, b *liveJob) int {
		if a.endedAt.IsZero() != b.endedAt.IsZero() {
			return less(b.endedAt.IsZero())
		}
		if c := a.flushedAt.Compare(b.flushedAt); c != 0 {
			return c
		}

		return compareJobs(a.job.ID, b.job.ID)
	})

	return list
}

// nextDocuments encodes the documents of the next transaction, and returns for how many jobs they
// are. Encoding happens without the lock.
func (f *Forecaster) nextDocuments(
	ctx context.Context,
	waiting []*liveJob,
) (drafts []draft, docs []store.Document, n int) {
	size := 0
	for _, w := range waiting {
		if len(docs) >= maxFlush || size >= flushBytes {
			break
		}

		n++
		now := f.Clock.Now()
		f.mu.Lock()
		d := w.draft(now)
		f.mu.Unlock()
		drafts = append(drafts, d)

		keep := func(kind store.DocumentKind, name string, value any) {
			text, err := json.Marshal(value)
			if err != nil {
				f.Log.ErrorContext(ctx, "a document cannot be marshalled and is skipped", "kind", kind, "id", name, "error", err)
				return
			}

			size += len(text)
			docs = append(docs, store.Document{Kind: kind, ID: name, At: now, Text: string(text)})
		}

		for i := range d.series {
			keep(store.CurveDocument, string(d.id)+"/"+d.series[i].Name, &d.series[i])
		}

		if d.forecast != nil {
			keep(store.ForecastDocument, string(d.id), d.forecast)
		}
	}

	return drafts, docs, n
}

// draft copies what has to be written for a job, and marks it as written.
func (w *liveJob) draft(now time.Time) draft {
	d := draft{w: w, id: w.job.ID, forecast: w.forecast}
	for _, name := range sortedKeys(w.dirty) {
		s := *w.series[name]
		s.Points = slices.Clone(s.Points)
		d.series = append(d.series, s)
	}

	clear(w.dirty)
	w.flushedAt, w.unsavedNotices = now, false

	return d
}

// redo marks drafts that could not be written as changed again.
func (f *Forecaster) redo(drafts []draft) {
	f.mu.Lock()
	defer f.mu.Unlock()

	for i := range drafts {
		d := &drafts[i]
		for k := range d.series {
			d.w.dirty[d.series[k].Name] = true
		}

		d.w.unsavedNotices = d.w.unsavedNotices || d.forecast != nil
		d.w.flushedAt = time.Time{}
	}
}
