package sql

import (
	"context"
	dbsql "database/sql"
	"strings"
	"time"

	"trainyard/internal/clock"
	"trainyard/internal/fault"
)

// engine is everything that differs between the databases.
type engine interface {
	name() string
	// place says for people where the data is: a file or a server, without passwords.
	place() string
	// open returns the pools of connections.
	open(limits Timeouts) (pools, error)
	// dropIdle closes connections that are not in use, because they may be broken.
	dropIdle(pools ...*dbsql.DB)
	// lock takes a lock on the database, and waits for it until ctx is cancelled. The lock is
	// released when the process ends, in whatever way.
	lock(ctx context.Context) (unlock func() error, err error)
	// locksForLife reports whether no process loses the lock before it ends. Then the lock is
	// enough to lead; otherwise leadership is a lease, and the lock is for changes of the schema.
	locksForLife() bool
	// keyShare is what a query adds so that the rows it reads keep their keys until its transaction ends.
	keyShare() string
	// forUpdate is what a query adds so that nobody else changes the rows it reads until its transaction ends.
	forUpdate() string
	// now is the expression for the time of the database's clock in microseconds.
	now() string
	// schema adapts a statement of a migration to the engine.
	schema(statement string) string
	// mark returns the placeholder of the n-th parameter, for statements that use each parameter
	// once and in order.
	mark(n int) string
	// chunks lists the numbers of rows per statement, the largest first and 1 last.
	chunks() []int
	// keepsStatements reports whether it pays to keep queries prepared, because the driver does not.
	keepsStatements() bool
	// copyTo copies the database, as it is at one moment, into a file that becomes a SQLite database.
	copyTo(ctx context.Context, file string) error
	// putBack replaces the database by such a file and returns where the former one is kept, "" if there was none.
	putBack(ctx context.Context, file string, former Former) (kept string, err error)
	// risks lists settings under which the database may lose committed data.
	risks(ctx context.Context, db *dbsql.DB) ([]string, error)
}

// engineOf chooses the engine by the URL of the store.
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

// pools are the connections of a store.
type pools struct {
	write, read *dbsql.DB
	reports     *dbsql.DB // for reading much
	lease       *dbsql.DB // for leadership
}

// reportReaders is how many reports may be read at the same time, with what is rolled up beside them.
const reportReaders = 3

// lockPoll is how often a lock that another process holds is tried.
const lockPoll = 50 * time.Millisecond

// waitLock tries until it has the lock or ctx is cancelled.
func waitLock(ctx context.Context, try func() (bool, error)) error {
	for {
		locked, err := try()
		if err != nil || locked {
			return err
		}

		if !clock.Sleep(ctx, lockPoll) {
			return held(ctx)
		}
	}
}

// held says that another server led until there was no more time to wait.
func held(ctx context.Context) error {
	return fault.New(fault.Unavailable, "store_held", "another server holds the store").
		WithRemedy("stop the other server, or wait until it has ended").WithCause(context.Cause(ctx))
}
