package history_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"trainyard/internal/blob"
	"trainyard/internal/clock"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/logs/archive"
	"trainyard/internal/server/history"
	"trainyard/internal/store"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// fakeStore holds what Resume needs of a store.
type fakeStore struct {
	store.Store
	runs      map[id.Run]job.Run
	committed []*yardmaster.Batch
}

func (s *fakeStore) Commit(_ context.Context, batches ...*yardmaster.Batch) error {
	s.committed = append(s.committed, batches...)
	return nil
}

func (s *fakeStore) Run(_ context.Context, r id.Run) (job.Run, error) {
	run, ok := s.runs[r]
	if !ok {
		return job.Run{}, fault.New(fault.NotFound, "run_not_found", "there is no run %s", r)
	}

	return run, nil
}

// yard is what a server has beside its database.
type yard struct {
	t     *testing.T
	dir   string
	store *fakeStore
	logs  *archive.Archive
}

func newYard(t *testing.T) *yard {
	t.Helper()
	dir := t.TempDir()
	blobs, err := blob.OpenDir(filepath.Join(dir, "blobs"))
	if err != nil {
		t.Fatal(err)
	}

	logs, err := archive.Open(filepath.Join(dir, "logs"), blobs, clock.Wall{})
	if err != nil {
		t.Fatal(err)
	}

	return &yard{t: t, dir: dir, store: &fakeStore{runs: map[id.Run]job.Run{}}, logs: logs}
}

// resume starts a server with a state and lets it commit batches.
func (y *yard) resume(state *yardmaster.State, restored string, batches ...*yardmaster.Batch) history.Report {
	y.t.Helper()
	mark, err := history.OpenMark(filepath.Join(y.dir, "history.json"), slog.New(slog.DiscardHandler))
	if err != nil {
		y.t.Fatal(err)
	}

	defer func() { _ = mark.Close() }()

	deps := history.Deps{
		Store: y.store, Logs: y.logs, Mark: mark, Log: slog.New(slog.DiscardHandler), Restored: restored,
	}

	report, err := history.Resume(y.t.Context(), deps, now, state)
	if err != nil {
		y.t.Fatal(err)
	}

	for _, b := range batches {
		mark.Follow(b)
	}

	return report
}

// output appends to a log.
func (y *yard) output(l archive.Log, final bool) {
	y.t.Helper()
	if _, _, err := y.logs.Append(y.t.Context(), l, 0, []byte("text"), final); err != nil {
		y.t.Fatal(err)
	}
}

func batchOf(event uint64, j id.Job) *yardmaster.Batch {
	return &yardmaster.Batch{Jobs: []job.Job{{ID: j}}, Events: []yardmaster.Event{{Seq: event}}}
}

func TestAnOrdinaryRestartGoesOn(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	state := yardmaster.State{}
	y.resume(&state, "", batchOf(9, "j2"))

	if i := state.Incarnation; i.Number != 1 || i.Mark == "" || i.Unsettled() || len(y.store.committed) != 1 {
		t.Fatalf("the first incarnation is %+v, committed %d", i, len(y.store.committed))
	}

	first := state
	again := yardmaster.State{LastJob: 2, LastEvent: 9, Incarnation: first.Incarnation}
	r := y.resume(&again, "")

	if r.Restored || again.Incarnation != first.Incarnation || again.LastJob != 2 || len(y.store.committed) != 1 {
		t.Errorf("after a restart: %+v, %+v", r, again)
	}

	if again.Seed == "" || again.Seed == first.Seed {
		t.Errorf("seeds %q and %q, want two", first.Seed, again.Seed)
	}

	// A database that is ahead of the record, as after a power cut, is not an older copy.
	ahead := yardmaster.State{LastJob: 3, LastEvent: 12, Incarnation: first.Incarnation}
	if r := y.resume(&ahead, ""); r.Restored {
		t.Errorf("a newer database counts as restored: %+v", r)
	}
}

// TestNumbersOfLostUsersAreNotGivenAgain checks that a database from before a user was added skips that user's number.
func TestNumbersOfLostUsersAreNotGivenAgain(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	state := yardmaster.State{}
	added := batchOf(9, "j2")
	added.Users = []tenant.User{{ID: "ada", Number: 102}}
	y.resume(&state, "", added)

	older := yardmaster.State{
		LastJob: 1, LastEvent: 4, Incarnation: state.Incarnation, Users: []tenant.User{{ID: "root", Number: 1}},
	}
	if r := y.resume(&older, ""); !r.Restored || older.Incarnation.Last.User <= 102 {
		t.Errorf("restored %v, numbers of users continue after %d", r.Restored, older.Incarnation.Last.User)
	}
}

func TestAnOlderCopyIsRecognised(t *testing.T) {
	t.Parallel()
	first := yardmaster.Incarnation{Number: 1, Mark: "first", Settled: now}

	for name, tt := range map[string]struct {
		before yardmaster.State
		state  yardmaster.State
		log    archive.Log
		force  string
		number uint64
		job    uint64
	}{
		"fewer events": {
			before: yardmaster.State{LastJob: 50, LastEvent: 900, Incarnation: first},
			state:  yardmaster.State{LastJob: 40, LastEvent: 800, Incarnation: first}, number: 2, job: 1000,
		},
		"an earlier incarnation": {
			before: yardmaster.State{LastJob: 2050, LastEvent: 900, Incarnation: yardmaster.Incarnation{Number: 4,
				Mark: "d", Settled: now}},
			state: yardmaster.State{LastJob: 40, LastEvent: 800, Incarnation: first}, number: 5, job: 3000,
		},
		"an empty database": {
			before: yardmaster.State{LastJob: 50, LastEvent: 900, Incarnation: first}, number: 2, job: 1000,
		},
		"output of a newer job": {
			state: yardmaster.State{LastJob: 40, Incarnation: first}, log: archive.Log{Run: "j1041.1"}, number: 2, job: 2000,
		},
		"trainyard restore": {
			state: yardmaster.State{LastJob: 40, Incarnation: first}, force: "it was said", number: 2, job: 1000,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newYard(t)
			if tt.before.Incarnation.Number > 0 {
				y.resume(&tt.before, "")
			}

			if tt.log.Run != "" {
				y.output(tt.log, false)
			}

			state := tt.state
			r := y.resume(&state, tt.force)

			if i := state.Incarnation; !r.Restored || i.Number != tt.number || state.LastJob != tt.job || !i.Unsettled() {
				t.Fatalf("restored %v, incarnation %+v, last job %d", r.Restored, i, state.LastJob)
			}

			b := y.store.committed[len(y.store.committed)-1]
			if len(b.Events) != 1 || b.Events[0].Seq != state.LastEvent || b.Events[0].Kind != "yard.restored" {
				t.Errorf("events %+v after which the state has %d", b.Events, state.LastEvent)
			}

			// The next start is an ordinary one.
			if r := y.resume(&state, ""); r.Restored {
				t.Errorf("the next start counts as another restore: %+v", r)
			}
		})
	}
}

func TestOutputThatTheDatabaseDoesNotKnowIsFound(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	known := archive.Log{Run: "j2.1", UID: "known"}
	other := archive.Log{Run: "j2.2", UID: "other"}
	newer := archive.Log{Run: "j7.1", UID: "newer", Rank: 1}
	y.store.runs["j2.1"] = job.Run{ID: "j2.1", UID: "known"}
	y.output(known, true)
	y.output(other, false)
	y.output(newer, true)

	state := yardmaster.State{LastJob: 2, Jobs: []job.Job{{ID: "j2"}},
		Incarnation: yardmaster.Incarnation{Number: 1, Mark: "a"}}
	r := y.resume(&state, "it was said")

	if len(r.Strays) != 2 || r.Strays[0] != other || r.Strays[1] != newer || r.Found.Job != 7 {
		t.Errorf("found %+v", r)
	}

	// A new run of the same id has a log of its own.
	st, err := y.logs.State(t.Context(), archive.Log{Run: "j2.2", UID: "new"})
	if err != nil || st.Size != 0 {
		t.Errorf("the log of a new run j2.2 has %d bytes, %v", st.Size, err)
	}
}
