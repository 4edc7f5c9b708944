package forecaster

import (
	"context"
	"fmt"
	"math"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/metric"
	"trainyard/internal/yardmaster"
)

// Take takes in what the programs of a node have measured. The caller has seen to it that
// the runs are the node's. What is said of jobs that have been let go is not kept.
func (f *Forecaster) Take(ctx context.Context, r *api.MetricsReport) error {
	var said []yardmaster.Foreseen
	f.mu.Lock()
	for i := range r.Runs {
		j, epoch, ok := r.Runs[i].Run.Split()
		if w := f.jobs[j]; ok && w != nil {
			if notices := w.take(epoch, &r.Runs[i], f.Clock.Now()); len(notices) > 0 {
				said = append(said, yardmaster.Foreseen{Job: j, Notices: notices})
			}
		}
	}
	f.mu.Unlock()
	return f.tell(ctx, said)
}

// take adds what a run has measured, and returns what the feed is to be told.
func (w *watched) take(epoch int, r *api.RunMetrics, now time.Time) (said []yardmaster.Notice) {
	for i := range r.Series {
		in := &r.Series[i]
		s, known := w.series[in.Name]
		if !known {
			if len(w.series) >= metric.MaxSeries {
				continue // the agent bounds them too; what is beyond is not kept
			}
			s = &metric.Series{Name: in.Name}
			w.series[in.Name] = s
		}
		s.Heed(epoch, in.Source)
		for _, p := range in.Points {
			if s.Add(epoch, p.Point()) != metric.Duplicate {
				w.dirty[in.Name], w.news = true, true
			}
		}
	}
	w.takeProgress(r, now)
	for _, n := range r.Notes {
		key := note{n.Kind, n.At}
		if w.notes[key] || len(w.notes) >= maxNotes {
			continue
		}
		w.notes[key] = true
		if s, ok := sentence(&n); ok {
			said = append(said, s)
		}
	}
	return said
}

const maxNotes = 1000 // of a job that are told

// takeProgress remembers how far the program says it is.
func (w *watched) takeProgress(r *api.RunMetrics, now time.Time) {
	if r.Total != nil && usable(*r.Total) && *r.Total != w.told.Total { // 0 takes back what it said
		w.told.Total, w.news = *r.Total, true
	}
	if r.Done == nil || !usable(*r.Done) || *r.Done == w.told.Done && !w.told.At.IsZero() {
		return
	}
	if *r.Done < w.told.Done { // it has begun again
		w.told.Marks = nil
	}
	w.told.Done, w.told.At, w.news = *r.Done, now, true
	w.told.Marks = append(w.told.Marks, metric.Point{Step: *r.Done, At: seconds(now)})
	if len(w.told.Marks) > maxMarks {
		w.told.Marks = metric.Thin(w.told.Marks, maxMarks/2)
	}
}

func usable(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) && f >= 0 }

func seconds(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }

// sentence tells the feed what a program said of itself.
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
		return yardmaster.Notice{Kind: "job.checkpoint_saved", Reason: "saved itself" + at + text}, true
	case "checkpoint_restored":
		return yardmaster.Notice{Kind: "job.checkpoint_restored", Reason: "went on from what it had saved" + at + text}, true
	case "target_reached":
		return yardmaster.Notice{Kind: "job.target_reached", Reason: "its program says that the target is reached" + at + text}, true
	}
	return yardmaster.Notice{}, false
}
