package sql

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"trainyard/internal/fault"
)

// failure says what was being done when the database failed. A database that
// is full, read-only, busy or gone is Unavailable; an error that the database
// gives because of what it was asked is a bug and stays Internal.
func failure(doing string, err error) error {
	var known *fault.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known), !unavailable(err):
		return fmt.Errorf("%s: %w", doing, err)
	}

	return fault.New(fault.Unavailable, "store_unavailable", "could not %s: the database is not available", doing).
		WithCause(err)
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

	// What comes from neither database comes from the way to it: a broken or closed connection, or time that ran out.
	return true
}

// unavailablePostgres goes by the class of the SQLSTATE code.
func unavailablePostgres(code string) bool {
	if len(code) != 5 {
		return false
	}

	switch code[:2] {
	case "08", // connection
		"25", // read-only transaction
		"28", // not let in
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

// badRow is for a row that was read and makes no sense. While ctx has ended,
// reading fails because of that.
func badRow(ctx context.Context, what string, err error) error {
	if ctx.Err() != nil {
		return failure("read "+what, err)
	}

	return fault.New(fault.Internal, "bad_row", "the store holds a %s that cannot be read", what).WithCause(err)
}
