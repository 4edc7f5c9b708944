package sql

import (
	"context"
	dbsql "database/sql"
	"strings"
	"time"

	"trainyard/internal/clock"
	"trainyard/internal/fault"
)

// engine is all that differs between the databases.
type engine interface {
	name() string
	// open returns connections that write and connections that read.
	open() (write, read *dbsql.DB, err error)
	// lock takes the writer's lock, waiting for it until ctx ends. The lock
	// goes with the process, however that ends.
	lock(ctx context.Context) (unlock func() error, err error)
	// schema spells a statement of a migration.
	schema(statement string) string
	// mark spells the n-th parameter of a statement that takes each once and in order.
	mark(n int) string
	// chunks lists how many rows one statement may take, the most first and 1 last.
	chunks() []int
	// risks names the settings under which the database may lose what it committed.
	risks(ctx context.Context, db *dbsql.DB) ([]string, error)
}

// engineOf chooses the engine by the store's address.
func engineOf(url string) (engine, error) {
	scheme, rest, found := strings.Cut(url, "://")
	switch {
	case found && (scheme == "postgres" || scheme == "postgresql"):
		return newPostgres(url)
	case found && scheme == "sqlite":
		return newSQLite(rest)
	case found:
		return nil, fault.New(fault.Invalid, "store_url", "store must be a path, sqlite:// or postgres:// address, got %q",
			scheme).
			WithRemedy("write a path, sqlite:///path/file.db or postgres://user@host/database")
	}

	return newSQLite(url)
}

// lockPoll is how often a lock that another holds is tried again.
const lockPoll = 50 * time.Millisecond

// waitLock tries until it has the lock or ctx ends.
func waitLock(ctx context.Context, try func() (bool, error)) error {
	for {
		locked, err := try()
		if err != nil || locked {
			return err
		}

		if !clock.Sleep(ctx, lockPoll) {
			return fault.New(fault.Unavailable, "store_held", "another server holds the store").
				WithRemedy("stop the other server, or wait until it has ended").WithCause(context.Cause(ctx))
		}
	}
}
