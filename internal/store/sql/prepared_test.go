package sql

import (
	"context"
	"errors"
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
		if got, err := answerOf(t.Context(), s.read, fmt.Sprintf("SELECT %d", n)); err != nil || got != n {
			t.Fatalf("query %d answers %d: %v", n, got, err)
		}
	}

	if got := len(s.read.prepared); got > keptStatements {
		t.Errorf("%d statements are kept", got)
	}
}

// answerOf returns the number that a query answers.
func answerOf(ctx context.Context, r *reader, query string) (got int, err error) {
	rows, err := r.QueryContext(ctx, query)
	if err != nil {
		return 0, err
	}

	defer func() { err = errors.Join(err, rows.Close()) }()

	if !rows.Next() {
		return 0, errors.Join(errors.New("no row"), rows.Err())
	}

	return got, rows.Scan(&got)
}
