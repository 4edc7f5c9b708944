package sql

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/ledger"
	"trainyard/internal/store"
	"trainyard/internal/yardmaster"
)

// books makes up a ledger: entries of several nodes, in any order and of any length.
type books struct {
	t        *rapid.T
	list     []ledger.Posting
	detailed time.Time // before it the store has only totals of days
}

var bookStart = time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC)

func (b *books) pick(label string, words ...string) string {
	return rapid.SampledFrom(words).Draw(b.t, label)
}

// moment is often the border of an hour or of a day.
func (b *books) moment(label string) time.Time {
	at := bookStart.Add(time.Duration(rapid.IntRange(0, 5*24).Draw(b.t, label)) * time.Hour)
	if rapid.Bool().Draw(b.t, label+" within the hour") {
		at = at.Add(time.Duration(rapid.Int64Range(0, time.Hour.Milliseconds()).Draw(b.t, label+" ms")) * time.Millisecond)
	}

	return at
}

// entry adds an entry with its lines.
func (b *books) entry() {
	from := b.moment("from")
	lasts := time.Duration(rapid.Int64Range(0, time.Hour.Milliseconds()).Draw(b.t, "lasts")) * time.Millisecond
	if rapid.IntRange(0, 4).Draw(b.t, "long") == 0 {
		lasts = time.Duration(rapid.IntRange(1, 40).Draw(b.t, "hours")) * time.Hour
	}

	class := fleet.Class(b.pick("class", "local", "reserved", "ondemand"))
	node := id.Node(b.pick("node", "n1", "n2", "n\t3\\t"))
	amount := func(what string) int64 { return rapid.Int64Range(0, 5_000).Draw(b.t, what) }

	for range rapid.IntRange(1, 4).Draw(b.t, "lines") {
		b.list = append(b.list, ledger.Posting{
			Seq: uint64(len(b.list) + 1), Node: node, Class: class, GPU: b.pick("gpu", "", "A100"),
			Offer: b.pick("offer", "", "aws/p4/us"), Lease: id.Lease(b.pick("lease", "", "l1")), From: from, To: from.Add(lasts),
			Account: ledger.Account(b.pick("account", "use", "idle", "boot")), Owner: id.User(b.pick("owner", "", "ann", "bob")),
			Project: id.Project(b.pick("project", "", "vision")), Job: id.Job(b.pick("job", "", "j1", "j2")),
			Amounts: ledger.Amounts{
				NodeTime: ledger.Span(amount("node")), GPUTime: ledger.Span(amount("gpu time")),
				NodeCost: ledger.Nanos(amount("cost")), EnergyCost: ledger.Nanos(amount("energy cost")),
				Energy: ledger.Millijoules(amount("energy") + 1),
			},
		})
	}
}

func (b *books) period() (from, to time.Time) {
	if rapid.IntRange(0, 3).Draw(b.t, "has from") > 0 {
		from = b.moment("period from")
	}

	if rapid.IntRange(0, 3).Draw(b.t, "has to") > 0 {
		to = b.moment("period to")
	}

	if !to.IsZero() && to.Before(from) {
		from, to = to, from
	}

	return from, to
}

func (b *books) query() ledger.Query {
	var q ledger.Query
	q.From, q.To = b.period()
	q.Group = rapid.SliceOfNDistinct(rapid.SampledFrom(ledger.Keys()), 0, 3, rapid.ID[ledger.Key]).Draw(b.t, "group")

	for _, by := range []ledger.Filter{
		{Key: ledger.ByResearcher, Values: []string{"", "ann", "bob"}}, {Key: ledger.ByProject, Values: []string{"vision"}},
		{Key: ledger.ByJob, Values: []string{"j1", "j2"}}, {Key: ledger.ByNode, Values: []string{"n1"}},
	} {
		key, values := by.Key, by.Values
		if rapid.IntRange(0, 4).Draw(b.t, "filter by "+string(key)) == 0 {
			some := rapid.SliceOfNDistinct(rapid.SampledFrom(values), 1, 2, rapid.ID[string])
			q.Filter = append(q.Filter, ledger.Filter{Key: key, Values: some.Draw(b.t, string(key))})
		}
	}

	return q
}

// Whatever was added up and deleted and whatever is asked, the answer is what adding up all postings gives, to the last
// unit, or that the question cannot be answered any more.
func TestReportsFromTotalsAreThoseFromPostings(t *testing.T) {
	t.Parallel()
	onEngines(t, testReportsFromTotals)
}

func testReportsFromTotals(t engineTest) {
	s := writer(t, t.url, "server")

	rapid.Check(t.T, func(rt *rapid.T) {
		for _, statement := range []string{
			`DELETE FROM postings`, `DELETE FROM ledger_totals`, `UPDATE ledger_rollup SET last = 0, detailed_since = 0`,
		} {
			if _, err := s.write.ExecContext(t.Context(), statement); err != nil {
				rt.Fatal(err)
			}
		}

		b := &books{t: rt}
		for range rapid.IntRange(1, 4).Draw(rt, "commits") {
			b.commit(s)

			for range rapid.IntRange(0, 3).Draw(rt, "times it is rolled up") {
				if _, err := s.RollUp(t.Context(), rapid.IntRange(1, 20).Draw(rt, "at a time")); err != nil {
					rt.Fatal(err)
				}
			}

			b.forget(s)
		}

		for range 3 {
			b.compare(s, b.query())
		}
	})
}

// commit adds entries and stores them.
func (b *books) commit(s *Store) {
	n := len(b.list)
	for range rapid.IntRange(1, 10).Draw(b.t, "entries") {
		b.entry()
	}

	batch := &yardmaster.Batch{Ledger: ledger.Changes{Postings: b.list[n:]}}
	if err := s.Commit(b.t.Context(), batch); err != nil {
		b.t.Fatal(err)
	}
}

// forget deletes old postings, perhaps only some of those that it wants to delete.
func (b *books) forget(s *Store) {
	days := rapid.IntRange(-1, 6).Draw(b.t, "days to forget")
	if days < 0 {
		return
	}

	before := bookStart.AddDate(0, 0, days)
	if b.detailed.Before(before) {
		b.detailed = before
	}

	for range rapid.IntRange(1, 30).Draw(b.t, "times something is forgotten") {
		n, err := s.ForgetPostings(b.t.Context(), before, rapid.IntRange(1, 10).Draw(b.t, "at a time"))
		if err != nil {
			b.t.Fatal(err)
		}
		if n == 0 {
			return
		}
	}
}

// answerable reports whether totals of days are enough for what a query asks of the time before postings are kept.
func (b *books) answerable(q *ledger.Query) bool {
	if !q.From.Before(b.detailed) {
		return true
	}
	if q.Totals() == "" || slices.Contains(q.Group, ledger.ByHour) {
		return false
	}

	midnight := func(at time.Time) bool { return at.Equal(at.Truncate(24 * time.Hour)) }

	return midnight(q.From) && (q.To.IsZero() || !q.To.Before(b.detailed) || midnight(q.To))
}

// compare compares the answers to a query.
func (b *books) compare(s *Store, q ledger.Query) {
	want, err := ledger.NewSummary(q)
	if err != nil {
		b.t.Fatal(err)
	}

	for i := range b.list {
		want.Add(&b.list[i])
	}

	got, err := ledger.NewSummary(q)
	if err != nil {
		b.t.Fatal(err)
	}

	f := store.PostingFilter{
		From: q.From, To: q.To, Totals: q.Totals(), ByHour: slices.Contains(q.Group, ledger.ByHour), Cuts: got.Cuts,
	}

	for _, filter := range q.Filter {
		switch {
		case f.Totals != "" || slices.Contains(filter.Values, ""):
		case filter.Key == ledger.ByResearcher:
			f.Owners = []id.User{id.User(filter.Values[0]), id.User(filter.Values[len(filter.Values)-1])}
		case filter.Key == ledger.ByJob:
			f.Jobs = []id.Job{id.Job(filter.Values[0]), id.Job(filter.Values[len(filter.Values)-1])}
		}
	}

	err = s.Postings(b.t.Context(), f, func(p *ledger.Posting) error {
		got.Add(p)
		return nil
	})
	var fail *fault.Error
	refused := errors.As(err, &fail) && fail.Code == "ledger_detail"
	empty := !q.To.IsZero() && q.From.Equal(q.To)

	switch {
	case refused && (empty || !b.answerable(&q)):
		return
	case err != nil:
		b.t.Fatal(err)
	case !empty && !b.answerable(&q):
		b.t.Fatalf("%+v is answered, and only totals of days are left before %v", q, b.detailed)
	}

	if diff := cmp.Diff(report(b.t, want), report(b.t, got)); diff != "" {
		b.t.Errorf("%+v (-postings +%s):\n%s", q, f.Totals, diff)
	}
}

func report(t *rapid.T, s *ledger.Summary) []string {
	r, err := s.Report()
	if err != nil {
		t.Fatal(err)
	}

	lines := []string{fmt.Sprint("total ", r.Total)}
	for _, row := range r.Rows {
		lines = append(lines, fmt.Sprintf("%q %v", row.Keys, row.Amounts))
	}

	return lines
}

// Reports read on connections of their own: with all of them taken, others are answered.
func TestQueriesDoNotWaitForReports(t *testing.T) {
	t.Parallel()
	onEngines(t, func(t engineTest) {
		s := writer(t, t.url, "server")
		b := batchOf(1)
		b.Ledger.Postings = []ledger.Posting{{Seq: 1, Node: "n1", From: bookStart, To: bookStart.Add(time.Hour)}}
		if err := s.Commit(t.Context(), b); err != nil {
			t.Fatal(err)
		}

		reading, stop := make(chan struct{}, sqliteReaders), make(chan struct{})
		var reports sync.WaitGroup
		for range sqliteReaders {
			reports.Go(func() {
				err := s.Postings(t.Context(), store.PostingFilter{}, func(*ledger.Posting) error {
					reading <- struct{}{}

					<-stop

					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}

		for range reportReaders {
			<-reading
		}

		if _, err := s.Job(t.Context(), "j1"); err != nil {
			t.Error(err)
		}

		if n := s.read.Stats().InUse; n != 0 {
			t.Errorf("reports hold %d connections of queries", n)
		}

		close(stop)
		reports.Wait()
	})
}
