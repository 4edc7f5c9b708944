package forecaster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"trainyard/internal/forecast"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/metric"
	"trainyard/internal/money"
	"trainyard/internal/store"
)

// liveJob is the state of one live job. It is guarded by the forecaster's lock.
type liveJob struct {
	job            job.Job
	runs           []stretch // by epoch
	loaded         bool      // its stored data has been read
	series         map[string]*metric.Series
	dirty          map[string]bool // metrics that have to be written
	flushedAt      time.Time
	progress       forecast.Progress
	progressEpoch  int            // epoch of the run that reported the progress
	notes          map[note]bool  // already sent to the feed
	noteCounts     map[string]int // number of notes sent, by kind
	unsavedNotices bool           // notices were sent since the forecast was stored
	forecast       *job.Forecast
	forecastAt     time.Time // when the forecast was last made
	changed        bool      // there is new data since forecastAt
	endedAt        time.Time // when the forecaster learned of its end
	counted        bool      // its duration counts for others like it
}

// stretch is a run as forecasts use it.
type stretch struct {
	forecast.Stretch
	seq     uint64
	started bool // all ranks of its program have started
	hourly  money.PerHour
	lease   id.Lease // of the first of its nodes that was provisioned for the job
}

// note identifies an event that a program reported: kind and time.
type note struct {
	kind string
	at   float64
}

const maxMarks = 256 // pairs of progress and time that are kept

func newLiveJob() *liveJob {
	return &liveJob{
		series:     map[string]*metric.Series{},
		dirty:      map[string]bool{},
		notes:      map[note]bool{},
		noteCounts: map[string]int{},
	}
}

// setRun updates a run of the job.
func (w *liveJob) setRun(r job.Run, on allocation) {
	at, found := slices.BinarySearchFunc(w.runs, r.Epoch, func(s stretch, epoch int) int { return s.Epoch - epoch })
	if !found {
		w.runs = slices.Insert(w.runs, at, stretch{})
	}

	s := &w.runs[at]
	if found && r.Seq < s.seq {
		return
	}

	if on.GPU == "" && s.GPU != "" { // its node is gone: keep what was recorded before
		on = allocation{GPU: s.GPU, GPUs: s.GPUs, Nodes: s.Nodes, TFLOPS: s.TFLOPS, hourly: s.hourly, lease: s.lease}
	}

	s.seq, s.hourly, s.lease = r.Seq, on.hourly, on.lease
	s.Stretch = forecast.Stretch{
		Epoch:  r.Epoch,
		GPU:    on.GPU,
		GPUs:   on.GPUs,
		Nodes:  on.Nodes,
		TFLOPS: on.TFLOPS,
		From:   r.Ordered,
		To:     r.Ended,
	}

	s.started = !r.Started.IsZero()
	if s.started {
		s.Setup = r.Started.Sub(r.Ordered).Seconds()
	}

	w.changed = true
}

// allocation is the hardware of a run.
type allocation struct {
	GPU         string
	GPUs, Nodes int
	TFLOPS      float64 // per GPU, of the slowest
	hourly      money.PerHour
	lease       id.Lease
}

// allocation returns the hardware of a run, as far as its nodes are known.
func (f *Forecaster) allocation(r *job.Run) allocation {
	a := allocation{Nodes: len(r.Ranks)}

	for k := range r.Ranks {
		rank := &r.Ranks[k]
		a.GPUs += len(rank.GPUs)
		a.hourly += rank.Hourly // as the ledger and quotas count it

		n, ok := f.nodes[rank.Node]
		if !ok {
			continue
		}

		if l, provisioned := f.leases[n.Lease]; provisioned && l.Job == r.Job && a.lease == "" {
			a.lease = l.ID
		}

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

// loadJob reads the stored curves and ended runs of a job.
func (f *Forecaster) loadJob(ctx context.Context, j id.Job) error {
	docs, err := f.Store.Documents(
		ctx,
		store.DocumentFilter{Kind: store.CurveDocument, Under: string(j), Limit: metric.MaxSeries},
	)
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
		return nil // the job was dropped meanwhile
	}

	for i := range docs {
		s := &metric.Series{}
		if err := json.Unmarshal([]byte(docs[i].Text), s); err != nil {
			bad = errors.Join(bad, fmt.Errorf("read curve %s: %w", docs[i].ID, err))
			continue
		}

		if received, already := w.series[s.Name]; already { // points arrived before this was read
			for _, p := range received.Points {
				s.Add(received.Epoch, p)
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
		w.setRun(runs[i], f.allocation(&runs[i]))
	}

	w.loaded = true

	if bad != nil { // a retry would fail in the same way
		f.Log.ErrorContext(ctx, "some stored data of a job cannot be read and is ignored", "job", j, "error", bad)
	}

	return nil
}
