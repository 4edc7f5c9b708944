package forecaster

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/clock"
	"trainyard/internal/fault"
	"trainyard/internal/forecast"
	"trainyard/internal/metric"
	"trainyard/internal/yardmaster"
)

// takeWait bounds how long points wait for a server that has just started.
const takeWait = 10 * time.Second

// Take records the metrics reported by a node. The caller has checked that the runs belong to the
// node. Metrics of jobs that have been dropped are discarded. After an error the agent sends the
// whole report again.
func (f *Forecaster) Take(ctx context.Context, r *api.MetricsReport) error {
	if !f.isReady() && clock.Wait(ctx, takeWait, f.ready) != clock.Woken {
		return fault.New(fault.Unavailable, "starting", "the server has just started and has not loaded its jobs yet").
			WithRemedy("try again")
	}

	var updates []yardmaster.JobForecast
	var from [][]note
	f.mu.Lock()

	for i := range r.Runs {
		j, epoch, ok := r.Runs[i].Run.Split()
		if w := f.jobs[j]; ok && w != nil {
			if notices, notes := w.addReport(epoch, &r.Runs[i], f.Clock.Now()); len(notices) > 0 {
				updates, from = append(updates, yardmaster.JobForecast{Job: j, Notices: notices}), append(from, notes)
			}
		}
	}

	f.mu.Unlock()

	err := f.send(ctx, updates)
	if err != nil {
		f.mu.Lock()
		defer f.mu.Unlock()

		for i := range updates {
			if w := f.jobs[updates[i].Job]; w != nil {
				w.forget(from[i])
			}
		}
	}

	return err
}

// addReport adds the report of a run, and returns the events for the feed and the notes that identify
// them.
func (w *liveJob) addReport(epoch int, r *api.RunMetrics, now time.Time) (updates []yardmaster.Notice, from []note) {
	for i := range r.Series {
		in := &r.Series[i]
		name := strings.ReplaceAll(in.Name, "\x00", "\uFFFD") // the form in which a store without NUL would write it
		s, known := w.series[name]
		if !known {
			if len(w.series) >= metric.MaxSeries {
				continue // the agent limits the number too; further metrics are discarded
			}

			s = &metric.Series{Name: name}
			w.series[name] = s
		}

		s.SetSource(epoch, in.Source)

		for _, p := range in.Points {
			if fate := s.Add(epoch, p.Point()); fate != metric.Duplicate && fate != metric.Stale {
				w.dirty[name], w.changed = true, true
			}
		}

		s.CountNonFinite(epoch, in.NonFinite)
	}

	if epoch >= w.progressEpoch {
		w.progressEpoch = epoch
		w.setProgress(r, now)
	}

	for _, n := range r.Notes {
		key := note{n.Kind, n.At}
		s, ok := sentence(&n)
		if !ok || w.notes[key] || w.noteCounts[n.Kind] >= maxNotes {
			continue
		}

		w.notes[key] = true
		w.noteCounts[n.Kind]++
		updates, from = append(updates, s), append(from, key)
	}

	return updates, from
}

const maxNotes = 1000 // notes per job and kind that are sent

// forget removes notes, so that they are sent again when they are reported again.
func (w *liveJob) forget(notes []note) {
	for _, n := range notes {
		delete(w.notes, n)
		w.noteCounts[n.kind]--
	}
}

// setProgress records the progress that the program reports.
func (w *liveJob) setProgress(r *api.RunMetrics, now time.Time) {
	if r.Remaining != nil && usable(*r.Remaining) {
		w.progress.Reports = append(w.progress.Reports, forecast.Report{At: now, Remaining: *r.Remaining})
		if len(w.progress.Reports) > maxReports { // every other of the older half
			w.progress.Reports = thinReports(w.progress.Reports)
		}

		w.changed = true
	}

	if r.Total != nil && usable(*r.Total) && *r.Total != w.progress.Total { // 0 withdraws the total
		w.progress.Total, w.changed = *r.Total, true
	}

	if r.Done == nil || !usable(*r.Done) || *r.Done == w.progress.Done && !w.progress.At.IsZero() {
		return
	}

	if *r.Done < w.progress.Done { // the program has restarted
		w.progress.Marks = nil
	}

	w.progress.Done = *r.Done
	w.progress.At = now
	w.changed = true
	w.progress.Marks = append(w.progress.Marks, metric.Point{Step: *r.Done, At: seconds(now)})
	if len(w.progress.Marks) > maxMarks {
		w.progress.Marks = metric.Downsample(w.progress.Marks, maxMarks/2)
	}
}

// maxReports is how many of the program's own estimates are kept.
const maxReports = 128

// thinReports drops every other one of the older half.
func thinReports(all []forecast.Report) []forecast.Report {
	half := len(all) / 2
	kept := make([]forecast.Report, 0, maxReports)
	for i := 0; i < half; i += 2 {
		kept = append(kept, all[i])
	}

	return append(kept, all[half:]...)
}

func usable(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) && f >= 0 }

func seconds(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }

// sentence converts an event that a program reported to a notice for the feed.
func sentence(n *api.MetricNote) (yardmaster.Notice, bool) {
	at := ""
	if n.Step > 0 {
		at = fmt.Sprintf(" at step %g", n.Step)
	}

	text := ""
	if n.Text != "" {
		text = ": " + n.Text
	}

	switch n.Kind {
	case "checkpoint_saved":
		return yardmaster.Notice{Kind: "job.checkpoint_saved", Reason: "checkpoint saved" + at + text}, true
	case "checkpoint_restored":
		return yardmaster.Notice{Kind: "job.checkpoint_restored", Reason: "resumed from a checkpoint" + at + text}, true
	case "target_reached":
		return yardmaster.Notice{
			Kind:   "job.target_reached",
			Reason: "target reached according to the program" + at + text,
		}, true
	}

	return yardmaster.Notice{}, false
}
