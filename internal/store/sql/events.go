package sql

import (
	"context"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"trainyard/internal/store"
	"trainyard/internal/yardmaster"
)

// Events lists events, oldest first.
func (s *Store) Events(ctx context.Context, f store.EventFilter) ([]yardmaster.Event, error) {
	if err := needLimit(f.Limit); err != nil {
		return nil, err
	}

	list, err := s.eventsOf(ctx, &f)
	if err != nil || list.none {
		return nil, err
	}

	query, args, err := list.query()
	if err != nil {
		return nil, err
	}

	events, err := collect(ctx, s.read, "event", query, args, readEvent)
	if f.Newest {
		slices.Reverse(events)
	}

	return events, err
}

// eventsOf returns the list of events that a filter lets through.
func (s *Store) eventsOf(ctx context.Context, f *store.EventFilter) (*selection, error) {
	list := &selection{table: eventTable, from: " FROM events ", number: "seq", newest: f.Newest, limit: f.Limit}
	list.must("seq > ?", int64(min(f.After, math.MaxInt64)))

	if f.Before > 0 {
		list.must("seq < ?", int64(min(f.Before, math.MaxInt64)))
	}

	if f.Job != "" {
		list.find("job", "job <> ''", clean(string(f.Job)))
	}

	if f.Node != "" {
		list.find("node", "node <> ''", clean(string(f.Node)))
	}

	if f.Owner != "" {
		list.find("owner", "owner <> ''", clean(string(f.Owner)))
	}

	if f.Actor != "" {
		list.find("actor", "", clean(f.Actor))
	}

	if f.Audit {
		list.must("address <> ''")
	}

	if f.Kind == "" {
		return list, nil
	}

	return list, s.confineKinds(ctx, list, f)
}

// maxKinds is more than there are kinds of events.
const maxKinds = 1_000

// confineKinds confines a list to the kinds that a filter lets through.
func (s *Store) confineKinds(ctx context.Context, list *selection, f *store.EventFilter) error {
	kind, first := clean(f.Kind), clean(f.KindPrefix())

	// Written so that no database looks for kinds: either an index finds the events by something else, or so many kinds
	// begin so that most events are of them.
	begins := condition{"(kind = ? OR substr(kind, 1, ?) = ?)", []any{kind, int64(utf8.RuneCountInString(first)), first}}

	if list.found {
		list.must(begins.term, begins.args...)
		return nil
	}

	all, _, err := s.distinct(ctx, "events", "kind", maxKinds)
	if err != nil {
		return err
	}

	var kinds []condition
	for _, k := range all {
		if k == kind || strings.HasPrefix(k, first) {
			kinds = append(kinds, condition{"kind = ?", []any{k}})
		}
	}

	switch {
	case len(kinds) == 0:
		list.none = true
	case len(kinds) <= maxBranches:
		list.choose(kinds)
	default:
		list.must(begins.term, begins.args...)
	}

	return nil
}
