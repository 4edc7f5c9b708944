package sql

import (
	"context"
	dbsql "database/sql"
	"fmt"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/ledger"
	"trainyard/internal/store"
)

var totalTable = &table{
	name: "ledger_totals", key: "span, kind, start_at",
	columns: []string{"span", "kind", "start_at", "doc"},
	fixed:   []string{"span", "kind", "start_at"},
}

// storedTotal is a total with its text.
type storedTotal struct {
	ledger.Total
	text string
}

func totalRow(args []any, t *storedTotal) ([]any, error) {
	return append(args, string(t.Span), string(t.Of), micros(t.Start), clean(t.text)), nil
}

var rollupTable = &table{
	name: "ledger_rollup", key: "one",
	columns: []string{"one", "last", "detailed_since"},
	fixed:   []string{"one"},
}

// rollup says what the totals have of the ledger.
type rollup struct {
	last     uint64    // number of the last posting that is in them
	detailed time.Time // since when there are postings, and totals of hours
}

func rollupRow(args []any, r *rollup) ([]any, error) {
	return append(args, int64(1), int64(r.last), micros(r.detailed)), nil
}

func readRollup(row scanner) (r rollup, err error) {
	var one int64
	err = row.Scan(&one, &r.last, timeColumn{&r.detailed})

	return r, err
}

// snapshot lets a function read the database as it is at one moment.
func (s *Store) snapshot(ctx context.Context, read func(tx *dbsql.Tx, r rollup) error) error {
	tx, err := s.reports.BeginTx(ctx, &dbsql.TxOptions{Isolation: dbsql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		s.reports.failed(err)
		return s.failure("read the ledger", err)
	}

	defer func() { _ = tx.Rollback() }() // it only read

	missing := fault.New(fault.Internal, "no_rollup", "the store does not say what the totals of the ledger have")

	r, err := one(ctx, tx, "rollup", rollupTable.selects()+`WHERE one = 1`, nil, readRollup, missing)
	if err != nil {
		return s.failure("read the ledger", err)
	}

	return read(tx, r)
}

// RollUp adds postings that are not in the totals yet to them, and returns how many.
func (s *Store) RollUp(ctx context.Context, limit int) (int, error) {
	s.rolling.Lock()
	defer s.rolling.Unlock()

	var n int
	var next rollup
	var changed []*storedTotal

	err := s.snapshot(ctx, func(tx *dbsql.Tx, now rollup) error {
		sums := ledger.NewRollup()
		next = now

		postings, err := s.unrolled(ctx, tx, now.last, limit)
		if err != nil || len(postings) == 0 {
			return err
		}

		for i := range postings {
			sums.Add(&postings[i])
		}

		n, next.last = len(postings), postings[len(postings)-1].Seq
		changed, err = merge(ctx, tx, sums)

		return err
	})
	if err != nil || n == 0 {
		return 0, err
	}

	return n, s.alone(ctx, "roll up the ledger", put(totalTable, changed, totalRow),
		put(rollupTable, []*rollup{&next}, rollupRow))
}

// unrolled returns the next postings that are in no total, at most so many. All postings of an entry are among them or
// none: an entry is committed at once, so only a limit can part it.
func (s *Store) unrolled(ctx context.Context, tx *dbsql.Tx, last uint64, limit int) ([]ledger.Posting, error) {
	var list []ledger.Posting
	whole := 0 // postings of entries that are known to be complete

	err := stream(ctx, s, tx, "posting", postingTable.selects()+`WHERE seq > $1 ORDER BY seq LIMIT $2`,
		[]any{int64(last), int64(limit)}, readPosting, func(p *ledger.Posting) error {
			if len(list) > 0 && entryOf(p) != entryOf(&list[len(list)-1]) {
				whole = len(list)
			}

			list = append(list, *p)

			return nil
		})

	switch {
	case err != nil:
		return nil, err
	case len(list) < limit:
		return list, nil
	case whole == 0:
		return s.unrolled(ctx, tx, last, 2*limit)
	}

	return list[:whole], nil
}

// merge adds to sums what the totals have of them, and returns the new totals.
func merge(ctx context.Context, tx *dbsql.Tx, sums *ledger.Rollup) ([]*storedTotal, error) {
	var list []*storedTotal

	for _, t := range sums.Totals() {
		docs, err := collect(ctx, tx, "total",
			`SELECT doc FROM ledger_totals WHERE span = $1 AND kind = $2 AND start_at = $3`,
			[]any{string(t.Span), string(t.Of), micros(t.Start)}, readText)
		if err != nil {
			return nil, err
		}

		for _, doc := range docs {
			if err := sums.Merge(t, doc); err != nil {
				return nil, badRow(ctx, "total", err)
			}
		}

		list = append(list, &storedTotal{t, sums.Text(t)})
	}

	return list, nil
}

func readText(row scanner) (text string, err error) {
	err = row.Scan(&text)

	return text, err
}

// ForgetPostings deletes postings that are in totals, and totals of hours. That there are none of that time any more is
// recorded with the first of them, so that no report takes what is left for everything.
func (s *Store) ForgetPostings(ctx context.Context, before time.Time, limit int) (int, error) {
	s.rolling.Lock()
	defer s.rolling.Unlock()

	var next rollup
	var postings []int64
	var hours []ledger.Total
	recorded := true

	err := s.snapshot(ctx, func(tx *dbsql.Tx, now rollup) (err error) {
		next = now
		if now.detailed.Before(before) {
			next.detailed, recorded = before, false
		}

		postings, err = collect(ctx, tx, "posting",
			`SELECT seq FROM postings WHERE to_at < $1 AND seq + 0 <= $2 ORDER BY to_at LIMIT $3`,
			[]any{micros(before), int64(now.last), int64(limit)}, readNumber)
		if err != nil {
			return err
		}

		for _, of := range ledger.AllTotals() {
			starts, err := collect(ctx, tx, "total",
				`SELECT start_at FROM ledger_totals WHERE span = 'hour' AND kind = $1 AND start_at < $2 ORDER BY start_at LIMIT $3`,
				[]any{string(of), micros(before), int64(limit)}, readNumber)
			if err != nil {
				return err
			}

			for _, start := range starts {
				hours = append(hours, ledger.Total{Span: ledger.HourTotal, Of: of, Start: fromMicros(start)})
			}
		}

		return nil
	})
	if err != nil || recorded && len(postings)+len(hours) == 0 {
		return 0, err
	}

	return len(postings) + len(hours), s.alone(ctx, "delete postings", put(rollupTable, []*rollup{&next}, rollupRow),
		step{stmtKey{table: postingTable, remove: true}, len(postings), func(i int, args []any) ([]any, error) {
			return append(args, postings[i]), nil
		}},
		step{stmtKey{table: totalTable, remove: true}, len(hours), func(i int, args []any) ([]any, error) {
			return append(args, string(hours[i].Span), string(hours[i].Of), micros(hours[i].Start)), nil
		}})
}

// LedgerDetail returns since when there are postings.
func (s *Store) LedgerDetail(ctx context.Context) (since time.Time, err error) {
	err = s.snapshot(ctx, func(_ *dbsql.Tx, r rollup) error {
		since = r.detailed
		return nil
	})

	return since, err
}

// has fails if there is less than postings, or totals of hours, of a time from a moment on.
func (r *rollup) has(from time.Time) error {
	if !from.Before(r.detailed) {
		return nil
	}

	day := r.detailed.UTC().Format(time.DateOnly)

	return fault.New(fault.Invalid, "ledger_detail",
		"usage and savings before %s are kept by day, not by hour, job or run", day).
		WithField("from").
		WithRemedy("begin at %s or later; or begin and end at midnight UTC, and do not ask for hours, jobs or runs", day)
}

// totals yields what a period has: totals, pieces of postings at its ends, and postings that are in no total yet.
func (s *Store) totals(ctx context.Context, f *store.PostingFilter, yield func(*ledger.Posting) error) error {
	readers := []store.TotalsBeside{{Totals: f.Totals, ByHour: f.ByHour, Yield: yield}}
	if f.Beside != nil {
		readers = append(readers, *f.Beside)
	}

	return s.snapshot(ctx, func(tx *dbsql.Tx, r rollup) error {
		if f.Last > 0 && r.last > f.Last {
			return store.ErrLedgerAhead
		}

		for i := range readers {
			if err := s.wholeTotals(ctx, tx, f, &readers[i], r); err != nil {
				return err
			}
		}

		return s.outsideTotals(ctx, tx, f, r, func(p *ledger.Posting) error {
			for i := range readers {
				if err := readers[i].Yield(p); err != nil {
					return err
				}
			}

			return nil
		})
	})
}

// wholeTotals yields the totals of the whole hours and days of a period.
func (s *Store) wholeTotals(
	ctx context.Context, tx *dbsql.Tx, f *store.PostingFilter, to *store.TotalsBeside, r rollup,
) error {
	for _, piece := range ledger.Pieces(f.From, f.To, to.ByHour) {
		if piece.Span != ledger.DayTotal {
			if err := r.has(piece.From); err != nil {
				return err
			}
		}

		if piece.Span == "" {
			continue
		}

		if err := s.spanTotals(ctx, tx, to.Totals, piece, to.Yield); err != nil {
			return err
		}
	}

	return nil
}

// outsideTotals yields the postings of a period that are in no total of it: at its ends, and those that are new.
func (s *Store) outsideTotals(
	ctx context.Context, tx *dbsql.Tx, f *store.PostingFilter, r rollup, yield func(*ledger.Posting) error,
) error {
	for _, piece := range ledger.Pieces(f.From, f.To, f.ByHour) {
		if piece.Span != "" {
			continue
		}

		if err := s.cutPostings(ctx, tx, piece, r.last, yield); err != nil {
			return err
		}
	}

	var w where
	w.add("seq > ?", int64(r.last))
	w.add("to_at >= ?", micros(f.From))

	if !f.To.IsZero() {
		w.add("from_at < ?", micros(f.To))
	}

	return stream(ctx, s, tx, "posting", postingTable.selects()+w.conditions()+"ORDER BY seq", w.args, readPosting,
		func(p *ledger.Posting) error {
			if f.Last > 0 && p.Seq > f.Last {
				return nil
			}

			return yield(p)
		})
}

// spanTotals yields the totals of whole days or hours.
func (s *Store) spanTotals(
	ctx context.Context, tx *dbsql.Tx, of ledger.Totals, piece ledger.Piece, yield func(*ledger.Posting) error,
) error {
	var w where
	w.add("span = ?", string(piece.Span))
	w.add("kind = ?", string(of))
	w.add("start_at >= ?", micros(piece.From))

	if !piece.To.IsZero() {
		w.add("start_at < ?", micros(piece.To))
	}

	read := func(row scanner) (t storedTotal, err error) {
		err = row.Scan(timeColumn{&t.Start}, &t.text)
		t.Span, t.Of = piece.Span, of

		return t, err
	}

	return stream(ctx, s, tx, "total", "SELECT start_at, doc FROM ledger_totals "+w.conditions()+"ORDER BY start_at",
		w.args, read, func(t *storedTotal) error {
			if err := ledger.EachTotal(t.Total, t.text, yield); err != nil {
				return fmt.Errorf("add up totals: %w", err)
			}

			return nil
		})
}

// cutPostings yields what postings up to a number have of a part of an hour.
func (s *Store) cutPostings(
	ctx context.Context, tx *dbsql.Tx, piece ledger.Piece, last uint64, yield func(*ledger.Posting) error,
) error {
	var stopped error
	cut := ledger.NewCut(piece.From, piece.To, func(p *ledger.Posting) {
		if stopped == nil {
			stopped = yield(p)
		}
	})

	for _, period := range overlapping(piece.From, piece.To) {
		err := s.streamPostings(ctx, tx, period, func(p *ledger.Posting) error {
			if p.Seq <= last {
				cut.Add(p)
			}

			return stopped
		})
		if err != nil {
			return err
		}
	}

	cut.End()

	return stopped
}
