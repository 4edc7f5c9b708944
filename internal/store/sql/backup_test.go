package sql

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/fault"
	"trainyard/internal/ledger"
	"trainyard/internal/store"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// A backup has one form, whatever it is of, and can be put back into either store.
func TestABackupOfEitherStoreIsPutBackIntoEither(t *testing.T) {
	t.Parallel()
	onEngines(t, func(from engineTest) {
		file := filepath.Join(from.TempDir(), "backup")
		s := writer(from, from.url, "server-1")
		if err := s.Commit(from.Context(), batchOf(1)); err != nil {
			from.Fatal(err)
		}

		if err := Backup(from.Context(), from.url, file); err != nil {
			from.Fatal(err)
		}

		if err := s.Commit(from.Context(), batchOf(2)); err != nil {
			from.Errorf("commit after a backup: %v", err)
		}

		wantKind(from.T, Backup(from.Context(), from.url, file), fault.Conflict, "file_exists")

		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			from.Errorf("the backup is %v, %v; want it to be private", info, err)
		}

		before, err := s.Load(from.Context(), time.Time{})
		if err != nil {
			from.Fatal(err)
		}

		for name, newURL := range engines() {
			from.Run("into "+name, func(t *testing.T) {
				url := newURL(t)
				former := Former{Keep: filepath.Join(t.TempDir(), "kept.db"), Lease: time.Minute}
				if kept, err := PutBack(t.Context(), url, file, former); err != nil || kept != "" {
					t.Fatalf("kept %q, %v", kept, err)
				}

				state, err := open(t, url).Load(t.Context(), time.Time{})
				if err != nil || state.LastJob != 1 || len(state.Jobs) != 1 {
					t.Fatalf("the last job is %d of %d, %v; want that of the backup", state.LastJob, len(state.Jobs), err)
				}

				if diff := cmp.Diff(before.Jobs[0], state.Jobs[0]); diff != "" {
					t.Errorf("the job (-want +got):\n%s", diff)
				}
			})
		}
	})
}

func TestTheFormerDatabaseIsKeptAndOneInUseIsNotReplaced(t *testing.T) {
	t.Parallel()
	onEngines(t, func(t engineTest) {
		dir := t.TempDir()
		file := filepath.Join(dir, "backup")
		former := Former{Keep: filepath.Join(dir, "kept.db"), Lease: 100 * time.Millisecond}
		s := writer(t, t.url, "server-1")

		users := &yardmaster.Batch{Users: []tenant.User{{ID: "ada", Role: tenant.Admin, Seq: 1}}}
		for _, b := range []*yardmaster.Batch{users, batchOf(1)} {
			if err := s.Commit(t.Context(), b); err != nil {
				t.Fatal(err)
			}
		}

		if err := Backup(t.Context(), t.url, file); err != nil {
			t.Fatal(err)
		}
		if err := s.Commit(t.Context(), batchOf(2)); err != nil {
			t.Fatal(err)
		}

		_, err := PutBack(t.Context(), t.url, file, former)
		wantKind(t.T, err, fault.Conflict, "database_in_use")

		if err := errors.Join(s.Resign(t.Context()), s.Close()); err != nil {
			t.Fatal(err)
		}

		former.Lease = time.Minute // also the time within which a busy database server has to answer
		kept, err := PutBack(t.Context(), t.url, file, former)
		if err != nil || kept == "" {
			t.Fatalf("kept %q, %v", kept, err)
		}

		for url, want := range map[string]uint64{t.url: 1, kept: 2} {
			state, err := open(t, url).Load(t.Context(), time.Time{})
			if err != nil || state.LastJob != want {
				t.Errorf("the last job of %s is %d, %v; want %d", url, state.LastJob, err, want)
			}
		}
	})
}

// A copy that is made while a server commits is of one moment: whoever has the last job has those before it.
func TestABackupUnderARunningWriterIsConsistent(t *testing.T) {
	t.Parallel()
	onEngines(t, func(t engineTest) {
		s := writer(t, t.url, "server-1")
		stop, stopped := make(chan struct{}), make(chan error, 1)

		go func() {
			for n := uint64(1); ; n++ {
				if err := s.Commit(context.WithoutCancel(t.Context()), batchOf(n)); err != nil {
					stopped <- err
					return
				}

				select {
				case <-stop:
					stopped <- nil
					return
				default:
				}
			}
		}()

		dir := t.TempDir()

		for i := range 3 {
			file := filepath.Join(dir, strconv.Itoa(i))
			if err := Backup(t.Context(), t.url, file); err != nil {
				t.Fatal(err)
			}

			state, err := open(t, file).Load(t.Context(), time.Time{})
			if err != nil || uint64(len(state.Jobs)) != state.LastJob || state.LastEvent != state.LastJob {
				t.Errorf("copy %d has %d jobs, the last is %d and the last event %d: %v", i, len(state.Jobs), state.LastJob,
					state.LastEvent, err)
			}
		}

		close(stop)

		if err := <-stopped; err != nil {
			t.Errorf("the server could not commit beside a backup: %v", err)
		}
	})
}

// A copy that is made while old usage is removed has all of it: in postings and savings, or in totals.
func TestABackupDuringARemovalIsWhole(t *testing.T) {
	t.Parallel()
	onEngines(t, func(t engineTest) {
		s := writer(t, t.url, "server-1")
		day := bookStart
		var b yardmaster.Batch

		for n := range uint64(40) {
			at := day.Add(time.Duration(n) * time.Hour)
			b.Ledger.Postings = append(b.Ledger.Postings, ledger.Posting{
				Seq: n + 1, Node: "n1", Class: "local", From: at, To: at.Add(time.Hour), Account: "use", Owner: "ann", Job: "j1",
				Amounts: ledger.Amounts{NodeTime: ledger.Span(n), NodeCost: ledger.Nanos(n * n)},
			})
			b.Ledger.Savings = append(b.Ledger.Savings, ledger.Saving{
				Seq: n + 1, At: at, Job: "j1", Owner: "ann", Kind: "move", Money: ledger.Nanos(n), Time: 5,
			})
		}

		if err := s.Commit(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		if _, err := s.RollUp(t.Context(), 1000); err != nil {
			t.Fatal(err)
		}

		want := usedAndSaved(t, s)

		for i, forget := range []func(context.Context, time.Time, int) (int, error){
			s.ForgetSavings, s.ForgetPostings, s.ForgetSavings, s.ForgetPostings,
		} {
			if n, err := forget(t.Context(), day.Add(24*time.Hour), 10); n == 0 || err != nil {
				t.Fatalf("removal %d: %d, %v", i, n, err)
			}

			file := filepath.Join(t.TempDir(), "backup")
			if err := Backup(t.Context(), t.url, file); err != nil {
				t.Fatal(err)
			}

			restored := filepath.Join(t.TempDir(), "yard.db")
			if _, err := PutBack(t.Context(), restored, file, Former{Lease: time.Minute}); err != nil {
				t.Fatal(err)
			}

			copied := writer(t, restored, "server-2")
			if got := usedAndSaved(t, copied); got != want {
				t.Errorf("after removal %d the backup has %s, want %s", i, got, want)
			}

			// What was begun is completed there.
			for _, forget := range []func(context.Context, time.Time, int) (int, error){
				copied.ForgetSavings, copied.ForgetPostings,
			} {
				if _, err := forget(t.Context(), day.Add(24*time.Hour), 1000); err != nil {
					t.Fatal(err)
				}
			}

			if got := usedAndSaved(t, copied); got != want {
				t.Errorf("after removal %d and the rest of it the backup has %s, want %s", i, got, want)
			}
		}
	})
}

// usedAndSaved is what a store has of usage and savings.
func usedAndSaved(t engineTest, s *Store) string {
	t.Helper()
	q := ledger.Query{Group: []ledger.Key{ledger.ByDay, ledger.ByResearcher}}
	sum, err1 := ledger.NewSummary(q)
	savings, err2 := ledger.NewSavingsSummary(q, 1)

	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}

	if err := s.Postings(t.Context(), store.PostingFilter{Totals: q.Totals()}, func(p *ledger.Posting) error {
		sum.Add(p)
		return nil
	}); err != nil {
		t.Fatal(err)
	}

	if err := s.Savings(t.Context(), store.SavingFilter{Totals: true}, func(x *ledger.Saving) error {
		savings.Add(x)
		return nil
	}); err != nil {
		t.Fatal(err)
	}

	used, err := sum.Report()
	if err != nil {
		t.Fatal(err)
	}

	return fmt.Sprint(used.Rows, savings.Report().Rows)
}

func TestADatabaseThatIsNotThereIsNotBackedUp(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	err := Backup(t.Context(), filepath.Join(dir, "none.db"), filepath.Join(dir, "backup"))
	wantKind(t, err, fault.NotFound, "no_database")

	if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) > 0 {
		t.Errorf("it left %v, %v", left, err)
	}
}

func TestWhatIsNotABackupIsNotPutBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	url, text := filepath.Join(dir, "yard.db"), filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte(strings.Repeat("no database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}

	_, err := PutBack(t.Context(), url, text, Former{})
	wantKind(t, err, fault.Invalid, "not_a_backup")

	_, err = PutBack(t.Context(), url, filepath.Join(dir, "none"), Former{})
	wantKind(t, err, fault.NotFound, "no_backup")

	if _, err := os.Stat(url); !os.IsNotExist(err) {
		t.Errorf("the database was touched: %v", err)
	}
}

func TestIncarnationsLastAndTheirNumbersCountAsUsed(t *testing.T) {
	t.Parallel()
	onEngines(t, func(t engineTest) {
		s := writer(t, t.url, "server-1")
		now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
		first := yardmaster.Incarnation{Number: 1, Mark: "a", Began: now, Settled: now, Reason: "the first"}
		second := first.After(now, 0, yardmaster.Numbers{Job: 57, Lease: 3, Event: 1200}, "restored")
		second.Mark = "b"

		for range 2 { // committing again changes nothing
			both := &yardmaster.Batch{Incarnations: []yardmaster.Incarnation{first, second}}
			if err := s.Commit(t.Context(), both); err != nil {
				t.Fatal(err)
			}
		}

		settled := second
		settled.Settled = now.Add(time.Minute)
		if err := s.Commit(t.Context(), &yardmaster.Batch{Incarnations: []yardmaster.Incarnation{settled}}); err != nil {
			t.Fatal(err)
		}

		state, err := s.Load(t.Context(), time.Time{})
		if err != nil {
			t.Fatal(err)
		}

		if diff := cmp.Diff(settled, state.Incarnation); diff != "" {
			t.Errorf("incarnation (-want +got):\n%s", diff)
		}

		got := yardmaster.Numbers{Job: state.LastJob, Lease: state.LastLease, Event: state.LastEvent}
		if want := (yardmaster.Numbers{Job: 1000, Lease: 1000, Event: 2000}); got != want {
			t.Errorf("numbers %+v, want %+v", got, want)
		}
	})
}
