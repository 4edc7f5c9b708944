// Package sql stores the state of the yard in SQLite or PostgreSQL.
//
// One SQL text serves both. What differs is behind the engine interface: how to connect, how to
// take the writer's lock, and the spelling of statements where one text is not enough. The package
// decides nothing: it writes the batches it is given and returns the objects it has stored, and no
// row type is exported. It makes no network call inside a transaction except those to the database.
// Only cmd/trainyard and tests import it; the server's loop commits through it and handlers read
// through it.
package sql

import (
	"context"
	dbsql "database/sql"
	"fmt"
	"log/slog"
	"sync"

	"trainyard/internal/clock"
	"trainyard/internal/fault"
	"trainyard/internal/store"
)

var _ store.Store = (*Store)(nil)

// Options are the optional settings of a store. Zero values mean the machine's clock and no log.
type Options struct {
	Clock clock.Clock
	Log   *slog.Logger
}

// Store is the state of the yard in a database.
type Store struct {
	engine engine
	write  *dbsql.DB
	read   *dbsql.DB
	clock  clock.Clock
	log    *slog.Logger

	mu     sync.Mutex // guards the fields below
	unlock func() error
	holder string
	term   int64 // term of this store as the writer; 0 before Acquire
	stmts  map[stmtKey]*dbsql.Stmt

	pinging chan struct{} // holds a token while a Ping is in progress
}

// Open opens the database at url and brings its schema up to date: a path or sqlite:///path/file.db
// for SQLite, postgres://… for PostgreSQL. The schema is changed only while no server is the
// writer; Open waits for that until ctx is cancelled.
func Open(ctx context.Context, url string, opts Options) (*Store, error) {
	if opts.Clock == nil {
		opts.Clock = clock.NewSteady()
	}

	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}

	eng, err := engineOf(url)
	if err != nil {
		return nil, err
	}

	write, read, err := eng.open()
	if err != nil {
		return nil, failure("open the store", err)
	}

	s := &Store{
		engine: eng, write: write, read: read, clock: opts.Clock, log: opts.Log,
		stmts: make(map[stmtKey]*dbsql.Stmt), pinging: make(chan struct{}, 1),
	}

	if err := s.prepare(ctx); err != nil {
		_ = s.Close() // the first error is more informative
		return nil, err
	}

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

	risks, err := s.engine.risks(ctx, s.read)
	if err != nil {
		return failure("read the database settings", err)
	}

	for _, setting := range risks {
		s.log.Warn("database setting may lose committed data", "setting", setting, "value", "off")
	}

	return nil
}

// Close releases the writer's lock and closes all connections.
func (s *Store) Close() error {
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
	keep(s.write.Close())

	if s.unlock != nil {
		keep(s.unlock())
		s.unlock = nil
	}

	s.term = 0

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
		return failure("write to the store", err)
	}
	if err := s.read.QueryRowContext(ctx, `SELECT count FROM pings WHERE one = 1`).Scan(&read); err != nil {
		return failure("read from the store", err)
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
