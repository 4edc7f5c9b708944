package history

import (
	dbsql "database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"trainyard/internal/clock"
	"trainyard/internal/job"
	"trainyard/internal/store"
	sqlstore "trainyard/internal/store/sql"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// With a million jobs the whole span times the number of a job is more than a duration holds: all of them seemed to
// have ended 90 days back.
func TestEndedJobsAreSpreadOverTheWholeSpan(t *testing.T) {
	t.Parallel()

	for _, n := range []int{1, 7, 2_000, 1_000_000} {
		step := Span / time.Duration(n)

		for _, i := range []int{0, n / 3, n / 2, n - 1} {
			want := now.Add(-Span + time.Duration(float64(Span)*float64(i)/float64(n)))
			if got := EndOf(now, i, n); got.Sub(want).Abs() > time.Second {
				t.Errorf("job %d of %d ended at %s, want %s", i, n, got, want)
			}
		}

		if last := EndOf(now, n-1, n); last.After(now) || now.Sub(last) > step+time.Second {
			t.Errorf("the last of %d jobs ended at %s, want within %s before %s", n, last, step, now)
		}
	}
}

func TestAFilledStoreHasWhatItShould(t *testing.T) {
	t.Parallel()

	size := Size{Finished: 120, Queued: 30}
	path := filepath.Join(t.TempDir(), "yard.db")

	if err := Fill(t.Context(), clock.Wall{}, path, size); err != nil {
		t.Fatal(err)
	}

	db, err := dbsql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}

	defer func() { _ = db.Close() }()

	for query, want := range map[string]int{
		`SELECT COUNT(*) FROM jobs WHERE state IN ('succeeded', 'failed')`:                     120,
		`SELECT COUNT(*) FROM jobs WHERE state = 'failed'`:                                     6,
		`SELECT COUNT(*) FROM jobs WHERE state = 'pending'`:                                    30,
		`SELECT COUNT(*) FROM runs`:                                                            120,
		`SELECT COUNT(*) FROM events`:                                                          3*120 + 30 + 1,
		`SELECT COUNT(*) FROM events WHERE kind = '` + RareKind + `'`:                          1,
		`SELECT SUM(to_at - from_at) / 60000000 FROM postings`:                                 120 * 45,
		`SELECT COUNT(DISTINCT run) FROM postings`:                                             120,
		`SELECT COUNT(*) FROM savings`:                                                         12,
		`SELECT COUNT(*) FROM postings, ledger_rollup WHERE seq > last`:                        0,
		`SELECT COUNT(*) FROM postings WHERE from_at / 3600000000 <> (to_at - 1) / 3600000000`: 0,
		`SELECT COUNT(*) FROM users`:                                                           100,
		`SELECT COUNT(DISTINCT ended) FROM jobs WHERE ended > 0`:                               120,
	} {
		var got int
		if err := db.QueryRowContext(t.Context(), query).Scan(&got); err != nil || got != want {
			t.Errorf("%s = %d, %v; want %d", query, got, err, want)
		}
	}
}

func TestAStoreIsFilledOnceAndTheOldestGo(t *testing.T) {
	t.Parallel()

	notes := &strings.Builder{}
	c := Cache{Dir: t.TempDir(), Clock: clock.Wall{}, Notes: notes}
	fillings := func() int { return strings.Count(notes.String(), "filled in") }

	first, err := c.Store(t.Context(), Size{Finished: 1, Queued: 1})
	if err != nil {
		t.Fatal(err)
	}

	same, err := c.Store(t.Context(), Size{Finished: 1, Queued: 1})
	if err != nil || same != first || fillings() != 1 {
		t.Errorf("second call = %+v, %v after %d fillings; want the first, %+v", same, err, fillings(), first)
	}

	// What was used just now stays, whenever it was made.
	for n := 2; n <= 1+maxKept; n++ {
		last, err := c.Store(t.Context(), Size{Finished: n, Queued: 1})
		if err != nil {
			t.Fatal(err)
		}

		old := now.Add(time.Duration(n) * time.Hour)
		if err := os.Chtimes(filepath.Dir(last.Path), old, old); err != nil {
			t.Fatal(err)
		}
	}

	left, err := os.ReadDir(c.Dir)
	if err != nil || len(left) != maxKept {
		t.Errorf("%d stores are left (%v), want %d", len(left), err, maxKept)
	}

	if again, err := c.Store(t.Context(), Size{Finished: 1, Queued: 1}); err != nil || again != first {
		t.Errorf("the store that was used last = %+v, %v; want %+v", again, err, first)
	}

	if got := queuedOf(t, first.Path); got != 1 {
		t.Errorf("%d jobs are queued, want 1", got)
	}
}

// queuedOf opens a store as a server does.
func queuedOf(t *testing.T, path string) int {
	t.Helper()

	st, err := sqlstore.Open(t.Context(), path, sqlstore.Options{Clock: clock.Wall{}})
	if err != nil {
		t.Fatal(err)
	}

	defer func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	}()

	jobs, err := st.Jobs(t.Context(), store.JobFilter{States: []job.State{job.Pending}, Limit: 10})
	if err != nil {
		t.Fatal(err)
	}

	return len(jobs)
}
