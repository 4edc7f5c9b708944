// Package forecaster stores the metrics of jobs and keeps their forecasts up to date.
//
// It runs beside the loop: agents send it points, committed batches tell it the state of jobs, and at intervals it
// asks package forecast about each live job and sends the forecast to the yardmaster, for policies and for the event
// feed. Jobs that succeed become history: later forecasts are calibrated on it, and a duration model is trained on it
// in the background. Curves and history are documents in the store; all else is computed again after a restart.
// It decides nothing about jobs.
package forecaster

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"trainyard/internal/clock"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/store"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// Deps is what a forecaster works with.
type Deps struct {
	Store store.Store
	Clock clock.Clock
	Log   *slog.Logger
	// Do hands a message to the yardmaster, Query looks at it.
	Do    func(context.Context, yardmaster.Message) (any, error)
	Query func(context.Context, func(*yardmaster.Yard)) error
}

// Edge is what it needs of the server to answer people.
type Edge struct {
	API      huma.API
	Security []map[string][]string
	Allow    func(ctx context.Context, a tenant.Action, owner id.User) error
	Fail     func(context.Context, error) error
	Job      func(ctx context.Context, name string) (job.Job, error) // one that the caller may see
}

// Intervals and limits. The forecast of a job with new data is renewed after minInterval, that of others after
// maxInterval, because time passes for them too.
const (
	passEvery   = time.Second
	minInterval = 5 * time.Second
	maxInterval = time.Minute
	// jobs that wait to be looked at for the first time; the others are when someone asks
	maxQueue     = 10_000
	queuePerPass = 100                    // of those in a pass
	maxPerPass   = 500                    // forecasts in a pass
	passBudget   = 400 * time.Millisecond // that a pass makes forecasts at most, so that it leaves the others a core
	flushEvery   = 30 * time.Second       // between writings of a job's curves
	settleAfter  = 20 * time.Second       // from a job's end until its last points have come
)

// Forecaster keeps the forecasts of live jobs up to date.
type Forecaster struct {
	Deps
	trainer *trainer
	ready   chan struct{} // closed when the jobs that were there before are known

	// These belong to the goroutine of Run.
	lastError   loggedError // that was logged
	lastLearned time.Time   // when jobs last became history
	pause       time.Duration
	resume      time.Time // when curves are written again after that failed
	fenced      bool      // another server has the store

	mu         sync.Mutex
	jobs       map[id.Job]*liveJob // that have had a run
	queue      []job.Job           // that have not, in order
	queued     map[id.Job]bool     // those in line
	nodes      map[id.Node]fleet.Node
	leases     map[id.Lease]fleet.Lease
	tariff     *fleet.Tariff // what nodes cost; nil if unknown
	offers     []fleet.Offer
	marketView *market
}

// New returns a forecaster that knows nothing yet.
func New(d Deps) *Forecaster {
	return &Forecaster{
		Deps:    d,
		trainer: newTrainer(d.Store, d.Clock, d.Log),
		ready:   make(chan struct{}),
		jobs:    map[id.Job]*liveJob{},
		queued:  map[id.Job]bool{},
		nodes:   map[id.Node]fleet.Node{},
		leases:  map[id.Lease]fleet.Lease{},
	}
}

// Follow takes in a committed batch. The loop waits for it, so it only takes notes.
func (f *Forecaster) Follow(b *yardmaster.Batch) {
	f.mu.Lock()
	defer f.mu.Unlock()

	for i := range b.Nodes {
		if n := &b.Nodes[i]; n.State == fleet.Removed {
			delete(f.nodes, n.ID)
		} else {
			f.nodes[n.ID] = *n
		}
	}

	for i := range b.Leases {
		if l := &b.Leases[i]; l.State.Final() {
			delete(f.leases, l.ID)
		} else {
			f.leases[l.ID] = *l
		}
	}

	for i := range b.Jobs {
		f.follow(&b.Jobs[i])
	}

	for i := range b.Runs {
		if w, ok := f.jobs[b.Runs[i].Job]; ok {
			w.setRun(b.Runs[i], f.allocation(&b.Runs[i]))
		}
	}
}

// follow takes in what a job has become. One that has not run yet is only put down to be
// looked at once: there may be very many, and nothing is known of them but what the
// store has.
func (f *Forecaster) follow(j *job.Job) {
	w, known := f.jobs[j.ID]
	switch {
	case !known && j.State.Final():
		return
	case !known && j.Epoch == 0:
		if len(f.queue) < maxQueue && !f.queued[j.ID] {
			f.queue = append(f.queue, *j)
			f.queued[j.ID] = true
		}

		return
	case !known:
		w = newLiveJob()
		w.loaded = j.Epoch == 1 && f.isReady() // nothing can have been kept of it
		f.jobs[j.ID] = w
	case j.Seq < w.job.Seq:
		return
	}

	if w.job.State != j.State {
		w.changed = true
	}

	w.job = *j
	if j.State.Final() && w.endedAt.IsZero() {
		w.endedAt = f.Clock.Now()
	}
}

// Run makes forecasts until ctx ends.
func (f *Forecaster) Run(ctx context.Context) {
	if !f.start(ctx) {
		return
	}

	lessons := make(chan struct{})
	go func() {
		defer close(lessons)

		f.trainer.run(ctx)
	}()

	clock.Every(ctx, f.Clock, passEvery, func(time.Time) { f.pass(ctx) })
	<-lessons
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()

	f.flush(last, true)

	if n := len(f.unwritten(f.Clock.Now(), true)); n > 0 && !f.fenced {
		f.Log.ErrorContext(ctx, "the newest points were not stored in time; agents will send them again", "jobs", n)
	}
}

// start takes in what was there before, and reports whether there was time for that. Until
// the jobs are known no points are taken: those of a job that is not known would be lost, and
// its agent would not tell them again.
func (f *Forecaster) start(ctx context.Context) bool {
	for wait := passEvery; ; wait = min(2*wait, maxPause) {
		err := f.survey(ctx)
		if err == nil {
			break
		}

		if ctx.Err() == nil {
			f.Log.ErrorContext(ctx, "reading the state of the yard failed, retrying", "error", err)
		}

		if !clock.Sleep(ctx, wait) {
			return false
		}
	}

	close(f.ready)

	if err := f.trainer.load(ctx); err != nil && ctx.Err() == nil {
		f.Log.ErrorContext(ctx, "reading the forecast history failed; forecasts are made without it", "error", err)
	}

	return ctx.Err() == nil
}

func (f *Forecaster) isReady() bool {
	select {
	case <-f.ready:
		return true
	default:
		return false
	}
}

// loadAll reads what was kept of jobs that were known before the server started. No forecast
// is made of them before, and nothing written: what was said of them would be said again,
// and what was kept be lost.
func (f *Forecaster) loadAll(ctx context.Context) error {
	var unread []id.Job
	f.mu.Lock()

	for j, w := range f.jobs {
		if !w.loaded {
			unread = append(unread, j)
		}
	}

	f.mu.Unlock()

	slices.SortFunc(unread, compareJobs)
	for _, j := range unread {
		if err := f.loadJob(ctx, j); err != nil {
			return fmt.Errorf("read the stored metrics of %s: %w", j, err)
		}
	}

	return nil
}

// survey takes in what was there before the first batch: prices, nodes, leases, jobs
// that have had a run, and as many of those that wait as are looked at.
func (f *Forecaster) survey(ctx context.Context) error {
	var nodes []fleet.Node
	var tariff *fleet.Tariff
	var offers []fleet.Offer

	err := f.Query(ctx, func(y *yardmaster.Yard) { // written by the loop, perhaps after we gave up on it
		for _, n := range y.Nodes("", math.MaxInt) {
			nodes = append(nodes, n.Node)
		}

		tariff = y.Tariff()
		offers, _ = y.Offers(f.Clock.Now())
	})
	if err != nil {
		return err
	}

	leases, err := f.Store.Leases(ctx, store.LeaseFilter{Live: true, Limit: math.MaxInt32})
	if err != nil {
		return err
	}

	var running []job.State
	for _, s := range job.States() {
		if !s.Final() && s != job.Pending {
			running = append(running, s)
		}
	}

	jobs, err := f.Store.Jobs(ctx, store.JobFilter{States: running, Limit: math.MaxInt32})
	if err != nil {
		return err
	}

	waiting, err := f.Store.Jobs(
		ctx,
		store.JobFilter{States: []job.State{job.Pending}, Limit: maxQueue},
	) // some have been paused
	if err != nil {
		return err
	}

	jobs = append(jobs, waiting...)
	f.mu.Lock()

	f.tariff, f.offers = tariff, offers
	for i := range nodes {
		if _, newer := f.nodes[nodes[i].ID]; !newer {
			f.nodes[nodes[i].ID] = nodes[i]
		}
	}

	f.mu.Unlock()
	f.Follow(&yardmaster.Batch{Leases: leases, Jobs: jobs})

	return nil
}

// due returns the jobs whose forecast is to be made again, the longest waiting first.
func (f *Forecaster) due(now time.Time) []id.Job {
	var list []*liveJob
	f.mu.Lock()
	defer f.mu.Unlock()

	for _, w := range f.jobs {
		if w.loaded && w.endedAt.IsZero() &&
			(w.forecastAt.IsZero() || passed(w.forecastAt, now, maxInterval) || w.changed &&
				passed(w.forecastAt, now, minInterval)) {
			list = append(list, w)
		}
	}

	slices.SortFunc(list, func(a, b *liveJob) int {
		if c := a.forecastAt.Compare(b.forecastAt); c != 0 {
			return c
		}

		return compareJobs(a.job.ID, b.job.ID)
	})

	jobs := make([]id.Job, min(len(list), maxPerPass))
	for i := range jobs {
		jobs[i] = list[i].job.ID
	}

	return jobs
}

// passed reports whether some time has gone by since then. A clock that was put back must not
// make anything wait for the time it was put back by.
func passed(then, now time.Time, d time.Duration) bool {
	age := now.Sub(then)
	return age >= d || age < 0
}

func compareJobs(a, b id.Job) int {
	x, _ := a.Number()
	y, _ := b.Number()
	switch {
	case x < y:
		return -1
	case x > y:
		return 1
	}

	return 0
}

func sortedKeys[K ~string, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
