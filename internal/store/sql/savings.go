package sql

import (
	"context"
	dbsql "database/sql"
	"time"

	"trainyard/internal/ledger"
	"trainyard/internal/store"
)

// Savings yields the savings by decisions in a period, in order of time. Each is in a total or is a row of its own.
func (s *Store) Savings(ctx context.Context, f store.SavingFilter, yield func(*ledger.Saving) error) error {
	return s.snapshot(ctx, func(tx *dbsql.Tx, r rollup) error {
		if f.From.Before(r.detailed) {
			if !f.Totals || !ledger.DaysDo(f.From, f.To, r.detailed) {
				return r.has(f.From)
			}
			if err := s.savingTotals(ctx, tx, &f, yield); err != nil {
				return err
			}
		}

		var w where
		w.add("at >= ?", micros(f.From))

		if !f.To.IsZero() {
			w.add("at < ?", micros(f.To))
		}

		w.addAll(payersOf(f.Jobs, f.Projects, f.Owners))

		return stream(ctx, s, tx, "saving", savingTable.selects()+w.conditions()+"ORDER BY at, seq", w.args, readSaving,
			yield)
	})
}

// savingTotals yields the totals of savings of a period.
func (s *Store) savingTotals(
	ctx context.Context, tx *dbsql.Tx, f *store.SavingFilter, yield func(*ledger.Saving) error,
) error {
	var w where
	w.add("kind = ?", string(store.SavingsDocument))
	w.add("at >= ?", micros(f.From))

	if !f.To.IsZero() {
		w.add("at < ?", micros(f.To))
	}

	return stream(ctx, s, tx, "document", documentTable.selects()+w.conditions()+"ORDER BY at", w.args, readDocument,
		func(d *store.Document) error { return ledger.EachSavingTotal(d.Text, yield) })
}

// ForgetSavings adds old savings up to totals of their days and deletes them. That is recorded with the first of them,
// as it is for postings.
func (s *Store) ForgetSavings(ctx context.Context, before time.Time, limit int) (int, error) {
	s.rolling.Lock()
	defer s.rolling.Unlock()

	var next rollup
	var list []ledger.Saving
	var totals []*store.Document
	recorded := true

	err := s.snapshot(ctx, func(tx *dbsql.Tx, now rollup) (err error) {
		next = now
		if now.detailed.Before(before) {
			next.detailed, recorded = before, false
		}

		// The next one is numbered after the newest.
		list, err = collect(ctx, tx, "saving",
			savingTable.selects()+`WHERE at < $1 AND seq < (SELECT MAX(seq) FROM savings) ORDER BY at LIMIT $2`,
			[]any{micros(before), int64(limit)}, readSaving)
		if err != nil {
			return err
		}

		totals, err = addSavings(ctx, tx, list)

		return err
	})
	if err != nil || recorded && len(list) == 0 {
		return 0, err
	}

	return len(list), s.alone(ctx, "delete savings", put(rollupTable, []*rollup{&next}, rollupRow),
		put(documentTable, totals, documentRow),
		step{stmtKey{table: savingTable, remove: true}, len(list), func(i int, args []any) ([]any, error) {
			return append(args, int64(list[i].Seq)), nil
		}})
}

// addSavings returns the totals of days with these savings, which are in order of time.
func addSavings(ctx context.Context, tx *dbsql.Tx, list []ledger.Saving) ([]*store.Document, error) {
	var totals []*store.Document

	for len(list) > 0 {
		day, n := list[0].Day(), 1
		for n < len(list) && list[n].Day().Equal(day) {
			n++
		}

		total := &store.Document{Kind: store.SavingsDocument, ID: day.Format(time.DateOnly), At: day}

		found, err := collect(ctx, tx, "document", documentTable.selects()+`WHERE kind = $1 AND id = $2`,
			[]any{string(total.Kind), total.ID}, readDocument)
		if err != nil {
			return nil, err
		}

		if len(found) > 0 {
			total.Text = found[0].Text
		}

		total.Text, err = ledger.AddSavings(total.Text, list[:n])
		if err != nil {
			return nil, badRow(ctx, "document", err)
		}

		totals = append(totals, total)
		list = list[n:]
	}

	return totals, nil
}
