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

// school is what the yard has learned from jobs that ended well.
type school struct {
	store store.Store
	clock clock.Clock
	log   *slog.Logger
	more  chan struct{} // there is something new to learn from
	class sync.Mutex    // held by whoever changes what is known, while that is worked out

	mu      sync.Mutex
	past    []history.Past // by the time they ended, newest last
	library *forecast.Library
	record  *calibrate.Record
	model   *duration.Model
	trained int    // jobs that the model has learned from
	since   int    // that have ended since
	trouble string // why there is no model
}

const (
	pastMost   = 2000 // jobs that are remembered
	fewPast    = 300  // with fewer a job may count for the next of those that come together
	renewal    = 20   // what is known is worked out anew when it has grown by one in so many
	modelsKept = 5    // versions
	trainEvery = 10 * time.Minute
	trainAgain = time.Minute // after a failure
	growth     = 10          // percent of its jobs that must have ended since before the model is trained again
)

// lesson is a past job as it is kept: with how well it was foreseen, by what was known then.
type lesson struct {
	Past   history.Past       `json:"past"`
	Scored calibrate.JobScore `json:"scored"`
}

func newSchool(s store.Store, c clock.Clock, log *slog.Logger) *school {
	return &school{store: s, clock: c, log: log, more: make(chan struct{}, 1), library: forecast.NewLibrary(nil, nil), record: &calibrate.Record{}}
}

// recall reads what was learned before.
func (s *school) recall(ctx context.Context) error {
	docs, err := s.store.Documents(ctx, store.DocumentFilter{Kind: store.PastDocument, Limit: pastMost})
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
		var l lesson
		if err := json.Unmarshal([]byte(d.Text), &l); err != nil {
			bad = errors.Join(bad, fmt.Errorf("read what is remembered of %s: %w", d.ID, err))
			continue
		}
		past = append(past, l.Past)
		scored = append(scored, l.Scored)
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
		s.trained = model.Records
		for i := range past {
			if past[i].Finished.After(model.Newest) {
				s.since++
			}
		}
	}
	s.library = forecast.NewLibrary(s.past, s.model)
	return bad
}

// lessons returns what forecasts go by. Neither is changed any more: what is learned
// later is in others.
func (s *school) lessons() (*forecast.Library, *calibrate.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.library, s.record
}

// learn takes jobs that have ended well into the history, the oldest first: each is replayed
// against what was known before it, or nearly all of that, because to work that out takes longer
// than a replay.
func (s *school) learn(ctx context.Context, past []history.Past) error {
	s.class.Lock()
	defer s.class.Unlock()
	s.mu.Lock()
	library, record, model, all := s.library, s.record, s.model, slices.Clone(s.past)
	s.mu.Unlock()
	again := map[id.Job]bool{}
	for i := range past {
		again[past[i].Job] = true
	}
	all = slices.DeleteFunc(all, func(old history.Past) bool { return again[old.Job] }) // told again
	var docs []store.Document
	var scored []calibrate.JobScore
	known := len(all) // that the library has
	for i := range past {
		p := &past[i]
		l := lesson{Past: *p, Scored: forecast.Score(p, library, record)}
		text, err := json.Marshal(l)
		if err != nil { // it would be no better the next time, and the others would wait for it
			s.log.ErrorContext(ctx, "a job that has ended cannot be written; it does not become history", "job", p.Job, "error", err)
			continue
		}
		docs = append(docs, store.Document{Kind: store.PastDocument, ID: string(p.Job), At: p.Finished, Text: string(text)})
		scored, all = append(scored, l.Scored), append(all, *p)
		if len(scored) > record.Jobs()/renewal {
			record, scored = record.With(scored...), nil
		}
		if len(all) < fewPast && len(all)-known > known/renewal && len(p.Curve.X) > 0 {
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
	for len(all) > pastMost {
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
	s.past, s.record, s.library = all, record, library
	s.since += len(past)
	select {
	case s.more <- struct{}{}:
	default:
	}
	return nil
}

// keep writes what is remembered, in transactions that the loop's commits need not wait for long.
func (s *school) keep(ctx context.Context, docs []store.Document) error {
	for part := range slices.Chunk(docs, flushMost) {
		if err := s.store.Keep(ctx, part...); err != nil {
			return err
		}
	}
	return nil
}

// run trains the model whenever there is enough more to learn from, until ctx ends.
func (s *school) run(ctx context.Context) {
	for first := true; ctx.Err() == nil; first = false {
		if !first {
			select {
			case <-ctx.Done():
				return
			case <-s.more:
			}
		}
		err := s.train(ctx)
		wait := time.Duration(0)
		switch {
		case err != nil:
			if wait = trainAgain; ctx.Err() == nil {
				s.log.ErrorContext(ctx, "training the model of durations failed, trying again", "error", err)
			}
		case s.enough():
			wait = trainEvery
		}
		if wait > 0 && !clock.Sleep(ctx, wait) {
			return
		}
	}
}

// enough reports whether there is a model that has learned from nearly all there is.
func (s *school) enough() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.model != nil
}

// train learns a new model if there is enough more to learn from.
func (s *school) train(ctx context.Context) error {
	s.mu.Lock()
	past, before, trained, since := s.past, s.model, s.trained, s.since
	s.mu.Unlock()
	if before != nil && 100*since < growth*trained {
		return nil
	}
	version := 1
	if before != nil {
		version = before.Version + 1
	}
	model, err := duration.Train(past, uint64(version))
	if f := (*fault.Error)(nil); errors.As(err, &f) && f.Code == "no_history" {
		s.mu.Lock()
		s.trouble = f.Message
		s.mu.Unlock()
		return nil
	}
	if err != nil {
		return err
	}
	model.Version = version
	text, err := json.Marshal(model)
	if err != nil {
		return fmt.Errorf("write model %d: %w", version, err)
	}
	if err := s.store.Keep(ctx, store.Document{Kind: store.ModelDocument, ID: strconv.Itoa(version), At: s.clock.Now(), Text: string(text)}); err != nil {
		return err
	}
	if version > modelsKept {
		if err := s.store.Drop(ctx, store.ModelDocument, strconv.Itoa(version-modelsKept)); err != nil {
			return err
		}
	}
	s.class.Lock()
	defer s.class.Unlock()
	s.mu.Lock()
	all := s.past
	s.mu.Unlock()
	library := forecast.NewLibrary(all, model)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.model, s.library, s.trained, s.trouble = model, library, len(past), ""
	s.since -= since
	s.log.InfoContext(ctx, "a model of durations was trained", "version", version, "jobs", len(past))
	return nil
}
