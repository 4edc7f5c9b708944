// Package sql stores the state of the yard in SQLite or PostgreSQL.
//
// One SQL text serves both. What differs is behind the engine interface: how to connect, how one
// server becomes the leader, and the spelling of statements where one text is not enough. The package
// decides nothing: it writes the batches it is given and returns the objects it has stored, and no
// row type is exported. It makes no network call inside a transaction except those to the database.
// Only cmd/trainyard and tests import it; the server's loop commits through it and handlers read
// through it.
package sql

import (
	"context"
	dbsql "database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"trainyard/internal/clock"
	"trainyard/internal/fault"
	"trainyard/internal/store"
)

var _ store.Store = (*Store)(nil)

// Options are the optional settings of a store. Zero values mean the machine's clock, no log and the default
// timeouts.
type Options struct {
	Clock    clock.Clock
	Log      *slog.Logger
	Timeouts Timeouts
}

// Timeouts bound how long the database may take. Those who wait for it get an error then, and
// connections that may be broken are replaced.
type Timeouts struct {
	Commit time.Duration // of a transaction that writes
	Read   time.Duration // of a query; of a stream of rows, until the next row
	Load   time.Duration // of reading the whole yard
}

// DefaultTimeouts returns the timeouts that apply where none are set.
func DefaultTimeouts() Timeouts {
	return Timeouts{Commit: 5 * time.Second, Read: 10 * time.Second, Load: 2 * time.Minute}
}

// Store is the state of the yard in a database.
type Store struct {
	engine   engine
	write    *dbsql.DB
	read     *reader
	reports  *reader // for reports, so that queries do not wait for them
	jobs     jobCache
	specs    specCache
	lease    *dbsql.DB // for leadership alone, so that it waits for no commit and no query
	clock    clock.Clock
	log      *slog.Logger
	timeouts Timeouts
	sorts    int                       // how many jobs are sorted for one page at most
	term     atomic.Int64              // of this store's server as the leader; 0 if it does not lead
	keys     atomic.Pointer[keyFilter] // of the term; nil if this store's server does not lead

	mu      sync.Mutex // guards the fields below, and is held during a commit
	unlock  func() error
	commits int64  // number of the last transaction of this term that is known to be stored
	doubt   *doubt // a transaction of which it is not known whether it is stored
	stmts   map[stmtKey]*dbsql.Stmt

	rolling sync.Mutex    // held while postings are added to the totals of the ledger
	pinging chan struct{} // holds a token while a Ping is in progress
}

// Open opens the database at url and brings its schema up to date: a path or sqlite:///path/file.db
// for SQLite, postgres://… for PostgreSQL. The schema is changed only while no server leads; Open
// waits for that until ctx is cancelled.
func Open(ctx context.Context, url string, opts Options) (*Store, error) {
	eng, err := engineOf(url)
	if err != nil {
		return nil, err
	}

	return openEngine(ctx, eng, opts)
}

// openEngine is Open with the engine that the URL stands for.
func openEngine(ctx context.Context, eng engine, opts Options) (*Store, error) {
	if opts.Clock == nil {
		opts.Clock = clock.NewSteady()
	}

	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}

	s, err := connect(eng, opts)
	if err != nil {
		return nil, err
	}

	if err := s.prepare(ctx); err != nil {
		_ = s.Close() // the first error is more informative
		return nil, err
	}

	return s, nil
}

// connect opens the connections and leaves the database as it is.
func connect(eng engine, opts Options) (*Store, error) {
	if opts.Timeouts == (Timeouts{}) {
		opts.Timeouts = DefaultTimeouts()
	}

	p, err := eng.open(opts.Timeouts)
	if err != nil {
		return nil, failure("open the store", err)
	}

	s := &Store{
		engine: eng, write: p.write, lease: p.lease, clock: opts.Clock, log: opts.Log, timeouts: opts.Timeouts,
		stmts: make(map[stmtKey]*dbsql.Stmt), pinging: make(chan struct{}, 1), sorts: maxSorted,
	}
	newReader := func(db *dbsql.DB) *reader {
		r := &reader{DB: db, limit: opts.Timeouts.Read, failed: func(err error) { s.dropIdle(err, db) }}
		if eng.keepsStatements() {
			r.prepared = map[string]*dbsql.Stmt{}
		}

		return r
	}

	s.read, s.reports = newReader(p.read), newReader(p.reports)

	return s, nil
}

// prepare makes the opened database ready for use.
func (s *Store) prepare(ctx context.Context) error {
	steps, err := readMigrations(migrationFiles, s.engine.name())
	if err != nil {
		return err
	}
	if err := s.migrate(ctx, steps); err != nil {
		return err
	}

	risks, err := s.engine.risks(ctx, s.read.DB)
	if err != nil {
		return s.failure("read the database settings", err)
	}

	for _, setting := range risks {
		s.log.Warn("database setting may lose committed data", "setting", setting, "value", "off")
	}

	return nil
}

// Close resigns, if this store's server leads, and closes all connections. A Ping that nobody waits for any more ends
// before, unless the database hangs: it may be opening a connection, which would create files anew.
func (s *Store) Close() error {
	if err := s.Resign(context.Background()); err != nil {
		// Another server can lead all the same, when the lease has expired.
		s.log.Warn("could not resign", "error", err, "cause", errors.Unwrap(err))
	}

	ctx, cancel := context.WithTimeout(context.Background(), s.timeouts.Commit)
	defer cancel()

	select {
	case s.pinging <- struct{}{}:
		defer func() { <-s.pinging }()
	case <-ctx.Done():
		s.log.Warn("closing the store while a write hangs")
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	var first error
	keep := func(err error) {
		if first == nil && err != nil {
			first = err
		}
	}

	for _, stmt := range s.stmts {
		keep(stmt.Close())
	}

	clear(s.stmts)
	keep(s.read.Close())
	keep(s.reports.Close())
	keep(s.write.Close())
	keep(s.lease.Close()) // closing a pool twice is no mistake, where it is the one for writing

	if first != nil {
		return fmt.Errorf("close the store: %w", first)
	}

	return nil
}

// Ping writes a row and reads it back. It returns when ctx is cancelled even if the database hangs;
// the write then continues in the background, and the next Ping waits for it.
func (s *Store) Ping(ctx context.Context) error {
	select {
	case s.pinging <- struct{}{}:
	case <-ctx.Done():
		return hung(ctx)
	}

	done := make(chan error, 1)
	go func() {
		err := s.writeAndRead(ctx)
		<-s.pinging
		done <- err
	}()

	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return hung(ctx)
	}
}

func (s *Store) writeAndRead(ctx context.Context) error {
	var wrote, read int64
	err := s.write.QueryRowContext(ctx, `UPDATE pings SET count = count + 1 WHERE one = 1 RETURNING count`).Scan(&wrote)
	if err != nil {
		return s.failure("write to the store", err)
	}
	if err := s.read.QueryRowContext(ctx, `SELECT count FROM pings WHERE one = 1`).Scan(&read); err != nil {
		return s.failure("read from the store", err)
	}
	if read < wrote {
		return fault.New(fault.Internal, "store_stale", "the store wrote %d but read %d", wrote, read)
	}

	return nil
}

func hung(ctx context.Context) error {
	return fault.New(fault.Unavailable, "store_unavailable", "the store did not respond in time").
		WithCause(context.Cause(ctx))
}
