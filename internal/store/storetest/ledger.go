package storetest

import (
	"errors"
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
		{"postings that overlap a period are listed in their order", handsOutPostings},
		{"a meter that was closed is gone", closesMeters},
		{"decisions that are settled are gone", removesSettledDecisions},
		{"a notice that was withdrawn is gone", forgetsNotices},
		{"savings are found by time", findsSavings},
	}
}

// postings returns the lines of a period.
func (h *harness) postings(s store.Store, from, to time.Time) []ledger.Posting {
	h.Helper()
	var list []ledger.Posting
	h.must(s.Postings(h.context(), from, to, func(p *ledger.Posting) error {
		list = append(list, *p)
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
	if err := s.Postings(
		h.context(),
		time.Time{},
		time.Time{},
		func(*ledger.Posting) error { return enough },
	); !errors.Is(err, enough) {
		h.Errorf("error = %v, want the caller's", err)
	}

	h.same("last", h.load(s, time.Time{}).Ledger.LastPosting, uint64(5))
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
	s := h.with(&yardmaster.Batch{Ledger: ledger.Changes{Savings: []ledger.Saving{early, late}}})
	got, err := s.Savings(h.context(), dayOne.Add(time.Minute), time.Time{})
	h.must(err)
	h.same("late", got, []ledger.Saving{late})
	got, err = s.Savings(h.context(), time.Time{}, dayOne.Add(time.Minute))
	h.must(err)
	h.same("early", got, []ledger.Saving{early})
}
