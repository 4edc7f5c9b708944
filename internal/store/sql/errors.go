package sql

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"trainyard/internal/diskspace"
	"trainyard/internal/fault"
)

// failure adds to a database error what was being done. A database that is full, read-only, busy or
// unreachable is Unavailable; an error caused by the statement is a bug and stays Internal.
func failure(doing string, err error) error {
	var known *fault.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known), !unavailable(err):
		return fmt.Errorf("%s: %w", doing, err)
	case full(err):
		return fmt.Errorf("%s: %w", doing, diskspace.Error("the database", err))
	}

	return fault.New(fault.Unavailable, "store_unavailable", "could not %s: the database is not available", doing).
		WithCause(err)
}

// broken reports whether an error comes from the connection and not from the database.
func broken(err error) bool {
	var pg *pgconn.PgError
	var known *fault.Error

	return !errors.As(err, &pg) && !errors.As(err, &known)
}

// failure is the package's failure, and says which disk is full if that is the reason.
func (s *Store) failure(doing string, err error) error {
	var known *fault.Error
	if !full(err) || errors.As(err, &known) {
		return failure(doing, err)
	}

	return failure(doing, diskspace.Error(s.engine.place(), err))
}

// full reports whether a database has no disk space left.
func full(err error) bool {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code == "53100"
	}

	var lite *sqlite.Error
	if errors.As(err, &lite) {
		// The index of the write-ahead log is in a file of its own, which cannot grow either.
		return lite.Code()&0xff == sqlite3.SQLITE_FULL || lite.Code() == sqlite3.SQLITE_IOERR_SHMSIZE
	}

	return diskspace.Full(err)
}

func unavailable(err error) bool {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return unavailablePostgres(pg.Code)
	}

	var lite *sqlite.Error
	if errors.As(err, &lite) {
		return unavailableSQLite(lite.Code())
	}

	// An error of neither database comes from the connection: it is broken or closed, or its time has run out.
	return true
}

// unavailablePostgres decides by the class of the SQLSTATE code.
func unavailablePostgres(code string) bool {
	if len(code) != 5 {
		return false
	}

	switch code[:2] {
	case "08", // connection
		"25", // read-only transaction
		"28", // authorization rejected
		"3D", // no such database
		"40", // serialization, deadlock
		"53", // out of disk, memory or connections
		"55", // locked
		"57", // shutting down, cancelled
		"58": // I/O
		return true
	}

	return false
}

func unavailableSQLite(code int) bool {
	switch code & 0xff {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_READONLY,
		sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PROTOCOL:
		return true
	}

	return false
}

// noTable reports whether the database said that a table does not exist.
func noTable(err error) bool {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code == "42P01"
	}

	var lite *sqlite.Error

	return errors.As(err, &lite) && lite.Code() == sqlite3.SQLITE_ERROR && strings.Contains(lite.Error(), "no such table")
}

// badRow is the error for a row that cannot be decoded. If ctx was cancelled, that is the cause.
func badRow(ctx context.Context, what string, err error) error {
	if ctx.Err() != nil {
		return failure("read "+what, err)
	}

	return fault.New(fault.Internal, "bad_row", "the store holds a %s that cannot be read", what).WithCause(err)
}
