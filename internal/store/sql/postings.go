package sql

import (
	"context"
	dbsql "database/sql"
	"errors"
	"time"

	"trainyard/internal/clock"
	"trainyard/internal/id"
	"trainyard/internal/ledger"
	"trainyard/internal/store"
)

// stream yields the rows of a query one by one. The time limit is for each row.
func stream[T any](
	ctx context.Context,
	s *Store,
	q querier,
	what, query string,
	args []any,
	read func(scanner) (T, error),
	yield func(*T) error,
) (err error) {
	ctx, moved, stop := clock.Progress(ctx, s.timeouts.Read)
	defer stop()

	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		s.reports.failed(err)
		return s.failure("read "+what+"s", err)
	}

	defer func() { err = errors.Join(err, rows.Close()) }()

	for rows.Next() {
		moved()

		row, err := read(rows)
		if err != nil {
			return badRow(ctx, what, err)
		}
		if err := yield(&row); err != nil {
			return err
		}
	}

	return s.failure("read "+what+"s", rows.Err())
}

// entry is what the postings of one entry have in common.
type entry struct {
	node     id.Node
	from, to time.Time
}

func entryOf(p *ledger.Posting) entry { return entry{p.Node, p.From, p.To} }

// Postings yields the postings that overlap a period, by their ends, and those of an entry together.
func (s *Store) Postings(ctx context.Context, f store.PostingFilter, yield func(*ledger.Posting) error) error {
	if f.Totals != "" {
		return s.totals(ctx, &f, yield)
	}

	all := yield
	yield = func(p *ledger.Posting) error {
		if f.Last > 0 && p.Seq > f.Last {
			return nil
		}

		return all(p)
	}

	return s.snapshot(ctx, func(tx *dbsql.Tx, r rollup) error {
		if err := r.has(f.From); err != nil {
			return err
		}

		return s.postings(ctx, tx, &f, yield)
	})
}

// postings is Postings without totals.
func (s *Store) postings(
	ctx context.Context, tx *dbsql.Tx, f *store.PostingFilter, yield func(*ledger.Posting) error,
) error {
	payers := payersOf(f.Jobs, f.Projects, f.Owners)
	take := yield

	var ends []time.Time
	cut := map[entry]bool{}

	if len(payers) > 0 && f.Cuts != nil {
		take = func(p *ledger.Posting) error {
			if !f.Cuts(p) {
				return yield(p)
			}

			if len(ends) == 0 || !ends[len(ends)-1].Equal(p.To) { // they come by their ends
				ends = append(ends, p.To)
			}

			cut[entryOf(p)] = true

			return nil
		}
	}

	for _, period := range overlapping(f.From, f.To) {
		if err := s.streamPostings(ctx, tx, append(period, payers...), take); err != nil {
			return err
		}
	}

	for _, end := range ends {
		ending := []condition{{"to_at = ?", []any{micros(end)}}}

		err := s.streamPostings(ctx, tx, ending, func(p *ledger.Posting) error {
			if !cut[entryOf(p)] {
				return nil
			}

			return yield(p)
		})
		if err != nil {
			return err
		}
	}

	return nil
}

func (s *Store) streamPostings(
	ctx context.Context, q querier, list []condition, yield func(*ledger.Posting) error,
) error {
	var w where
	w.addAll(list)

	return stream(ctx, s, q, "posting", postingTable.selects()+w.conditions()+"ORDER BY to_at, seq", w.args, readPosting,
		yield)
}

// Almost all postings end within an hour after they begin; an index has the others.
const (
	usualPosting = time.Hour
	longPosting  = "to_at - from_at > 3600000000"
)

// overlapping returns the conditions of postings that overlap a period, in the order of their ends: of those that
// end in it or soon after it, and of long ones that end later.
func overlapping(from, to time.Time) [][]condition {
	begin := condition{"to_at >= ?", []any{micros(from)}}
	if to.IsZero() {
		return [][]condition{{begin}}
	}

	end, last := condition{"from_at < ?", []any{micros(to)}}, micros(to.Add(usualPosting))

	return [][]condition{
		{begin, {"to_at <= ?", []any{last}}, end},
		{{"to_at > ?", []any{last}}, end, {longPosting, nil}},
	}
}

// payersOf returns the conditions of who pays. An index finds the rows of the first of them.
func payersOf(jobs []id.Job, projects []id.Project, owners []id.User) []condition {
	var list []condition
	add := func(column string, values []any) {
		if len(values) == 0 {
			return
		}

		term := column
		if len(list) > 0 {
			term += " || ''"
		}

		list = append(list, condition{term + " IN (" + marks(len(values)) + ") AND " + column + " <> ''", values})
	}

	add("job", texts(jobs))
	add("owner", texts(owners))
	add("project", texts(projects))

	return list
}
