package sql

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/fault"
	"trainyard/internal/yardmaster"
)

func TestABackupUnderARunningWriterIsConsistent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	url, file := filepath.Join(dir, "yard.db"), filepath.Join(dir, "backup")
	s := writer(t, url, "server-1")
	if err := s.Commit(t.Context(), batchOf(1)); err != nil {
		t.Fatal(err)
	}

	if err := Backup(t.Context(), url, file); err != nil {
		t.Fatal(err)
	}

	if err := s.Commit(t.Context(), batchOf(2)); err != nil {
		t.Errorf("commit after a backup: %v", err)
	}

	wantKind(t, Backup(t.Context(), url, file), fault.Conflict, "file_exists")
	wantKind(t, Backup(t.Context(), filepath.Join(dir, "none.db"), file+"2"), fault.NotFound, "no_database")
	wantKind(t, Backup(t.Context(), "postgres://db/yard", file+"2"), fault.Invalid, "not_sqlite")

	_, err := PutBack(t.Context(), url, file)
	wantKind(t, err, fault.Conflict, "database_in_use")

	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	kept, err := PutBack(t.Context(), url, file)
	if err != nil || kept != url+".replaced" {
		t.Fatalf("kept %q, %v", kept, err)
	}

	for path, want := range map[string]uint64{url: 1, kept: 2} {
		state, err := open(t, path).Load(t.Context(), time.Time{})
		if err != nil || state.LastJob != want {
			t.Errorf("the last job of %s is %d, %v; want %d", path, state.LastJob, err, want)
		}
	}

	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the backup is %v, %v; want it to be private", info, err)
	}
}

func TestWhatIsNotABackupIsNotPutBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	url, text := filepath.Join(dir, "yard.db"), filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte(strings.Repeat("no database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}

	_, err := PutBack(t.Context(), url, text)
	wantKind(t, err, fault.Invalid, "not_a_backup")

	_, err = PutBack(t.Context(), url, filepath.Join(dir, "none"))
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
