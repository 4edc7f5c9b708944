package forecaster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"trainyard/internal/forecast"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/metric"
	"trainyard/internal/store"
)

// watched is all that is known of one live job. It belongs to the forecaster's lock.
type watched struct {
	job      job.Job
	runs     []stretch // by epoch
	older    bool      // runs that ended before the server started have been read
	series   map[string]*metric.Series
	dirty    map[string]bool // metrics to be written
	flushed  time.Time
	told     forecast.Told
	notes    map[note]bool // that were told already
	forecast *job.Forecast
	asked    time.Time // when the forecast was last made
	news     bool      // since then
	over     time.Time // when it was seen to have ended
}

// stretch is a run as forecasts see it.
type stretch struct {
	forecast.Stretch
	seq     uint64
	started bool    // its program, all of it
	hourly  float64 // what it costs
}

// note names something that a program said of itself: what, and when.
type note struct {
	kind string
	at   float64
}

const maxMarks = 256 // of how far a program was, and when

func newWatched() *watched {
	return &watched{series: map[string]*metric.Series{}, dirty: map[string]bool{}, notes: map[note]bool{}}
}

// takeRun takes in what a run has become.
func (w *watched) takeRun(r job.Run, on allocation) {
	at, found := slices.BinarySearchFunc(w.runs, r.Epoch, func(s stretch, epoch int) int { return s.Epoch - epoch })
	if !found {
		w.runs = slices.Insert(w.runs, at, stretch{})
	}
	s := &w.runs[at]
	if found && r.Seq < s.seq {
		return
	}
	if on.GPU == "" && s.GPU != "" { // its node is gone: what was seen of it stands
		on = allocation{GPU: s.GPU, GPUs: s.GPUs, Nodes: s.Nodes, TFLOPS: s.TFLOPS, hourly: s.hourly}
	}
	s.seq, s.hourly = r.Seq, on.hourly
	s.Stretch = forecast.Stretch{Epoch: r.Epoch, GPU: on.GPU, GPUs: on.GPUs, Nodes: on.Nodes, TFLOPS: on.TFLOPS, From: r.Ordered, To: r.Ended}
	if s.started = !r.Started.IsZero(); s.started {
		s.Setup = r.Started.Sub(r.Ordered).Seconds()
	}
	w.news = true
}

// allocation is what a run runs on.
type allocation struct {
	GPU         string
	GPUs, Nodes int
	TFLOPS      float64 // of one GPU, the slowest
	hourly      float64
}

// allocation says what a run runs on, as far as its nodes are known.
func (f *Forecaster) allocation(r *job.Run) allocation {
	a := allocation{Nodes: len(r.Ranks)}
	for k := range r.Ranks {
		rank := &r.Ranks[k]
		a.GPUs += len(rank.GPUs)
		n, ok := f.nodes[rank.Node]
		if !ok {
			continue
		}
		a.hourly += f.hourly(&n, len(rank.GPUs))
		for _, index := range rank.GPUs {
			g := n.Inventory.GPU(index)
			if g == nil {
				continue
			}
			if speed, _ := g.TFLOPS(); a.GPU == "" || speed < a.TFLOPS {
				a.GPU, a.TFLOPS = g.Model, speed
			}
		}
	}
	return a
}

// recallJob reads the curves and the ended runs of a job.
func (f *Forecaster) recallJob(ctx context.Context, j id.Job) error {
	docs, err := f.Store.Documents(ctx, store.DocumentFilter{Kind: store.CurveDocument, Under: string(j), Limit: metric.MaxSeries})
	if err != nil {
		return err
	}
	last, err := f.Store.Documents(ctx, store.DocumentFilter{Kind: store.ForecastDocument, ID: string(j), Limit: 1})
	if err != nil {
		return err
	}
	runs, err := f.Store.Runs(ctx, j)
	if err != nil {
		return err
	}
	var bad error
	f.mu.Lock()
	defer f.mu.Unlock()
	w, ok := f.jobs[j]
	if !ok {
		return nil
	}
	for i := range docs {
		s := &metric.Series{}
		if err := json.Unmarshal([]byte(docs[i].Text), s); err != nil {
			bad = errors.Join(bad, fmt.Errorf("read curve %s: %w", docs[i].ID, err))
			continue
		}
		if heard, already := w.series[s.Name]; already { // points came first
			for _, p := range heard.Points {
				s.Add(heard.Epoch, p)
			}
		}
		w.series[s.Name] = s
	}
	if len(last) == 1 && w.forecast == nil {
		var was job.Forecast
		if err := json.Unmarshal([]byte(last[0].Text), &was); err != nil {
			bad = errors.Join(bad, fmt.Errorf("read forecast of %s: %w", j, err))
		} else {
			w.forecast = &was
		}
	}
	for i := range runs {
		w.takeRun(runs[i], f.allocation(&runs[i]))
	}
	w.older = true
	return bad
}

// flush writes the curves that have changed, at most once in a while for each job, and
// all of them at last. Those of a job that has ended are written once more when its last
// points have had time to come, and then it is let go.
func (f *Forecaster) flush(ctx context.Context, all bool) {
	now := f.Clock.Now()
	var docs []store.Document
	f.mu.Lock()
	for j, w := range f.jobs {
		if len(w.dirty) == 0 || !all && now.Sub(w.flushed) < flushEvery && (w.over.IsZero() || now.Sub(w.over) < settleAfter) {
			continue
		}
		for name := range w.dirty {
			text, err := json.Marshal(w.series[name])
			if err != nil {
				f.Log.ErrorContext(ctx, "writing a curve failed", "job", j, "metric", name, "error", err)
				continue
			}
			docs = append(docs, store.Document{Kind: store.CurveDocument, ID: string(j) + "/" + name, At: now, Text: string(text)})
		}
		if w.forecast != nil {
			text, err := json.Marshal(w.forecast)
			if err != nil {
				f.Log.ErrorContext(ctx, "writing a forecast failed", "job", j, "error", err)
			} else {
				docs = append(docs, store.Document{Kind: store.ForecastDocument, ID: string(j), At: now, Text: string(text)})
			}
		}
		clear(w.dirty)
		w.flushed = now
		if len(docs) >= flushMost && !all {
			break
		}
	}
	f.mu.Unlock()
	if len(docs) == 0 {
		return
	}
	slices.SortFunc(docs, func(a, b store.Document) int { return strings.Compare(a.ID, b.ID) })
	if err := f.Store.Keep(ctx, docs...); err != nil {
		f.Log.ErrorContext(ctx, "keeping curves failed, trying again", "error", err)
		f.redo(docs)
	}
}

// flushMost bounds the documents of one transaction: the loop's commits wait for it.
const flushMost = 100

// redo marks what could not be written.
func (f *Forecaster) redo(docs []store.Document) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range docs {
		if j, name, ok := strings.Cut(docs[i].ID, "/"); ok && docs[i].Kind == store.CurveDocument {
			if w := f.jobs[id.Job(j)]; w != nil {
				w.dirty[name] = true
			}
		}
	}
}
