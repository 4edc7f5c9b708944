package forecaster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"trainyard/internal/clock"
	"trainyard/internal/fault"
	"trainyard/internal/forecast"
	"trainyard/internal/forecast/calibrate"
	"trainyard/internal/forecast/duration"
	"trainyard/internal/forecast/history"
	"trainyard/internal/id"
	"trainyard/internal/store"
)

// trainer holds the forecast history of jobs that succeeded, its calibration, and the duration model trained on it.
type trainer struct {
	store    store.Store
	clock    clock.Clock
	log      *slog.Logger
	changed  chan struct{} // signals that jobs were added
	updating sync.Mutex    // serializes changes of the history

	mu            sync.Mutex
	past          []history.Past // by the time they ended, newest last
	library       *forecast.Library
	ended         []history.Past    // jobs that have just ended, whose curves have not arrived in full
	present       *forecast.Library // library with the jobs in ended
	record        *calibrate.Record
	model         *duration.Model
	trainedAt     time.Time
	trainedJobs   int    // jobs that the model was trained on
	newJobs       int    // jobs added since then
	noModelReason string // why there is no model
}

const (
	maxPast         = 2000 // jobs that are kept
	smallHistory    = 300  // with fewer past jobs, the library is rebuilt between jobs that are added together
	rebuildFraction = 20   // library and calibration are rebuilt when the history has grown by 1/20
	maxModels       = 5    // versions that are kept
	trainEvery      = 10 * time.Minute
	trainRetry      = time.Minute // after a failure
	retrainPercent  = 10          // percentage of new jobs after which the model is trained again
)

// pastJob is the stored form of a finished job, with the score of its forecasts, which were made with what was
// known at that time.
type pastJob struct {
	Past  history.Past       `json:"past"`
	Score calibrate.JobScore `json:"scored"`
}

func newTrainer(s store.Store, c clock.Clock, log *slog.Logger) *trainer {
	empty := forecast.NewLibrary(nil, nil)

	return &trainer{
		store:   s,
		clock:   c,
		log:     log,
		changed: make(chan struct{}, 1),
		library: empty,
		present: empty,
		record:  &calibrate.Record{},
	}
}

// setLibrary replaces the library. The caller holds the lock.
func (s *trainer) setLibrary(l *forecast.Library) { s.library, s.present = l, l.With(s.ended) }

// setEnded sets the jobs that have just ended: their durations count at once.
func (s *trainer) setEnded(ended []history.Past) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.ended = ended
	s.setLibrary(s.library)
}

// load reads the stored history and models.
func (s *trainer) load(ctx context.Context) error {
	docs, err := s.store.Documents(ctx, store.DocumentFilter{Kind: store.PastDocument, Limit: maxPast})
	if err != nil {
		return err
	}

	models, err := s.store.Documents(ctx, store.DocumentFilter{Kind: store.ModelDocument, Limit: 1})
	if err != nil {
		return err
	}

	var bad error
	record := &calibrate.Record{}
	var past []history.Past

	var scored []calibrate.JobScore
	for _, d := range slices.Backward(docs) { // oldest first
		var l pastJob
		if err := json.Unmarshal([]byte(d.Text), &l); err != nil {
			bad = errors.Join(bad, fmt.Errorf("read past job %s: %w", d.ID, err))
			continue
		}

		past = append(past, l.Past)
		scored = append(scored, l.Score)
	}

	record.Add(scored...)

	var model *duration.Model
	if len(models) == 1 {
		model = &duration.Model{}
		if err := json.Unmarshal([]byte(models[0].Text), model); err != nil {
			model, bad = nil, errors.Join(bad, fmt.Errorf("read model %s: %w", models[0].ID, err))
		}
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	s.past, s.record, s.model = past, record, model
	if model != nil {
		s.trainedAt, s.trainedJobs = models[0].At, model.Records
		for i := range past {
			if past[i].Finished.After(model.Newest) {
				s.newJobs++
			}
		}
	}

	s.setLibrary(forecast.NewLibrary(s.past, s.model))

	return bad
}

// current returns the library and the record. Both are immutable: jobs that are added later are in
// new ones.
func (s *trainer) current() (*forecast.Library, *calibrate.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.present, s.record
}

// learn adds successful jobs to the history, the oldest first. The forecasts of each are scored
// against what was known before it, or nearly all of that, because rebuilding the library takes
// longer than scoring.
func (s *trainer) learn(ctx context.Context, past []history.Past) error {
	s.updating.Lock()
	defer s.updating.Unlock()

	s.mu.Lock()
	library, record, model, all := s.library, s.record, s.model, slices.Clone(s.past)
	s.mu.Unlock()

	replaced := map[id.Job]bool{}
	for i := range past {
		replaced[past[i].Job] = true
	}

	all = slices.DeleteFunc(all, func(old history.Past) bool { return replaced[old.Job] }) // imported again
	var docs []store.Document
	var scored []calibrate.JobScore
	known := len(all) // number of jobs in the library

	for i := range past {
		p := &past[i]
		l := pastJob{Past: *p, Score: forecast.Score(p, library, record)}
		text, err := json.Marshal(l)
		if err != nil { // a retry would fail in the same way, and would hold up the other jobs
			s.log.ErrorContext(
				ctx,
				"a finished job cannot be marshalled and is left out of the history",
				"job",
				p.Job,
				"error",
				err,
			)

			continue
		}

		docs = append(docs, store.Document{Kind: store.PastDocument, ID: string(p.Job), At: p.Finished, Text: string(text)})

		scored, all = append(scored, l.Score), append(all, *p)
		if len(scored) > record.Jobs()/rebuildFraction {
			record, scored = record.With(scored...), nil
		}

		if len(all) < smallHistory && len(all)-known > known/rebuildFraction && len(p.Curve.X) > 0 {
			library, known = forecast.NewLibrary(all, model), len(all)
		}
	}

	if len(scored) > 0 {
		record = record.With(scored...)
	}

	slices.SortStableFunc(all, func(a, b history.Past) int { return a.Finished.Compare(b.Finished) })

	if err := s.keep(ctx, docs); err != nil {
		return err
	}

	var gone []string
	for len(all) > maxPast {
		gone, all = append(gone, string(all[0].Job)), all[1:]
	}

	if len(gone) > 0 {
		if err := s.store.Drop(ctx, store.PastDocument, gone...); err != nil {
			return err
		}
	}

	library = forecast.NewLibrary(all, model)
	s.mu.Lock()
	defer s.mu.Unlock()

	s.past, s.record = all, record
	s.setLibrary(library)
	s.newJobs += len(past)
	select {
	case s.changed <- struct{}{}:
	default:
	}

	return nil
}

// keep writes documents in small transactions, so that the loop's commits do not wait long.
func (s *trainer) keep(ctx context.Context, docs []store.Document) error {
	for part := range slices.Chunk(docs, maxFlush) {
		if err := s.store.Keep(ctx, part...); err != nil {
			return err
		}
	}

	return nil
}

// run trains the model whenever there are enough new jobs, until ctx is cancelled.
func (s *trainer) run(ctx context.Context) {
	for first := true; ctx.Err() == nil; first = false {
		if !first {
			select {
			case <-ctx.Done():
				return
			case <-s.changed:
			}
		}

		err := s.train(ctx)

		wait := time.Duration(0)
		switch {
		case err != nil:
			wait = trainRetry

			if ctx.Err() == nil {
				s.log.ErrorContext(ctx, "training the duration model failed, retrying", "error", err)
			}
		case s.hasModel():
			wait = trainEvery
		}

		if wait > 0 && !clock.Sleep(ctx, wait) {
			return
		}
	}
}

// hasModel reports whether there is a model that was trained on nearly all past jobs.
func (s *trainer) hasModel() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.model != nil
}

// train trains a new model if there are enough new jobs.
func (s *trainer) train(ctx context.Context) error {
	s.mu.Lock()
	past, before, trained, since := s.past, s.model, s.trainedJobs, s.newJobs
	s.mu.Unlock()

	if before != nil && 100*since < retrainPercent*trained {
		return nil
	}

	version := 1
	if before != nil {
		version = before.Version + 1
	}

	model, err := duration.Train(past, uint64(version))
	if f := (*fault.Error)(nil); errors.As(err, &f) && f.Code == "no_history" {
		s.mu.Lock()
		s.noModelReason = f.Message
		s.mu.Unlock()

		return nil
	}

	if err != nil {
		return err
	}

	model.Version = version
	now := s.clock.Now()

	text, err := json.Marshal(model)
	if err != nil {
		return fmt.Errorf("write model %d: %w", version, err)
	}

	if err := s.store.Keep(
		ctx,
		store.Document{Kind: store.ModelDocument, ID: strconv.Itoa(version), At: now, Text: string(text)},
	); err != nil {
		return err
	}

	if version > maxModels {
		if err := s.store.Drop(ctx, store.ModelDocument, strconv.Itoa(version-maxModels)); err != nil {
			return err
		}
	}

	s.updating.Lock()
	defer s.updating.Unlock()

	s.mu.Lock()
	all := s.past
	s.mu.Unlock()
	library := forecast.NewLibrary(all, model)
	s.mu.Lock()
	defer s.mu.Unlock()

	s.model, s.noModelReason = model, ""
	s.setLibrary(library)
	s.trainedAt, s.trainedJobs = now, len(past)
	s.newJobs -= since
	s.log.InfoContext(ctx, "trained the duration model", "version", version, "jobs", len(past))

	return nil
}
