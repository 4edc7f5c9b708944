package agentapi

import (
	"context"
	"fmt"
	"testing"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/logs/archive"
	"trainyard/internal/store"
)

// Who may write a log is remembered while it is written, and not much longer.
func TestWritersOfLogsThatNobodyWritesAreForgotten(t *testing.T) {
	t.Parallel()

	const short = 200

	clk := &handClock{now: time.Date(2026, 11, 16, 12, 0, 0, 0, time.UTC)}
	runs := &runStore{asked: map[id.Run]int{}}
	s := &Server{Config: Config{Store: runs, Clock: clk}}
	ctx := context.WithValue(t.Context(), callerKey{}, caller{node: "n1"})

	write := func(run id.Run) {
		t.Helper()

		if _, err := s.mayWriteLog(ctx, run, "", 0); err != nil {
			t.Fatal(err)
		}
	}

	for i := range short {
		write(id.Run(fmt.Sprintf("j%d.1", i+2)))
		write("j1.1")

		clk.now = clk.now.Add(time.Minute)
		remembered := len(s.writers.young) + len(s.writers.old)

		if most := 2 * int(writersTurn/time.Minute); remembered > most+2 {
			t.Fatalf("%d writers are remembered after %d short logs, one a minute", remembered, i+1)
		}
	}

	if n := runs.asked["j1.1"]; n != 1 {
		t.Errorf("who may write a log that is written all the time was asked for %d times", n)
	}

	clk.now = clk.now.Add(2 * writersTurn)
	write("j1.1")

	if n := runs.asked["j1.1"]; n != 2 {
		t.Errorf("after a long pause who may write a log was asked for %d times in all, want 2", n)
	}
}

func TestWritersAreBounded(t *testing.T) {
	t.Parallel()

	var w writers
	for i := range 2 * maxWriters {
		w.add(time.Time{}, archive.Log{Run: id.NewRun(id.NewJob(uint64(i+1)), 1)}, writer{node: "n1"})
	}

	if n := len(w.young) + len(w.old); n > maxWriters {
		t.Errorf("%d writers are remembered", n)
	}
}

// runStore has every run, on node n1, and counts how often each is asked for.
type runStore struct {
	store.Store
	asked map[id.Run]int
}

func (s *runStore) Run(_ context.Context, r id.Run) (job.Run, error) {
	s.asked[r]++
	return job.Run{ID: r, Ranks: []job.Rank{{Node: "n1"}}}, nil
}

// handClock stands still until it is moved.
type handClock struct{ now time.Time }

func (c *handClock) Now() time.Time { return c.now }
