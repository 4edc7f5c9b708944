package demo

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/logs/archive"
	"trainyard/internal/place"
	"trainyard/internal/server/forecaster"
	"trainyard/internal/server/utilization"
	"trainyard/internal/sim"
	"trainyard/internal/store"
	"trainyard/internal/yardmaster"
)

// Options is what a month is made with.
type Options struct {
	Store  store.Store // empty; the caller leads
	Logs   *archive.Archive
	Policy place.Policy
	End    time.Time // of the month
	Length time.Duration
	Log    *slog.Logger
}

// Make fills a store with a month of work that ends at a time.
func Make(ctx context.Context, o Options) error {
	began := o.End.Add(-o.Length)
	m := &month{Options: o, ctx: ctx}
	m.use = utilization.New(utilization.Deps{
		Store: o.Store, Clock: m, Log: o.Log,
		Note: func(_ context.Context, n yardmaster.NoteShare) error {
			m.hand.Do(n)

			return nil
		},
	})
	m.seer = forecaster.New(forecaster.Deps{
		Store: o.Store, Clock: m, Log: o.Log, Do: m.do, Query: m.query, Statuses: m.statuses,
	})
	m.watcher = &watcher{ctx: ctx, intake: m, logs: o.Logs, log: o.Log, keeps: m.keeps, runs: map[id.Run]*sight{}}

	work := newWorkload(began, 1)
	work.until = o.Length - 10*time.Hour
	work.last = recent(o.End, o.Length)

	cfg := base()
	cfg.Policy, cfg.Jobs, cfg.Until = o.Policy, work, o.Length
	cfg.Cloud.Reclaims = reclaims(o.Length)
	cfg.Begin = &sim.Beginning{Now: began, State: yardmaster.State{Seed: "demo"}}
	cfg.Begun, cfg.OnBatch = m.begun, m.take
	cfg.Watch, cfg.WatchEvery = m.watcher.see, watchMonth
	cfg.Stop = func() bool { return ctx.Err() != nil || m.err != nil }
	cfg.Yard = func(c *yardmaster.Config) {
		c.Unmetered, c.Unattended = false, false
		Configure(c)
	}

	if _, err := sim.Run(cfg); err != nil {
		return fmt.Errorf("simulate the month: %w", err)
	}

	if m.err == nil {
		m.err = ctx.Err()
	}

	return m.close()
}

// month is a month that is being made.
type month struct {
	Options
	ctx     context.Context //nolint:containedctx // of Make, which all that it does belongs to
	hand    sim.Hand
	seer    *forecaster.Forecaster
	passes  forecaster.Stepwise
	use     *utilization.Recorder
	watcher *watcher
	batches []*yardmaster.Batch // that are not stored yet
	err     error               // the first
}

// Now is the virtual time.
func (m *month) Now() time.Time { return m.hand.Now() }

// begun sets the yard up when the month begins.
func (m *month) begun(h sim.Hand) {
	m.hand = h

	var err error
	m.passes, err = m.seer.Stepwise(m.ctx)
	m.fail(err)

	setUp(h)
	accidents(h, m.Length)
	h.After(rarely, m.forecast)
	h.After(learnEvery, m.learn)
}

// learnEvery is how often the forecaster learns from jobs that have ended, which is what takes longest.
const learnEvery = 2 * day

func (m *month) learn(h sim.Hand) {
	m.passes.Learn(m.ctx)
	h.After(learnEvery, m.learn)
}

// Forecasts of a month that nobody watches are made seldom, and often enough in its last day.
const (
	rarely = 8 * time.Hour
	often  = time.Hour
)

// forecast lets the forecaster make its forecasts, again and again.
func (m *month) forecast(h sim.Hand) {
	m.passes.Forecast(m.ctx)
	m.use.Flush(m.ctx)

	left := m.End.Sub(h.Now())
	next := rarely
	if left <= day/2 {
		next = often
	}

	// The last pass is as close to the end as can be, so that what is seen first is new.
	if next = min(next, left-time.Second); next > 0 {
		h.After(next, m.forecast)
	}
}

// do sends a message of the forecaster to the yard.
func (m *month) do(_ context.Context, msg yardmaster.Message) (any, error) {
	return m.hand.Do(msg), nil
}

func (m *month) query(_ context.Context, look func(*yardmaster.Yard)) error {
	m.hand.Query(look)
	return nil
}

func (m *month) statuses(jobs []*job.Job) (list []yardmaster.JobStatus, err error) {
	names := make([]id.Job, len(jobs))
	for i := range jobs {
		names[i] = jobs[i].ID
	}

	m.hand.Query(func(y *yardmaster.Yard) { list = y.JobStatuses(names).Answer() })

	return list, nil
}

// TakeMetrics hands metrics to the forecaster.
func (m *month) TakeMetrics(ctx context.Context, r *api.MetricsReport) error {
	return m.seer.Take(ctx, r)
}

// TakeUse hands what runs use to the recorder.
func (m *month) TakeUse(ctx context.Context, n id.Node, ranks []api.RankReport, orders []yardmaster.Order) {
	m.use.Take(ctx, n, ranks, orders)
	m.use.Deliver(ctx)
}

// keeps says of which runs the output is kept: of the last days, and of those that failed.
func (m *month) keeps(w *sim.Watched) bool {
	ago := m.End.Sub(w.Now)
	failed := w.Cause != job.CauseNone && w.Cause != job.CausePreempted

	return ago < 4*day || failed && ago < 10*day
}

// perCommit is how many batches are stored in one transaction.
const perCommit = 500

// take takes in what the yard wants to be stored.
func (m *month) take(b *yardmaster.Batch) {
	m.seer.Follow(b)
	m.use.Follow(b)
	m.batches = append(m.batches, b)

	if len(m.batches) >= perCommit {
		m.commit()
	}
}

func (m *month) commit() {
	if m.err != nil || len(m.batches) == 0 {
		return
	}

	m.fail(m.Store.Commit(m.ctx, m.batches...))
	m.batches = m.batches[:0:0]
}

func (m *month) fail(err error) {
	if m.err == nil {
		m.err = err
	}
}

// rollUpPart is how many postings are added to the totals at a time.
const rollUpPart = 5000

// close stores what is left.
func (m *month) close() error {
	m.commit()

	if m.err != nil {
		return m.err
	}

	m.watcher.flush()
	m.use.Flush(m.ctx)

	m.passes.Close(m.ctx)

	for {
		if n, err := m.Store.RollUp(m.ctx, rollUpPart); err != nil || n == 0 {
			return err
		}
	}
}
