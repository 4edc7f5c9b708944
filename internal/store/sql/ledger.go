package sql

import (
	"context"
	dbsql "database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"trainyard/internal/dataset"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/ledger"
	"trainyard/internal/queue"
	"trainyard/internal/quota"
	"trainyard/internal/share"
	"trainyard/internal/store"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// ledgerChanges is the combined effect of several batches on the ledger and on the small records.
type ledgerChanges struct {
	leases   []*fleet.Lease
	postings []*ledger.Posting
	savings  []*ledger.Saving
	uses     []*dataset.Use
	records  []*record
	removed  []*record // to be deleted
}

type recordKey struct{ kind, id string }

func foldLedger(batches []*yardmaster.Batch) (ledgerChanges, error) {
	leases := newest[id.Lease, fleet.Lease]{}
	postings, savings := newest[uint64, ledger.Posting]{}, newest[uint64, ledger.Saving]{}
	uses := newest[dataset.Use, dataset.Use]{}
	records, removed := newest[recordKey, record]{}, newest[recordKey, record]{}
	var failed error
	put := func(kind, id string, seq uint64, value any) {
		r, err := recordOf(kind, id, seq, value)
		if err != nil {
			failed = errors.Join(failed, err)
			return
		}

		records.put(recordKey{kind, id}, 0, r)
		removed.drop(recordKey{kind, id})
	}

	remove := func(kind, id string) {
		records.drop(recordKey{kind, id})
		removed.put(recordKey{kind, id}, 0, &record{kind: kind, id: id})
	}

	for _, b := range batches {
		for i := range b.Leases {
			leases.put(b.Leases[i].ID, b.Leases[i].Seq, &b.Leases[i])
		}

		for i := range b.Uses {
			u := &b.Uses[i]
			uses.put(dataset.Use{Dataset: u.Dataset, Run: u.Run, Node: u.Node}, 0, u)
		}

		for _, d := range b.Datasets {
			put(datasetKind, string(d.ID), d.Seq, d)
		}

		for _, l := range b.Quotas {
			put(quotaKind, l.Subject.String(), l.Seq, l)
		}

		for _, p := range b.Projects {
			put(projectKind, string(p.ID), p.Seq, p)
		}

		for _, m := range b.Members {
			put(memberKind, string(m.Project)+"/"+string(m.User), m.Seq, m)
		}

		for i := range b.Secrets {
			s := &b.Secrets[i]
			if s.Removed {
				remove(secretKind, s.Path())
				continue
			}

			put(secretKind, s.Path(), s.Seq, s)
		}

		for i := range b.Channels {
			c := &b.Channels[i]
			if c.Removed {
				remove(channelKind, c.Path())
				continue
			}

			put(channelKind, c.Path(), c.Seq, c)
		}

		for i := range b.Schedules {
			put(scheduleKind, string(b.Schedules[i].ID), b.Schedules[i].Seq, &b.Schedules[i])
		}

		for i := range b.Reservations {
			put(reservationKind, string(b.Reservations[i].ID), b.Reservations[i].Seq, &b.Reservations[i])
		}

		for _, s := range b.Shares {
			put(shareKind, string(s.Project), s.Seq, s)
		}

		for i := range b.Observed {
			put(observedKind, string(b.Observed[i].Job), 0, &b.Observed[i])
		}

		for _, j := range b.ObservedForgotten {
			remove(observedKind, string(j))
		}

		for i := range b.Shortages {
			put(shortageKind, b.Shortages[i].Key, 0, &b.Shortages[i])
		}

		for _, key := range b.ShortagesForgotten {
			remove(shortageKind, key)
		}

		for i := range b.Beside {
			put(besideKind, b.Beside[i].Key(), 0, &b.Beside[i])
		}

		for _, key := range b.BesideForgotten {
			remove(besideKind, key)
		}

		o := &b.Ledger
		for i := range o.Postings {
			postings.put(o.Postings[i].Seq, 0, &o.Postings[i])
		}

		for i := range o.Savings {
			savings.put(o.Savings[i].Seq, 0, &o.Savings[i])
		}

		for _, n := range o.Closed {
			remove(meterKind, string(n))
		}

		for _, j := range o.Settled {
			remove(decisionKind, string(j))
		}

		for i := range o.Decisions {
			put(decisionKind, string(o.Decisions[i].Job), 0, &o.Decisions[i])
		}

		for _, m := range o.Meters {
			put(meterKind, string(m.Node), 0, m)
		}

		for _, t := range b.Usage {
			put(usageKind, t.Subject.String()+"/"+string(t.Period), 0, t)
		}

		for _, t := range b.Notices {
			key := t.Subject.String() + "/" + string(t.Measure) + "/" + string(t.Job)
			if !t.Sent() {
				remove(noticeKind, key)
				continue
			}

			put(noticeKind, key, 0, t)
		}
	}

	return ledgerChanges{
		leases:   leases.rows(),
		postings: postings.rows(),
		savings:  savings.rows(),
		uses:     uses.rows(),
		records:  records.rows(),
		removed:  removed.rows(),
	}, failed
}

// steps returns the statements that write the changes.
func (c *ledgerChanges) steps() []step {
	return []step{
		put(leaseTable, c.leases, leaseRow),
		put(postingTable, c.postings, postingRow),
		put(savingTable, c.savings, savingRow),
		put(useTable, c.uses, useRow),
		put(recordTable, c.records, recordRow),
		{stmtKey{table: recordTable, remove: true}, len(c.removed), func(i int, args []any) ([]any, error) {
			return append(args, c.removed[i].kind, clean(c.removed[i].id)), nil
		}},
	}
}

// lastPosting finds the greatest number of a posting: of those that are there, and of those that are in the totals.
const lastPosting = `SELECT MAX(last) FROM
	(SELECT MAX(seq) AS last FROM postings UNION ALL SELECT last FROM ledger_rollup) AS lasts`

// loadLedger reads leases, datasets, usage and the ledger. Leases that ended before since are left out.
func loadLedger(ctx context.Context, tx *dbsql.Tx, state *yardmaster.State, since time.Time) error {
	var err error

	state.Leases, err = collect(
		ctx,
		tx,
		"lease",
		leaseTable.selects()+`WHERE ended = 0 OR ended >= $1 ORDER BY num`,
		[]any{micros(since)},
		readLease,
	)
	if err != nil {
		return err
	}

	records, err := collect(ctx, tx, "record", recordTable.selects()+`ORDER BY kind, id`, nil, readRecord)
	if err != nil {
		return err
	}

	for i := range records {
		if err := loadRecord(state, &records[i]); err != nil {
			return badRow(ctx, records[i].kind, err)
		}
	}

	for query, into := range map[string]*uint64{
		`SELECT MAX(num) FROM leases`:  &state.LastLease,
		lastPosting:                    &state.Ledger.LastPosting,
		`SELECT MAX(seq) FROM savings`: &state.Ledger.LastSaving,
	} {
		*into, err = greatest(ctx, tx, query)
		if err != nil {
			return err
		}
	}

	return nil
}

func loadRecord(state *yardmaster.State, r *record) error {
	switch r.kind {
	case datasetKind:
		return appendDoc(&state.Datasets, r)
	case quotaKind:
		return appendDoc(&state.Quotas, r)
	case projectKind:
		return appendDoc(&state.Projects, r)
	case memberKind:
		return appendDoc(&state.Members, r)
	case meterKind:
		return appendDoc(&state.Ledger.Meters, r)
	case decisionKind:
		return appendDoc(&state.Ledger.Decisions, r)
	case usageKind:
		return appendDoc(&state.Usage, r)
	case noticeKind:
		return appendDoc(&state.Notices, r)
	case shareKind:
		return appendDoc(&state.Shares, r)
	case observedKind:
		return appendDoc(&state.Observed, r)
	case shortageKind:
		return appendDoc(&state.Shortages, r)
	case besideKind:
		return appendDoc(&state.Beside, r)
	case secretKind:
		return appendDoc(&state.Secrets, r)
	case channelKind:
		return appendDoc(&state.Channels, r)
	case scheduleKind:
		return appendDoc(&state.Schedules, r)
	case reservationKind:
		return appendDoc(&state.Reservations, r)
	}

	return fmt.Errorf("unknown ledger document %q", r.kind)
}

// document is what is stored as one JSON text.
type document interface {
	dataset.Dataset | tenant.Quota | tenant.Project | tenant.Member | ledger.State | ledger.JobDecisions |
		quota.Usage | quota.Notice | queue.Share | job.Observed | job.Shortage | tenant.Secret | tenant.Channel |
		job.Schedule | fleet.Reservation | share.Record
}

func appendDoc[T document](list *[]T, r *record) error {
	var value T
	if err := json.Unmarshal([]byte(r.doc), &value); err != nil {
		return fmt.Errorf("decode %s %s: %w", r.kind, r.id, err)
	}

	*list = append(*list, value)

	return nil
}

// Members lists the members of all projects, by project and name.
func (s *Store) Members(ctx context.Context) ([]tenant.Member, error) {
	records, err := collect(ctx, s.read, "record", recordTable.selects()+`WHERE kind = $1 ORDER BY id`,
		[]any{memberKind}, readRecord)
	if err != nil {
		return nil, err
	}

	var members []tenant.Member
	for i := range records {
		if err := appendDoc(&members, &records[i]); err != nil {
			return nil, badRow(ctx, memberKind, err)
		}
	}

	return members, nil
}

// Leases lists leases, newest first.
func (s *Store) Leases(ctx context.Context, f store.LeaseFilter) ([]fleet.Lease, error) {
	var w where
	if f.Owner != "" {
		w.add("owner = ?", clean(string(f.Owner)))
	}

	if f.Project != "" {
		w.add("project = ?", clean(string(f.Project)))
	}

	if f.Job != "" {
		w.add("job = ?", clean(string(f.Job)))
	}

	if f.Live {
		w.add("ended = ?", int64(0))
	}

	if !f.From.IsZero() {
		w.add("(ended = 0 OR ended >= ?)", micros(f.From))
	}

	if !f.To.IsZero() {
		w.add("requested < ?", micros(f.To))
	}

	if f.Before > 0 {
		w.add("num < ?", int64(f.Before))
	}

	query, err := w.query(leaseTable.selects(), "num DESC", f.Limit)
	if err != nil {
		return nil, err
	}

	return collect(ctx, s.read, "lease", query, w.args, readLease)
}

// Lease returns one lease.
func (s *Store) Lease(ctx context.Context, l id.Lease) (fleet.Lease, error) {
	missing := fault.New(fault.NotFound, "lease_not_found", "there is no lease %s", l)
	num, ok := l.Number()
	if !ok || int64(num) < 0 {
		return fleet.Lease{}, missing
	}

	return one(ctx, s.read, "lease", leaseTable.selects()+`WHERE num = $1`, []any{int64(num)}, readLease, missing)
}

// Uses returns the uses of a dataset, in order of time.
func (s *Store) Uses(ctx context.Context, d id.Dataset, limit int) ([]dataset.Use, error) {
	var w where
	w.add("dataset = ?", clean(string(d)))

	query, err := w.query(useTable.selects(), "at DESC, run DESC, node DESC", limit)
	if err != nil {
		return nil, err
	}

	return collect(ctx, s.read, "use", query, w.args, readUse)
}
