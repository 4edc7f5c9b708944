package demo_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"trainyard/internal/blob"
	"trainyard/internal/clock"
	"trainyard/internal/id"
	"trainyard/internal/inbox"
	"trainyard/internal/job"
	"trainyard/internal/ledger"
	"trainyard/internal/logs/archive"
	"trainyard/internal/place/catalogue"
	"trainyard/internal/sim/demo"
	"trainyard/internal/store"
	sqlstore "trainyard/internal/store/sql"
)

// end is when the months of the tests end: in the afternoon of a working day.
var end = time.Date(2026, 6, 17, 15, 30, 0, 0, time.UTC)

// newMonth makes a month, or a shorter one, in a store of its own.
func newMonth(t *testing.T, length time.Duration) *sqlstore.Store {
	t.Helper()
	folder := t.TempDir()
	log := slog.New(slog.DiscardHandler)

	st, err := sqlstore.Open(t.Context(), filepath.Join(folder, "yard.db"), sqlstore.Options{Log: log})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})

	if _, err := st.Lead(t.Context(), store.Candidate{Server: store.Server{Name: "test"}}); err != nil {
		t.Fatal(err)
	}

	blobs, err := blob.OpenDir(filepath.Join(folder, "blobs"))
	if err != nil {
		t.Fatal(err)
	}

	logs, err := archive.Open(filepath.Join(folder, "logs"), blobs, clock.Wall{})
	if err != nil {
		t.Fatal(err)
	}

	policy, err := catalogue.All(nil).Make("rules")
	if err != nil {
		t.Fatal(err)
	}

	began := time.Now()

	err = demo.Make(t.Context(), demo.Options{
		Store: st, Logs: logs, Policy: policy(), End: end, Length: length, Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}

	t.Logf("%s took %s", length, time.Since(began))

	return st
}

func jobsOf(t *testing.T, st *sqlstore.Store) []job.Job {
	t.Helper()

	jobs, err := st.Jobs(t.Context(), store.JobFilter{Limit: 100_000})
	if err != nil {
		t.Fatal(err)
	}

	return jobs
}

func TestAMonthHasWhatPagesShow(t *testing.T) {
	t.Parallel()
	st := newMonth(t, 5*24*time.Hour)
	jobs := jobsOf(t, st)

	t.Run("jobs in every state", func(t *testing.T) {
		t.Parallel()

		count := map[job.State]int{}
		mine := map[job.State]int{}

		for i := range jobs {
			count[jobs[i].State]++
			if jobs[i].Owner == demo.You {
				mine[jobs[i].State]++
			}
		}

		for _, s := range []job.State{job.Running, job.Pending, job.Paused, job.Succeeded, job.Failed, job.Cancelled} {
			if count[s] == 0 {
				t.Errorf("no job is %s: %v", s, count)
			}
		}

		for _, s := range []job.State{job.Running, job.Pending, job.Paused, job.Succeeded} {
			if mine[s] == 0 {
				t.Errorf("none of your jobs is %s: %v", s, mine)
			}
		}
	})

	t.Run("questions to answer", func(t *testing.T) {
		t.Parallel()

		open, err := st.Questions(t.Context(), store.QuestionFilter{
			Owner: demo.You, States: []inbox.State{inbox.Open}, Limit: 100,
		})
		if err != nil {
			t.Fatal(err)
		}

		kinds := map[inbox.Kind]bool{}
		for i := range open {
			kinds[open[i].Kind] = true
		}

		if !kinds[inbox.OutOfMemory] || !kinds[inbox.OverBudget] {
			t.Errorf("the open questions are of the kinds %v, want %s and %s", kinds, inbox.OutOfMemory, inbox.OverBudget)
		}
	})

	t.Run("curves, forecasts, use and history", func(t *testing.T) {
		t.Parallel()

		for _, kind := range []store.DocumentKind{
			store.CurveDocument, store.ForecastDocument, store.PastDocument, store.UseDocument,
		} {
			docs, err := st.Documents(t.Context(), store.DocumentFilter{Kind: kind, Limit: 1000})
			if err != nil {
				t.Fatal(err)
			}

			if len(docs) < 3 {
				t.Errorf("there are %d documents of kind %s", len(docs), kind)
			}
		}
	})

	t.Run("events", func(t *testing.T) { t.Parallel(); checkEvents(t, st) })
	t.Run("GPUs have one run at a time", func(t *testing.T) { t.Parallel(); checkGPUs(t, st, jobs) })
	t.Run("totals are the sum of postings", func(t *testing.T) { t.Parallel(); checkLedger(t, st, jobs) })
}

// checkEvents looks for events that pages show.
func checkEvents(t *testing.T, st *sqlstore.Store) {
	t.Helper()

	events, err := st.Events(t.Context(), store.EventFilter{Limit: 100_000})
	if err != nil {
		t.Fatal(err)
	}

	kinds := map[string]int{}
	for i := range events {
		kinds[events[i].Kind]++
	}

	for _, kind := range []string{
		"job.submitted", "job.starting", "checkpoint.stored", "gpu.error", "lease.active", "inbox.asked", "access.refused",
		"quota.set", "node.joined",
	} {
		if kinds[kind] == 0 {
			t.Errorf("no event is %s: %v", kind, kinds)
		}
	}
}

// checkGPUs holds the runs of all jobs against each other.
func checkGPUs(t *testing.T, st *sqlstore.Store, jobs []job.Job) {
	t.Helper()

	type stretch struct {
		run      id.Run
		from, to time.Time
	}

	uses := map[string][]stretch{}

	for i := range jobs {
		runs, err := st.Runs(t.Context(), jobs[i].ID)
		if err != nil {
			t.Fatal(err)
		}

		for _, r := range runs {
			for _, k := range r.Ranks {
				for _, g := range k.GPUs {
					to := k.Ended
					if to.IsZero() {
						to = end
					}

					gpu := fmt.Sprint(k.Node, "/", g)
					uses[gpu] = append(uses[gpu], stretch{r.ID, r.Ordered, to})
				}
			}
		}
	}

	if len(uses) < 15 {
		t.Errorf("only %d GPUs were ever used", len(uses))
	}

	for gpu, list := range uses {
		slices.SortFunc(list, func(a, b stretch) int { return a.from.Compare(b.from) })

		for i := 1; i < len(list); i++ {
			if list[i].from.Before(list[i-1].to) {
				t.Errorf("%s has %s and %s at the same time", gpu, list[i-1].run, list[i].run)
			}
		}
	}
}

// checkLedger adds the postings up in three ways.
func checkLedger(t *testing.T, st *sqlstore.Store, jobs []job.Job) {
	t.Helper()

	sum := func(totals ledger.Totals) (cost ledger.Nanos, byJob map[id.Job]ledger.Nanos) {
		byJob = map[id.Job]ledger.Nanos{}

		err := st.Postings(t.Context(), store.PostingFilter{Totals: totals}, func(p *ledger.Posting) error {
			cost += p.Cost()
			byJob[p.Job] += p.Cost()

			return nil
		})
		if err != nil {
			t.Fatal(err)
		}

		return cost, byJob
	}

	all, byJob := sum("")
	if all <= 0 {
		t.Fatal("nothing was paid")
	}

	for _, totals := range ledger.AllTotals() {
		if got, _ := sum(totals); got != all {
			t.Errorf("the totals by %s are %d, the postings %d", totals, got, all)
		}
	}

	paid := 0
	for i := range jobs {
		if jobs[i].State.Final() && byJob[jobs[i].ID] > 0 {
			paid++
		}
	}

	if paid < 10 {
		t.Errorf("only %d jobs that ended were paid for", paid)
	}
}

func TestTheSameMonthAgain(t *testing.T) {
	t.Parallel()

	story := func() string {
		st := newMonth(t, 20*time.Hour)

		events, err := st.Events(context.WithoutCancel(t.Context()), store.EventFilter{Limit: 100_000})
		if err != nil {
			t.Fatal(err)
		}

		text := &strings.Builder{}
		for i := range events {
			e := &events[i]
			fmt.Fprintln(text, e.Seq, e.At, e.Kind, e.Actor, e.Job, e.Node, e.Reason)
		}

		return text.String()
	}

	first, again := story(), story()
	if first != again {
		a, b := strings.Split(first, "\n"), strings.Split(again, "\n")
		for i := range min(len(a), len(b)) {
			if a[i] != b[i] {
				t.Fatalf("event %d differs:\n%s\n%s", i, a[i], b[i])
			}
		}

		t.Fatalf("one month has %d events, the other %d", len(a), len(b))
	}
}
