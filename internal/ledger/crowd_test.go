package ledger_test

import (
	"fmt"
	"testing"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/ledger"
)

// A node without GPUs can hold many small runs at once.
func TestManyRunsOnOneNodeAreEachPosted(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

	n := &fleet.Node{ID: "a", Class: fleet.Local, State: fleet.Ready, Inventory: fleet.Inventory{CPUs: 64_000}}
	for _, runs := range []int{1, 15, 16, 17, 64, 200} {
		m := ledger.NewMeter(n, nil, nil, begin)
		var holders []ledger.Holder
		for i := range runs {
			j := id.NewJob(uint64(i + 1))
			holders = append(
				holders,
				ledger.Holder{Run: id.NewRun(j, 1), Job: j, Owner: id.User(fmt.Sprintf("u%d", i)), CPUs: 250},
			)
		}

		status := ledger.StatusOf(n, 0, nil)
		postings := m.Set(nil, begin, status, holders)
		postings = m.Set(postings, begin.Add(time.Hour), status, nil)
		var total ledger.Span

		seen := map[id.Run]bool{}
		for _, p := range postings {
			total += p.NodeTime
			seen[p.Run] = true
		}

		if total != ledger.Span(time.Hour.Milliseconds()) || len(seen) < runs {
			t.Errorf("%d runs: %s of node-time for %d of them, want an hour and all", runs, total, len(seen))
		}
	}
}
