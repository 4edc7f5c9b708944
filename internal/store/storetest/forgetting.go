package storetest

import (
	"time"

	"trainyard/internal/checkpoint"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/inbox"
	"trainyard/internal/job"
	"trainyard/internal/ledger"
	"trainyard/internal/store"
	"trainyard/internal/yardmaster"
)

func forgetting() []contract {
	return []contract{
		{"a job is forgotten with all that is its own", forgetsJobs},
		{"events are forgotten", forgetsEvents},
		{"postings are forgotten, and the totals of their days stay", forgetsPostings},
		{"savings are forgotten, and the totals of their days stay", forgetsSavings},
		{"only the leader forgets", refusesToForget},
	}
}

func forgetsJobs(h *harness) {
	q := sampleQuestion("j1", 1, inbox.Open)
	b := &yardmaster.Batch{
		Jobs:        []job.Job{sampleJob(1, job.Succeeded), sampleJob(2, job.Failed)},
		Runs:        []job.Run{sampleRun("j1", 1, job.RunEnded, "n1"), sampleRun("j1", 2, job.RunEnded, "n1")},
		Checkpoints: []checkpoint.Checkpoint{sampleCheckpoint("j1", 1, checkpoint.Removed)},
		Questions:   []inbox.Question{q},
	}
	s := h.with(b)

	forgotten, kept := b.Jobs[0].ID, b.Jobs[1].ID
	docs := []store.Document{
		document(store.CurveDocument, string(forgotten)+"/loss", 1, "a"),
		document(store.CurveDocument, string(kept)+"/loss", 1, "b"),
		document(store.ForecastDocument, string(forgotten), 1, "c"),
		document(store.PastDocument, string(forgotten), 1, "d"),
	}
	h.must(s.Keep(h.context(), docs...))
	h.must(s.ForgetJobs(h.context(), forgotten))
	h.must(s.ForgetJobs(h.context(), forgotten, "j999")) // one that is not there is ignored

	_, err := s.Job(h.context(), forgotten)
	h.fails(err, fault.NotFound, "job_not_found")

	_, err = s.Question(h.context(), q.ID)
	h.fails(err, fault.NotFound, "question_not_found")

	runs, err := s.Runs(h.context(), forgotten)
	h.must(err)
	h.same("runs", len(runs), 0)

	saved, err := s.Checkpoints(h.context(), store.CheckpointFilter{Job: forgotten, Removed: true, Limit: 10})
	h.must(err)
	h.same("checkpoints", len(saved), 0)

	left, err := s.Jobs(h.context(), store.JobFilter{Limit: 100})
	h.must(err)
	h.same("jobs that are left", len(left), len(b.Jobs)-1)

	for _, kind := range []store.DocumentKind{store.CurveDocument, store.ForecastDocument, store.PastDocument} {
		var want []string
		if kind == store.CurveDocument {
			want = []string{string(kept) + "/loss"}
		}
		if kind == store.PastDocument {
			want = []string{string(forgotten)}
		}

		h.same("documents of kind "+string(kind), h.ids(s, store.DocumentFilter{Kind: kind, Limit: 10}), want)
	}
}

func forgetsEvents(h *harness) {
	b := &yardmaster.Batch{}
	for seq := range uint64(5) {
		b.Events = append(b.Events, yardmaster.Event{Seq: seq + 1, At: time.Unix(int64(seq), 0).UTC(), Kind: "job.submitted"})
	}

	s := h.with(b)
	h.must(s.ForgetEvents(h.context(), 1, 3))

	events, err := s.Events(h.context(), store.EventFilter{Limit: 10})
	h.must(err)

	var seqs []uint64
	for i := range events {
		seqs = append(seqs, events[i].Seq)
	}

	h.same("events that are left", seqs, []uint64{2, 4, 5})
	h.same("the last event", h.load(s, time.Time{}).LastEvent, uint64(5))
}

func refusesToForget(h *harness) {
	s := h.store()
	h.refused(s.ForgetJobs(h.context(), id.Job("j1")))
	h.refused(s.ForgetEvents(h.context(), 1))

	_, err := s.ForgetPostings(h.context(), dayOne, 1)
	h.refused(err)

	_, err = s.ForgetSavings(h.context(), dayOne, 1)
	h.refused(err)
}

func forgetsSavings(h *harness) {
	var b yardmaster.Batch
	day := dayOne.Truncate(24 * time.Hour)
	for n := range uint64(60) {
		b.Ledger.Savings = append(b.Ledger.Savings, ledger.Saving{
			Seq: n + 1, At: day.Add(time.Duration(n) * time.Hour), Job: id.NewJob(n + 1),
			Owner:   id.User([]string{"ada", "bob"}[n%2]),
			Project: id.Project([]string{"", "text", "vision"}[n%3]), Kind: []string{"waiting", "move"}[n/10%2],
			Money: ledger.Nanos(n) - 7, Time: ledger.Span(1000 - n*n), Reason: "because",
		})
	}

	border := day.Add(48 * time.Hour)
	s := h.with(&b)

	queries := map[string]ledger.Query{
		"all":        {Group: []ledger.Key{ledger.ByKind}},
		"by day":     {From: day, To: border, Group: []ledger.Key{ledger.ByDay, ledger.ByResearcher, ledger.ByProject}},
		"one day":    {From: day.Add(24 * time.Hour), To: border},
		"up to now":  {From: day, To: border.Add(90 * time.Minute), Group: []ledger.Key{ledger.ByMonth}},
		"of bob":     {Filter: []ledger.Filter{{Key: ledger.ByResearcher, Values: []string{"bob"}}}},
		"moves":      {Filter: []ledger.Filter{{Key: ledger.ByKind, Values: []string{"move"}}}},
		"later jobs": {From: border, Group: []ledger.Key{ledger.ByJob, ledger.ByHour}},
	}

	want := map[string]*ledger.SavingsReport{}
	for name, q := range queries {
		want[name] = h.saved(s, q)
	}

	for left := 48; left > 0; { // and whatever is deleted, it is the same
		n, err := s.ForgetSavings(h.context(), border, 7)
		h.must(err)
		h.same("forgotten", n, min(left, 7))
		left -= n

		for name, q := range queries {
			h.same(name, h.saved(s, q), want[name])
		}
	}

	n, err := s.ForgetSavings(h.context(), border, 7)
	h.must(err)
	h.same("forgotten when none is left", n, 0)

	for name, f := range map[string]store.SavingFilter{
		"jobs":          {From: day, To: border},
		"all jobs":      {},
		"part of a day": {From: day.Add(time.Hour), Totals: true},
		"part of one":   {From: day, To: day.Add(time.Hour), Totals: true},
	} {
		err := s.Savings(h.context(), f, func(*ledger.Saving) error { return nil })
		if err == nil {
			h.Errorf("savings of %s of a time of which there are only days were answered", name)
			continue
		}

		h.fails(err, fault.Invalid, "ledger_detail")
	}

	// The newest stays, so that numbers go on.
	_, err = s.ForgetSavings(h.context(), border.Add(30*24*time.Hour), 100)
	h.must(err)
	h.same("all in the end", h.saved(s, queries["all"]), want["all"])
	h.same("last", h.load(s, time.Time{}).Ledger.LastSaving, uint64(60))
}

// saved is what a store answers to a query about savings.
func (h *harness) saved(s store.Store, q ledger.Query) *ledger.SavingsReport {
	h.Helper()
	sum, err := ledger.NewSavingsSummary(q, 100)
	h.must(err)

	f := store.SavingFilter{From: q.From, To: q.To, Totals: q.SavingTotalsDo()}
	h.must(s.Savings(h.context(), f, func(x *ledger.Saving) error {
		sum.Add(x)
		return nil
	}))

	return sum.Report()
}

func forgetsPostings(h *harness) {
	var b yardmaster.Batch
	day := dayOne.Truncate(24 * time.Hour)
	for n := range uint64(60) {
		p := samplePosting(n + 1)
		p.From = day.Add(time.Duration(n) * time.Hour)
		p.To = p.From.Add(time.Hour)
		b.Ledger.Postings = append(b.Ledger.Postings, p)
	}

	border := day.Add(48 * time.Hour)
	b.Ledger.Postings[5].To = border.Add(90 * time.Minute)              // partly after it
	b.Ledger.Postings[6].From, b.Ledger.Postings[6].To = border, border // without duration, after it
	s := h.with(&b)

	n, err := s.RollUp(h.context(), 40) // the others are in no total, so that they stay
	h.must(err)
	h.same("rolled up", n, 39)

	all := ledger.Query{Group: []ledger.Key{ledger.ByDay, ledger.ByNode}}
	days := ledger.Query{From: day, To: border, Group: []ledger.Key{ledger.ByResearcher, ledger.ByWeek}}
	recent := ledger.Query{From: border, Group: []ledger.Key{ledger.ByJob}}
	wantAll, wantDays, wantRecent := h.sum(s, all, ""), h.sum(s, days, ""), h.sum(s, recent, "")

	total := 0
	for {
		n, err := s.ForgetPostings(h.context(), border, 10)
		h.must(err)

		if n == 0 {
			break
		}

		total += n
	}

	h.same("forgotten postings and totals", total, 37+2*48)
	h.same("those that are left", len(h.postings(s, border, time.Time{})), 60-47+2)

	since, err := s.LedgerDetail(h.context())
	h.must(err)
	h.same("since when there are postings", since, border)
	h.same("all", h.sum(s, all, all.Totals()), wantAll)
	h.same("days", h.sum(s, days, days.Totals()), wantDays)
	h.same("later", h.sum(s, recent, ""), wantRecent)

	for name, f := range map[string]store.PostingFilter{
		"hours":           {From: day, To: border, Totals: ledger.NodeTotals, ByHour: true},
		"part of a day":   {From: day.Add(time.Hour), Totals: ledger.NodeTotals},
		"part of an hour": {From: day, To: day.Add(90 * time.Minute), Totals: ledger.NodeTotals},
		"jobs":            {From: day, To: border},
		"all jobs":        {},
	} {
		err := s.Postings(h.context(), f, func(*ledger.Posting) error { return nil })
		if err == nil {
			h.Errorf("%s of a time of which there are only days were answered", name)
			continue
		}

		h.fails(err, fault.Invalid, "ledger_detail")
	}

	_, err = s.RollUp(h.context(), 100)
	h.must(err)
	h.same("all, after the rest was added up", h.sum(s, all, all.Totals()), wantAll)
	h.same("last", h.load(s, time.Time{}).Ledger.LastPosting, uint64(60))
}
