package storetest

import (
	"errors"
	"slices"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/ledger"
	"trainyard/internal/quota"
	"trainyard/internal/store"
	"trainyard/internal/yardmaster"
)

func ledgerTests() []contract {
	return []contract{
		{"leases are listed newest first and by what is asked for", listsLeases},
		{"ended leases are loaded for a while", loadsEndedLeases},
		{"postings that overlap a period are listed by their ends", handsOutPostings},
		{"postings of payers come with their entries where those are cut", findsPostingsOfPayers},
		{"totals stand for postings, also while they are added up", totalsStandForPostings},
		{"a meter that was closed is gone", closesMeters},
		{"decisions that are settled are gone", removesSettledDecisions},
		{"a notice that was withdrawn is gone", forgetsNotices},
		{"savings are found by time and by who pays", findsSavings},
	}
}

// postings returns the lines of a period.
func (h *harness) postings(s store.Store, from, to time.Time) []ledger.Posting {
	h.Helper()
	var list []ledger.Posting
	h.must(s.Postings(h.context(), store.PostingFilter{From: from, To: to}, func(p *ledger.Posting) error {
		list = append(list, *p)
		return nil
	}))

	return list
}

// seqs returns the numbers of the postings that a filter lets through.
func (h *harness) seqs(s store.Store, f store.PostingFilter) []uint64 {
	h.Helper()
	var list []uint64
	h.must(s.Postings(h.context(), f, func(p *ledger.Posting) error {
		list = append(list, p.Seq)
		return nil
	}))

	return list
}

func listsLeases(h *harness) {
	old := sampleLease(1, fleet.LeaseEnded)
	live := sampleLease(2, fleet.LeaseActive)
	other := sampleLease(12, fleet.LeaseRequested)
	old.Requested, old.Ended = dayOne, dayOne.Add(time.Hour)
	live.Requested, live.Ended, live.Owner = dayOne.Add(2*time.Hour), time.Time{}, "ada"
	other.Requested, other.Ended, other.Job = dayOne.Add(3*time.Hour), time.Time{}, "j9"
	s := h.with(&yardmaster.Batch{Leases: []fleet.Lease{old, live, other}})
	for name, tc := range map[string]struct {
		filter store.LeaseFilter
		want   []id.Lease
	}{
		"all":          {store.LeaseFilter{Limit: 10}, []id.Lease{"l12", "l2", "l1"}},
		"a page":       {store.LeaseFilter{Before: 12, Limit: 1}, []id.Lease{"l2"}},
		"live":         {store.LeaseFilter{Live: true, Limit: 10}, []id.Lease{"l12", "l2"}},
		"of an owner":  {store.LeaseFilter{Owner: "ada", Limit: 10}, []id.Lease{"l2"}},
		"of a project": {store.LeaseFilter{Project: live.Project, Limit: 10}, []id.Lease{"l2"}},
		"of a job":     {store.LeaseFilter{Job: "j9", Limit: 10}, []id.Lease{"l12"}},
		"of a period": {store.LeaseFilter{From: dayOne.Add(90 * time.Minute), To: dayOne.Add(150 * time.Minute), Limit: 10},
			[]id.Lease{"l2"}},
	} {
		leases, err := s.Leases(h.context(), tc.filter)
		h.must(err)

		var got []id.Lease
		for _, l := range leases {
			got = append(got, l.ID)
		}

		h.same(name, got, tc.want)
	}

	got, err := s.Lease(h.context(), "l2")
	h.must(err)
	h.same("one", got, live)
	_, err = s.Lease(h.context(), "l99")
	h.fails(err, fault.NotFound, "lease_not_found")

	_, err = s.Leases(h.context(), store.LeaseFilter{})
	if err == nil {
		h.Error("a list without a limit was answered")
	}
}

func loadsEndedLeases(h *harness) {
	gone, late := sampleLease(1, fleet.LeaseEnded), sampleLease(2, fleet.LeaseRefused)
	gone.Ended, late.Ended = dayOne, dayOne.Add(48*time.Hour)
	s := h.with(&yardmaster.Batch{Leases: []fleet.Lease{gone, late}})
	state := h.load(s, dayOne.Add(49*time.Hour))
	h.same("leases", state.Leases, []fleet.Lease{late})
	h.same("last", state.LastLease, uint64(2))
}

func handsOutPostings(h *harness) {
	var b yardmaster.Batch
	for n := range uint64(5) {
		b.Ledger.Postings = append(b.Ledger.Postings, samplePosting(n+1))
	}

	s := h.with(&b)
	at := func(hours int) time.Time { return dayOne.Truncate(time.Hour).Add(time.Duration(hours) * time.Hour) }
	h.same("middle", h.postings(s, at(2).Add(time.Minute), at(4)), b.Ledger.Postings[1:3])
	h.same("from", h.postings(s, at(4).Add(time.Minute), time.Time{}), b.Ledger.Postings[3:])

	enough := errors.New("enough")
	stop := func(*ledger.Posting) error { return enough }
	if err := s.Postings(h.context(), store.PostingFilter{}, stop); !errors.Is(err, enough) {
		h.Errorf("error = %v, want the caller's", err)
	}

	// One of many hours, as after a time without a server, overlaps a period long before its end.
	long := samplePosting(6)
	long.From, long.To = at(3), at(30)
	h.must(s.Commit(h.context(), &yardmaster.Batch{Ledger: ledger.Changes{Postings: []ledger.Posting{long}}}))
	h.same("a long one", h.seqs(s, store.PostingFilter{From: at(4).Add(time.Minute), To: at(5)}), []uint64{4, 6})
	h.same("before the long one", h.seqs(s, store.PostingFilter{From: at(2).Add(time.Minute), To: at(3)}), []uint64{2})
	h.same("up to a number", h.seqs(s, store.PostingFilter{From: at(4).Add(time.Minute), Last: 4}), []uint64{4})

	h.same("last", h.load(s, time.Time{}).Ledger.LastPosting, uint64(6))
}

func findsPostingsOfPayers(h *harness) {
	hour := func(n uint64, node id.Node, hours int, owner id.User) ledger.Posting {
		p := samplePosting(n)
		p.Node, p.Owner, p.Project, p.Job = node, owner, "", ""
		p.From = dayOne.Truncate(time.Hour).Add(time.Duration(hours) * time.Hour)
		p.To = p.From.Add(time.Hour)

		return p
	}

	b := yardmaster.Batch{Ledger: ledger.Changes{Postings: []ledger.Posting{
		hour(1, "gpu-1", 1, "ada"), hour(2, "gpu-1", 1, ""), hour(3, "gpu-2", 1, "bob"),
		hour(4, "gpu-1", 2, "ada"), hour(5, "gpu-1", 2, "bob"), hour(6, "gpu-2", 2, "bob"),
	}}}
	b.Ledger.Postings[3].Project, b.Ledger.Postings[4].Job = "vision", "j7"
	s := h.with(&b)

	from := dayOne.Truncate(time.Hour).Add(90 * time.Minute)
	cuts := func(p *ledger.Posting) bool { return p.From.Before(from) }
	ada, bob := []id.User{"ada"}, []id.User{"bob"}

	for name, tc := range map[string]struct {
		filter store.PostingFilter
		want   []uint64
	}{
		"an owner":                     {store.PostingFilter{Owners: ada}, []uint64{1, 4}},
		"two owners":                   {store.PostingFilter{Owners: []id.User{"ada", "bob"}}, []uint64{1, 3, 4, 5, 6}},
		"a project":                    {store.PostingFilter{Projects: []id.Project{"vision"}}, []uint64{4}},
		"a job":                        {store.PostingFilter{Jobs: []id.Job{"j7"}}, []uint64{5}},
		"a job of another owner":       {store.PostingFilter{Jobs: []id.Job{"j7"}, Owners: ada}, nil},
		"an owner in a period":         {store.PostingFilter{Owners: bob, From: from.Add(time.Hour)}, []uint64{5, 6}},
		"an owner whose hours are cut": {store.PostingFilter{Owners: ada, From: from, Cuts: cuts}, []uint64{4, 1, 2}},
		"all, of which some are cut":   {store.PostingFilter{From: from, Cuts: cuts}, []uint64{1, 2, 3, 4, 5, 6}},
	} {
		h.same(name, h.seqs(s, tc.filter), tc.want)
	}
}

// totalsStandForPostings adds some postings up, and then the others.
func totalsStandForPostings(h *harness) {
	var b yardmaster.Batch
	for n := range uint64(40) {
		b.Ledger.Postings = append(b.Ledger.Postings, samplePosting(n+1))
	}

	// Two nodes share their hours, so that their entries are of two postings.
	for i := range b.Ledger.Postings {
		p := &b.Ledger.Postings[i]
		p.From = dayOne.Truncate(time.Hour).Add(time.Duration(i/2) * time.Hour)
		p.To, p.Node, p.Owner = p.From.Add(time.Hour), "gpu-1", []id.User{"ada", "bob"}[i%2]
	}

	s := h.with(&b)
	from, to := dayOne.Add(20*time.Minute), dayOne.Add(15*time.Hour+50*time.Minute)

	check := func(rolled int) {
		h.Helper()

		n, err := s.RollUp(h.context(), 15)
		h.must(err)
		h.same("rolled up", n, rolled)

		for _, keys := range [][]ledger.Key{
			{ledger.ByResearcher}, {ledger.ByNode}, {ledger.ByProject, ledger.ByHour}, {ledger.ByDay, ledger.ByAccount}, nil,
		} {
			q := ledger.Query{From: from, To: to, Group: keys}
			h.same("sums", h.sum(s, q, q.Totals()), h.sum(s, q, ""))

			h.same("sums beside others", h.sumBeside(s, q), h.sum(s, q, ""))

			all := ledger.Query{Group: keys}
			h.same("sums of all", h.sum(s, all, all.Totals()), h.sum(s, all, ""))
		}
	}

	check(14) // an entry is never parted
	check(14)
	check(12)
	check(0)

	late := samplePosting(41)
	late.From, late.To = dayOne.Add(time.Hour), dayOne.Add(5*time.Hour)
	h.must(s.Commit(h.context(), &yardmaster.Batch{Ledger: ledger.Changes{Postings: []ledger.Posting{late}}}))
	check(1) // it came late, into hours whose totals were there

	err := s.Postings(h.context(), store.PostingFilter{Totals: ledger.NodeTotals, Last: 40},
		func(*ledger.Posting) error { return nil })
	if !errors.Is(err, store.ErrLedgerAhead) {
		h.Errorf("error = %v: the totals have a later posting", err)
	}

	h.same("last", h.load(s, time.Time{}).Ledger.LastPosting, uint64(41))
}

// sum answers a query from totals, or from postings ("").
func (h *harness) sum(s store.Store, q ledger.Query, of ledger.Totals) *ledger.Report {
	h.Helper()
	sum, err := ledger.NewSummary(q)
	h.must(err)

	f := store.PostingFilter{From: q.From, To: q.To, Totals: of, ByHour: slices.Contains(q.Group, ledger.ByHour)}
	h.must(s.Postings(h.context(), f, func(p *ledger.Posting) error {
		sum.Add(p)
		return nil
	}))

	r, err := sum.Report()
	h.must(err)

	return r
}

// sumBeside answers a query from totals, beside another that asks for totals of the other kind.
func (h *harness) sumBeside(s store.Store, q ledger.Query) *ledger.Report {
	h.Helper()
	other := ledger.Query{From: q.From, To: q.To, Group: []ledger.Key{ledger.ByClass}}
	of := ledger.NodeTotals
	if q.Totals() == of {
		of = ledger.PayerTotals
	}

	sum, err := ledger.NewSummary(q)
	h.must(err)
	beside, err := ledger.NewSummary(other)
	h.must(err)

	adds := func(s *ledger.Summary) func(*ledger.Posting) error {
		return func(p *ledger.Posting) error {
			s.Add(p)
			return nil
		}
	}

	f := store.PostingFilter{
		From: q.From, To: q.To, Totals: of, Beside: &store.TotalsBeside{
			Totals: q.Totals(), ByHour: slices.Contains(q.Group, ledger.ByHour), Yield: adds(sum),
		},
	}
	h.must(s.Postings(h.context(), f, adds(beside)))

	got, err := beside.Report()
	h.must(err)
	h.same("the other", got, h.sum(s, other, ""))

	r, err := sum.Report()
	h.must(err)

	return r
}

func closesMeters(h *harness) {
	m := full[ledger.State](1)
	s := h.with(&yardmaster.Batch{Ledger: ledger.Changes{Meters: []ledger.State{m}}})
	h.same("meters", h.load(s, time.Time{}).Ledger.Meters, []ledger.State{m})
	h.must(s.Commit(h.context(), &yardmaster.Batch{Ledger: ledger.Changes{Closed: []id.Node{m.Node}}}))
	h.same("meters", len(h.load(s, time.Time{}).Ledger.Meters), 0)
}

func removesSettledDecisions(h *harness) {
	d := full[ledger.JobDecisions](1)
	s := h.with(&yardmaster.Batch{Ledger: ledger.Changes{Decisions: []ledger.JobDecisions{d}}})
	h.same("decisions", h.load(s, time.Time{}).Ledger.Decisions, []ledger.JobDecisions{d})
	h.must(s.Commit(h.context(), &yardmaster.Batch{Ledger: ledger.Changes{Settled: []id.Job{d.Job}}}))
	h.same("decisions", len(h.load(s, time.Time{}).Ledger.Decisions), 0)
}

func forgetsNotices(h *harness) {
	b := yardmaster.Batch{Notices: []quota.Notice{full[quota.Notice](1)}}
	s := h.with(&yardmaster.Batch{Notices: b.Notices})
	t := b.Notices[0]
	t.Near = false
	t.UsedUp = false
	t.Forecast = false
	t.Held = false
	b.Notices[0] = t
	h.must(s.Commit(h.context(), &yardmaster.Batch{Notices: b.Notices}))
	h.same("told", len(h.load(s, time.Time{}).Notices), 0)
}

func findsSavings(h *harness) {
	early, late := full[ledger.Saving](1), full[ledger.Saving](2)
	early.Seq, early.At, late.Seq, late.At = 1, dayOne, 2, dayOne.Add(time.Hour)
	early.Owner, late.Owner, late.Project, late.Job = "ada", "bob", "text", "j9"
	early.Decisions, late.Decisions = 0, 0
	s := h.with(&yardmaster.Batch{Ledger: ledger.Changes{Savings: []ledger.Saving{early, late}}})

	for name, tc := range map[string]struct {
		filter store.SavingFilter
		want   []ledger.Saving
	}{
		"all":          {store.SavingFilter{}, []ledger.Saving{early, late}},
		"late":         {store.SavingFilter{From: dayOne.Add(time.Minute)}, []ledger.Saving{late}},
		"early":        {store.SavingFilter{To: dayOne.Add(time.Minute)}, []ledger.Saving{early}},
		"of an owner":  {store.SavingFilter{Owners: []id.User{"ada"}}, []ledger.Saving{early}},
		"of a project": {store.SavingFilter{Projects: []id.Project{"text"}}, []ledger.Saving{late}},
		"of a job":     {store.SavingFilter{Jobs: []id.Job{"j9"}, Owners: []id.User{"ada", "bob"}}, []ledger.Saving{late}},
		"of nobody":    {store.SavingFilter{Owners: []id.User{"eve"}}, nil},
	} {
		var got []ledger.Saving
		h.must(s.Savings(h.context(), tc.filter, func(x *ledger.Saving) error {
			got = append(got, *x)
			return nil
		}))
		h.same(name, got, tc.want)
	}
}
