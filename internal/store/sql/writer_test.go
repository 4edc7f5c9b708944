package sql

import (
	"context"
	dbsql "database/sql"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgconn"

	"trainyard/internal/fault"
	"trainyard/internal/store"
	"trainyard/internal/yardmaster"
)

// writer opens a store and leads.
func writer(tb testing.TB, url, name string) *Store {
	tb.Helper()
	s := open(tb, url)
	if _, err := s.Lead(tb.Context(), candidate(name, time.Minute)); err != nil {
		tb.Fatal(err)
	}

	return s
}

func candidate(name string, lease time.Duration) store.Candidate {
	return store.Candidate{Server: store.Server{Name: name, Address: "https://" + name}, Lease: lease}
}

func batchOf(numbers ...uint64) *yardmaster.Batch {
	b := &yardmaster.Batch{}
	for _, n := range numbers {
		submission(b, n)
	}

	return b
}

func wantKind(tb testing.TB, err error, kind fault.Kind, code string) {
	tb.Helper()
	var got *fault.Error
	if !errors.As(err, &got) || got.Kind != kind || got.Code != code {
		tb.Errorf("error = %v, want one of kind %s with code %s", err, kind, code)
	}
}

func TestFullDatabaseIsUnavailableAndRecovers(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "yard.db")
	s := writer(t, path, "server")
	if _, err := s.write.ExecContext(t.Context(), `PRAGMA max_page_count = 40`); err != nil {
		t.Fatal(err)
	}

	b := &yardmaster.Batch{}
	for n := range uint64(500) {
		submission(b, n+1)
	}

	err := s.Commit(t.Context(), b)
	wantKind(t, err, fault.Unavailable, "no_space")

	if !strings.Contains(err.Error(), "no space left on the disk that holds "+path) {
		t.Errorf("error = %v", err)
	}

	if _, err := s.write.ExecContext(t.Context(), `PRAGMA max_page_count = 100000`); err != nil {
		t.Fatal(err)
	}

	if _, err := s.Job(t.Context(), "j1"); fault.KindOf(err) != fault.NotFound {
		t.Errorf("error = %v, want nothing of the failed commit", err)
	}

	if err := s.Commit(t.Context(), b); err != nil {
		t.Errorf("commit after room was made: %v", err)
	}

	if !full(&pgconn.PgError{Code: "53100"}) || full(&pgconn.PgError{Code: "53300"}) {
		t.Error("PostgreSQL without disk space is not told from one without connections")
	}
}

func TestReadOnlyDatabaseIsUnavailable(t *testing.T) {
	t.Parallel()
	onEngines(t, func(t engineTest) {
		s := writer(t, t.url, "server")

		// Each connection that writes is put into the mode it would have on a read-only disk or a standby.
		s.write.SetMaxOpenConns(1)

		statement := map[string]string{"sqlite": `PRAGMA query_only = 1`, "postgres": `SET default_transaction_read_only = on`}[s.engine.name()]
		if _, err := s.write.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}

		err := s.Commit(t.Context(), batchOf(1))
		wantKind(t, err, fault.Unavailable, "store_unavailable")

		if errors.Unwrap(err) == nil {
			t.Error("the error has no cause for the log")
		}

		wantKind(t, s.Ping(t.Context()), fault.Unavailable, "store_unavailable")
	})
}

func TestClosedStoreIsUnavailable(t *testing.T) {
	t.Parallel()
	onEngines(t, func(t engineTest) {
		s := writer(t, t.url, "server")
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}

		wantKind(t, s.Ping(t.Context()), fault.Unavailable, "store_unavailable")
		_, err := s.Load(t.Context(), time.Time{})
		wantKind(t, err, fault.Unavailable, "store_unavailable")
		_, err = s.Job(t.Context(), "j1")
		wantKind(t, err, fault.Unavailable, "store_unavailable")
	})
}

func TestCloseWaitsForAPing(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "yard.db"))
	s.timeouts.Commit = time.Hour
	s.pinging <- struct{}{} // as a Ping does that writes in the background

	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()

	select {
	case <-closed:
		t.Fatal("the store was closed during a Ping")
	case <-time.After(100 * time.Millisecond): // it waits
	}

	<-s.pinging

	if err := <-closed; err != nil {
		t.Error(err)
	}

	// One that hangs is not waited for.
	s = open(t, filepath.Join(t.TempDir(), "yard.db"))
	s.timeouts.Commit = time.Millisecond
	s.pinging <- struct{}{}

	if err := s.Close(); err != nil {
		t.Error(err)
	}

	<-s.pinging
}

func TestHungStoreDoesNotPassForReady(t *testing.T) {
	t.Parallel()
	onEngines(t, func(t engineTest) {
		s, other := open(t, t.url), open(t, t.url)

		// Another holds what Ping must write, and lets it go only after Ping has answered.
		tx, err := other.write.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}

		if _, err := tx.ExecContext(t.Context(), `UPDATE pings SET count = count + 1`); err != nil {
			t.Fatal(err)
		}

		if s.engine.name() == "sqlite" {
			// So that nothing but Ping itself can end the wait.
			if _, err := s.write.ExecContext(t.Context(), `PRAGMA busy_timeout = 3600000`); err != nil {
				t.Fatal(err)
			}
		}

		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()

		wantKind(t, s.Ping(ctx), fault.Unavailable, "store_unavailable")
		wantKind(t, s.Ping(ctx), fault.Unavailable, "store_unavailable")

		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}

		if err := s.Ping(t.Context()); err != nil {
			t.Errorf("ping after the store answers again: %v", err)
		}
	})
}

func TestCommitGoesOnAfterConnectionsBroke(t *testing.T) {
	t.Parallel()
	s := writer(t, engines()["postgres"](t), "server")
	if err := s.Commit(t.Context(), batchOf(1)); err != nil {
		t.Fatal(err)
	}

	if _, err := s.read.ExecContext(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE datname = current_database() AND pid <> pg_backend_pid()`); err != nil {
		t.Fatal(err)
	}

	// It may fail once for each broken connection, and then it must go through.
	var err error
	for range postgresWriters + 1 {
		if err = s.Commit(t.Context(), batchOf(2)); err == nil {
			break
		}

		wantKind(t, err, fault.Unavailable, "store_unavailable")
	}

	if err != nil {
		t.Fatal(err)
	}

	if _, err := s.Job(t.Context(), "j2"); err != nil {
		t.Error(err)
	}
}

// A copy of the files of an open store is what is left after a crash.
func TestCopyOfOpenFilesHoldsEveryCommit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := writer(t, filepath.Join(dir, "yard.db"), "server")
	for n := range uint64(20) {
		if err := s.Commit(t.Context(), batchOf(n+1)); err != nil {
			t.Fatal(err)
		}

		after := filepath.Join(t.TempDir(), "yard.db")
		for _, suffix := range []string{"", "-wal"} { // the index of the log is made anew
			copyFile(t, filepath.Join(dir, "yard.db"+suffix), after+suffix)
		}

		state, err := open(t, after).Load(t.Context(), time.Time{})
		if err != nil {
			t.Fatal(err)
		}

		if len(state.Jobs) != int(n+1) || state.LastEvent != n+1 {
			t.Fatalf("after commit %d the copy holds %d jobs and %d events", n+1, len(state.Jobs), state.LastEvent)
		}
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}

	defer func() { _ = in.Close() }() // it was only read

	out, err := os.Create(to)
	if err != nil {
		t.Fatal(err)
	}

	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}

	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestFileIsForItsOwnerOnly(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "new", "yard.db")
	s := writer(t, path, "server")
	if err := s.Commit(t.Context(), batchOf(1)); err != nil {
		t.Fatal(err)
	}

	for _, suffix := range []string{"", "-wal", "-shm", ".lock"} {
		info, err := os.Stat(path + suffix)
		if err != nil {
			t.Fatal(err)
		}

		if got := info.Mode().Perm(); got != 0o600 {
			t.Errorf("mode of the file with suffix %q = %o, want 600", suffix, got)
		}
	}
}

func TestSQLiteWritesToTheDiskBeforeItAnswers(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "yard.db"))
	for pragma, want := range map[string]string{"synchronous": "2", "journal_mode": "wal"} {
		var got string
		if err := s.write.QueryRowContext(t.Context(), "PRAGMA "+pragma).Scan(&got); err != nil {
			t.Fatal(err)
		}

		if got != want {
			t.Errorf("%s = %s, want %s", pragma, got, want)
		}
	}
}

func TestAddressIsChecked(t *testing.T) {
	t.Parallel()

	for _, url := range []string{"", "sqlite://", "mysql://host/db", "postgres://host:notaport/db"} {
		_, err := Open(t.Context(), url, Options{})
		wantKind(t, err, fault.Invalid, "store_url")
	}

	_, err := Open(t.Context(), "postgres:///yard?host=/nowhere", Options{})
	wantKind(t, err, fault.Unavailable, "store_unavailable")
}

// What is asked at every start and for every page must not look at all jobs.
func TestQueriesUseTheirIndexes(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "yard.db"))
	for query, want := range map[string]string{
		jobTable.selects() + liveJobs:                 "SEARCH jobs USING INDEX jobs_cause (state=?)",
		jobTable.selects() + endedJobs:                "SEARCH jobs USING INDEX jobs_ended (ended>?)",
		runTable.selects() + `WHERE state <> 'ended'`: "SCAN runs USING INDEX runs_live",
		keyQuery:                      "SEARCH jobs USING COVERING INDEX jobs_key (owner=? AND idem_key=?)",
		`SELECT MAX(num) FROM jobs`:   "SEARCH jobs",
		`SELECT MAX(seq) FROM events`: "SEARCH events",
	} {
		if diff := cmp.Diff(want, queryPlan(t, s.read.DB, query)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", query, diff)
		}
	}
}

func queryPlan(t *testing.T, db *dbsql.DB, query string, args ...any) string {
	t.Helper()

	for len(args) < strings.Count(query, "$") {
		args = append(args, "x")
	}

	plan, err := collect(t.Context(), db, "plan", "EXPLAIN QUERY PLAN "+query, args, func(row scanner) (string, error) {
		var number, parent, unused int
		var detail string
		err := row.Scan(&number, &parent, &unused, &detail)

		return detail, err
	})
	if err != nil {
		t.Fatal(err)
	}

	return strings.Join(plan, "\n")
}
