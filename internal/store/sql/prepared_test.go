package sql

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"
)

// A quarter of the time of followers of output went into preparing the same two queries.
func TestQueriesStayPrepared(t *testing.T) {
	t.Parallel()
	s := writer(t, filepath.Join(t.TempDir(), "yard.db"), "server")
	if err := s.Commit(t.Context(), batchOf(1, 2, 3)); err != nil {
		t.Fatal(err)
	}

	before := len(s.read.prepared)
	var wg sync.WaitGroup

	for range 20 {
		wg.Go(func() {
			for range 20 {
				if j, err := s.Job(t.Context(), "j2"); err != nil || j.ID != "j2" {
					t.Errorf("got %s, %v", j.ID, err)
				}
			}
		})
	}

	wg.Wait()

	if got := len(s.read.prepared) - before; got != 1 {
		t.Errorf("%d statements were prepared for one query", got)
	}

	// There are not more and more of them.
	for n := range 3 * keptStatements {
		rows, err := s.read.QueryContext(t.Context(), fmt.Sprintf("SELECT %d", n))
		if err != nil {
			t.Fatal(err)
		}

		var got int
		if !rows.Next() || rows.Scan(&got) != nil || got != n || rows.Err() != nil {
			t.Fatalf("query %d answers %d", n, got)
		}
		if err := rows.Close(); err != nil {
			t.Fatal(err)
		}
	}

	if got := len(s.read.prepared); got > keptStatements {
		t.Errorf("%d statements are kept", got)
	}
}
