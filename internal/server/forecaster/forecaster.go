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

// Deps are the dependencies of a forecaster.
type Deps struct {
	Store store.Store
	Clock clock.Clock
	Log   *slog.Logger
	// Do sends a message to the yardmaster; Query reads its state, and Statuses what it knew of jobs after its last batch,
	// which it need not be asked for.
	Do       func(context.Context, yardmaster.Message) (any, error)
	Query    func(context.Context, func(*yardmaster.Yard)) error
	Statuses func(jobs []*job.Job) ([]yardmaster.JobStatus, error)
}

// Edge is what the forecaster needs of the server to answer API requests.
type Edge struct {
	API      huma.API
	Security []map[string][]string
	Allow    func(ctx context.Context, a tenant.Action, owner id.User) error
	Fail     func(context.Context, error) error
	Job      func(ctx context.Context, name string) (job.Job, error) // only if the caller may see the job
	Sees     func(ctx context.Context, j *job.Job) bool              // whether the caller may see a job
}

// Intervals and limits. The forecast of a job with new data is renewed after minInterval, that of others after
// maxInterval, because time passes for them too.
const (
	passEvery    = time.Second
	minInterval  = 5 * time.Second
	maxInterval  = time.Minute
	maxQueue     = 10_000                 // jobs queued for a first forecast; others get one on request
	queuePerPass = 100                    // queued jobs per pass
	maxPerPass   = 500                    // forecasts per pass
	passBudget   = 400 * time.Millisecond // for the forecasts of a pass, to leave CPU time to others
	flushEvery   = 30 * time.Second       // between two writes of a job's curves
	settleAfter  = 20 * time.Second       // after the end of a job, until its last points have arrived
)

// Forecaster keeps the forecasts of live jobs up to date.
type Forecaster struct {
	Deps
	trainer *trainer
	ready   chan struct{} // closed when the jobs of an earlier server process are known

	// The fields below belong to the goroutine of Run.
	lastError   loggedError // the last that was logged
	lastLearned time.Time   // when jobs were last added to the history
	pause       time.Duration
	resume      time.Time // earliest next write after a failure
	fenced      bool      // another server has taken over the store

	mu         sync.Mutex
	jobs       map[id.Job]*liveJob // jobs that have had a run
	queue      []job.Job           // jobs that have had none, in order
	queued     map[id.Job]bool     // the jobs in queue
	made       madeForecasts
	nodes      map[id.Node]fleet.Node
	leases     map[id.Lease]fleet.Lease
	tariff     *fleet.Tariff // prices of nodes; nil if unknown
	offers     []fleet.Offer
	marketView *market
}

// New returns a forecaster without any data.
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

// Follow processes a committed batch. The loop waits for it, so it only records what has changed.
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

// follow records the new state of a job. A job that has not run yet is only queued for one
// forecast: there may be very many, and nothing is known of them that is not in the store.
func (f *Forecaster) follow(j *job.Job) {
	if j.State.Final() || j.Epoch > 0 {
		delete(f.made.byJob, j.ID)
	}

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
		w.loaded = j.Epoch == 1 && f.isReady() // a first run has no stored data
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

// Run makes forecasts until ctx is cancelled.
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

// start reads the state left by an earlier server process, and reports false if ctx is cancelled
// first. Until the jobs are known no points are accepted: points of an unknown job would be lost,
// and its agent would not send them again.
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

// loadAll reads the stored data of jobs that existed before the server started. No forecasts are
// made and nothing is written before that; otherwise notices would be sent again and stored data
// would be overwritten.
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

// survey reads the state before the first batch: prices, nodes, leases, jobs that have had a run,
// and as many queued jobs as fit into the queue.
func (f *Forecaster) survey(ctx context.Context) error {
	var nodes []fleet.Node
	var tariff *fleet.Tariff
	var offers []fleet.Offer
	err := f.Query(ctx, func(y *yardmaster.Yard) { // written by the loop, perhaps after this call has timed out
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

// due returns the jobs whose forecast must be renewed, the longest waiting first.
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

// passed reports whether d has passed since then. It also returns true if the clock was set back,
// so that nothing waits for the clock to catch up.
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
