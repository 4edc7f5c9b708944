// Package utilization keeps what runs use of their nodes, and says at their end what to ask for the next time.
//
// Agents report with each rank what it uses; of the newest run of a job sums, peaks and a downsampled course are kept,
// and of those before it the course, in memory while it runs and as a document of the store. It runs beside the loop
// and decides nothing about jobs.
package utilization

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/clock"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/store"
	"trainyard/internal/yardmaster"
)

// Deps are the dependencies of a recorder.
type Deps struct {
	Store store.Store
	Clock clock.Clock
	Log   *slog.Logger
	// Note records what the owner of a job should know about its part of a GPU. It may take long: no report waits for it.
	Note func(ctx context.Context, n yardmaster.NoteShare) error
}

const (
	flushEvery = 30 * time.Second // how often what has changed is stored
	// quietFor is how long nothing may be reported of a job until it is dropped from memory; the store has all of it, and
	// the next report reads it again. A report that comes at the very end of its job would stay for ever otherwise.
	quietFor = 10 * time.Minute
)

// Recorder keeps what runs use. It is safe for concurrent use.
type Recorder struct {
	Deps

	figures figures
	noted   chan struct{} // holds a value while notes wait that nobody was woken for

	mu    sync.Mutex
	jobs  map[id.Job]*record
	notes []yardmaster.NoteShare // that have not been sent, the oldest first
}

// record is what is known of a job that has not ended.
type record struct {
	runRecord
	reported time.Time // when something was last reported
	changed  bool
	ended    bool // the job has: it is forgotten once it is stored
}

// New returns a recorder that knows nothing yet.
func New(d Deps) *Recorder {
	return &Recorder{Deps: d, figures: newFigures(), noted: make(chan struct{}, 1), jobs: map[id.Job]*record{}}
}

// Take takes in what a node reports about ranks that are assigned to it.
func (r *Recorder) Take(ctx context.Context, n id.Node, ranks []api.RankReport, orders []yardmaster.Order) {
	for i := range ranks {
		one := &ranks[i]
		order := assigned(orders, one)
		if one.Use == nil || order == nil {
			continue
		}

		name, _, ok := one.Run.Split()
		if !ok {
			continue
		}

		r.take(ctx, name, n, one, order)
	}
}

// assigned returns the order of a rank that is reported, nil if it has none.
func assigned(orders []yardmaster.Order, r *api.RankReport) *yardmaster.Order {
	for i := range orders {
		if orders[i].Run == r.Run && orders[i].Rank == r.Rank {
			return &orders[i]
		}
	}

	return nil
}

// take takes in what one rank uses, and notes what its owner should know about its part of a GPU.
func (r *Recorder) take(ctx context.Context, name id.Job, n id.Node, one *api.RankReport, o *yardmaster.Order) {
	known, err := r.open(ctx, name)
	if err != nil {
		r.Log.WarnContext(ctx, "what a job used before is not known; it is recorded anew", "job", name, "error", err)
	}

	r.mu.Lock()
	defer r.mu.Unlock()

	known.reported = r.Clock.Now()

	if known.Run != one.Run {
		if _, before, _ := known.Run.Split(); before > epochOf(one.Run) {
			return // of an earlier run
		}

		known.follow(one.Run)
	}

	rank, ok := known.Ranks[one.Rank]
	if !ok {
		rank = &rankRecord{Node: n}
		known.Ranks[one.Rank] = rank
	}

	ended := one.State == job.RunEnded
	before := rank.Last
	rank.add(one.Use, ended, one.Rank < maxCourses)
	known.Ended = known.Ended || ended
	known.changed = true

	if ended || !one.Use.At.After(before.At) {
		return
	}

	for _, note := range rank.addShare(&before, one.Use, o) {
		r.note(note)
	}
}

func epochOf(r id.Run) int {
	_, epoch, _ := r.Split()
	return epoch
}

// open returns the record of a job, from the store if this server has none.
func (r *Recorder) open(ctx context.Context, name id.Job) (*record, error) {
	r.mu.Lock()
	known, ok := r.jobs[name]
	r.mu.Unlock()

	if ok {
		return known, nil
	}

	stored, err := r.read(ctx, name)
	r.mu.Lock()
	defer r.mu.Unlock()

	if known, ok = r.jobs[name]; ok {
		return known, err // another report was quicker
	}

	for _, n := range stored.Notes {
		r.note(n)
	}

	stored.Notes = nil
	known = &record{runRecord: stored, reported: r.Clock.Now()}
	r.jobs[name] = known

	return known, err
}

// read reads what is stored of a job; zero if nothing is.
func (r *Recorder) read(ctx context.Context, name id.Job) (run runRecord, err error) {
	docs, err := r.Store.Documents(ctx, store.DocumentFilter{Kind: store.UseDocument, ID: string(name), Limit: 1})
	if err != nil || len(docs) == 0 {
		return run, err
	}

	if err := json.Unmarshal([]byte(docs[0].Text), &run); err != nil {
		return runRecord{}, fmt.Errorf("read what job %s used: %w", name, err)
	}

	return run, nil
}

// Follow processes a committed batch. The loop waits for it, so it only records what has changed.
func (r *Recorder) Follow(b *yardmaster.Batch) {
	r.mu.Lock()
	defer r.mu.Unlock()

	for i := range b.Jobs {
		if known, ok := r.jobs[b.Jobs[i].ID]; ok && b.Jobs[i].State.Final() {
			known.ended, known.Ended, known.changed = true, true, true
		}
	}
}

// Run stores what has changed, and sends notes, until ctx ends.
func (r *Recorder) Run(ctx context.Context) {
	var sender sync.WaitGroup

	sender.Go(func() { r.deliverAll(ctx) })
	clock.Every(ctx, r.Clock, flushEvery, func(time.Time) { r.Flush(ctx) })
	sender.Wait() // what it could not send is stored

	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()

	r.Flush(last)
}

// Flush stores what has changed, and forgets jobs that have ended or of which nothing is reported any more.
func (r *Recorder) Flush(ctx context.Context) {
	var docs []store.Document
	var names []id.Job

	now := r.Clock.Now()

	r.mu.Lock()
	for name, known := range r.jobs {
		if !known.changed {
			if now.Sub(known.reported) >= quietFor {
				delete(r.jobs, name)
			}

			continue
		}

		full := known.runRecord
		full.Notes = r.notesOf(name)

		text, err := json.Marshal(&full)
		if err != nil {
			r.Log.ErrorContext(ctx, "what a job used cannot be stored", "job", name, "error", err)
			continue
		}

		known.changed = false
		names = append(names, name)
		docs = append(docs, store.Document{
			Kind: store.UseDocument, ID: string(name), At: now, Text: string(text),
		})
	}
	r.mu.Unlock()

	if len(docs) == 0 {
		return
	}

	err := r.Store.Keep(ctx, docs...)
	if err != nil {
		r.Log.WarnContext(ctx, "what jobs use could not be stored; later", "jobs", len(docs), "error", err)
	}

	r.mu.Lock()
	defer r.mu.Unlock()

	for _, name := range names {
		known := r.jobs[name]

		switch {
		case err != nil:
			known.changed = true
		case known.ended && !known.changed:
			delete(r.jobs, name)
		}
	}
}

// Of returns what a job uses or has used in its newest measured run; NotFound if nothing was measured.
func (r *Recorder) Of(ctx context.Context, j *job.Job, runs []job.Run) (api.Utilization, error) {
	r.mu.Lock()
	known, ok := r.jobs[j.ID]
	if ok {
		defer r.mu.Unlock()

		return summarize(j, runs, &known.runRecord)
	}
	r.mu.Unlock()

	stored, err := r.read(ctx, j.ID)
	if err != nil {
		return api.Utilization{}, err
	}

	return summarize(j, runs, &stored)
}

// Running returns the jobs of which something is measured now.
func (r *Recorder) Running() []id.Job {
	r.mu.Lock()
	defer r.mu.Unlock()

	var list []id.Job
	for name, known := range r.jobs {
		if !known.Ended {
			list = append(list, name)
		}
	}

	return list
}

func notMeasured(j id.Job) error {
	return fault.New(fault.NotFound, "not_measured", "no use of resources was measured for job %s", j).
		WithRemedy("it has not run, or its agents are of an earlier version")
}
