package storetest

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"trainyard/internal/store/storetest/pgtest"
)

// StartPostgres starts a PostgreSQL server that ends with tb, and returns a
// function that makes an empty database and gives its URL. Without PostgreSQL
// on the machine the test is skipped, and fails under CI=true. Commits are not written
// to the disk; benchmarks that need that call pgtest.Start.
func StartPostgres(tb testing.TB) (url func(tb testing.TB) string) {
	tb.Helper()
	server, err := pgtest.Start("", false)
	if err != nil {
		SkipPostgres(tb, err)
	}

	tb.Cleanup(func() {
		if err := server.Stop(); err != nil {
			tb.Errorf("stop PostgreSQL: %v", err)
		}
	})

	return Databases(server)
}

// Databases returns a function that makes one empty database after another on a server.
func Databases(server *pgtest.Server) func(tb testing.TB) string {
	var count atomic.Int64
	return func(tb testing.TB) string {
		tb.Helper()
		url, err := server.NewDatabase(fmt.Sprintf("test%d", count.Add(1)))
		if err != nil {
			tb.Fatal(err)
		}

		return url
	}
}

// SkipPostgres skips tb because PostgreSQL did not start, or fails it where it must be there.
func SkipPostgres(tb testing.TB, err error) {
	tb.Helper()

	if errors.Is(err, pgtest.ErrMissing) && os.Getenv("CI") != "true" {
		tb.Skip("needs PostgreSQL: ", err)
	}

	tb.Fatal("needs PostgreSQL: ", err)
}
