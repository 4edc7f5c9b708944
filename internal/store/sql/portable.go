package sql

import (
	"context"
	dbsql "database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"trainyard/internal/fault"
	"trainyard/internal/store"
)

// A database of PostgreSQL is copied row by row into a SQLite database with the same tables, and back: both have the
// same schema, and one form of backup serves both.

// ownTables are those that a copy does not take over: who leads is not part of the yard's history.
var ownTables = []string{"leadership", "servers", "meta"}

// field is a column of a table as SQLite declares it.
type field struct{ name, kind string }

// tables lists the tables of a SQLite database that are copied, with their columns.
func tables(ctx context.Context, db *dbsql.DB) (map[string][]field, []string, error) {
	rows, err := db.QueryContext(ctx, `SELECT m.name, c.name, c.type FROM sqlite_master AS m
		JOIN pragma_table_info(m.name) AS c WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%' ORDER BY m.name, c.cid`)
	if err != nil {
		return nil, nil, err
	}

	defer func() { _ = rows.Close() }()

	columns := map[string][]field{}
	var names []string

	for rows.Next() {
		var table string
		var c field
		if err := rows.Scan(&table, &c.name, &c.kind); err != nil {
			return nil, nil, err
		}
		if slices.Contains(ownTables, table) {
			continue
		}

		if columns[table] == nil {
			names = append(names, table)
		}

		columns[table] = append(columns[table], c)
	}

	return columns, names, rows.Err()
}

// quoted lists names of columns for a statement.
func quoted(list []field) string {
	names := make([]string, len(list))
	for i, c := range list {
		names[i] = `"` + c.name + `"`
	}

	return strings.Join(names, ", ")
}

// copyTo reads all tables in one transaction, so that the copy is of one moment.
func (e *postgresEngine) copyTo(ctx context.Context, file string) (err error) {
	lite, db, err := newPortable(ctx, file)
	if err != nil {
		return err
	}

	defer func() { err = errors.Join(err, db.Close()) }()

	conn, err := pgx.ConnectConfig(ctx, e.config.Copy())
	if err != nil {
		return failure("connect to the database", err)
	}

	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()

	from, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return failure("read the database", err)
	}

	defer func() { _ = from.Rollback(context.WithoutCancel(ctx)) }() // it only read

	if err := sameSchema(ctx, from, lite); err != nil {
		return err
	}

	columns, names, err := tables(ctx, db)
	if err != nil {
		return failure("list the tables", err)
	}

	to, err := db.BeginTx(ctx, nil)
	if err != nil {
		return failure("write the copy", err)
	}

	defer func() { _ = to.Rollback() }() // no effect after Commit

	for _, table := range names {
		if err := copyTable(ctx, from, to, table, columns[table]); err != nil {
			return failure("copy the table "+table, err)
		}
	}

	return failure("write the copy", to.Commit())
}

// newPortable makes a SQLite database with the tables of the yard and nothing in them.
func newPortable(ctx context.Context, file string) (*sqliteEngine, *dbsql.DB, error) {
	made, err := Open(ctx, file, Options{})
	if err != nil {
		return nil, nil, err
	}
	if err := made.Close(); err != nil {
		return nil, nil, err
	}

	eng, err := newSQLite(file)
	if err != nil {
		return nil, nil, err
	}

	lite, ok := eng.(*sqliteEngine)
	if !ok {
		return nil, nil, fmt.Errorf("%T is not an engine of files", eng)
	}

	// Nobody reads the file before it is complete, so a crash may leave anything in it.
	db, err := lite.connect("", "journal_mode(off)", "synchronous(off)")
	if err != nil {
		return nil, nil, failure("create the copy", err)
	}

	db.SetMaxOpenConns(1)

	return lite, db, nil
}

// sameSchema refuses a database whose tables are of another version.
func sameSchema(ctx context.Context, from pgx.Tx, lite *sqliteEngine) error {
	var have int64
	if err := from.QueryRow(ctx, `SELECT schema_version FROM meta WHERE one = 1`).Scan(&have); err != nil {
		if noTable(err) || errors.Is(err, pgx.ErrNoRows) {
			return fault.New(fault.NotFound, "no_database", "the database has no yard").WithCause(err)
		}

		return failure("read the schema's version", err)
	}

	steps, err := readMigrations(migrationFiles, lite.name())
	if err != nil {
		return err
	}

	want := int64(len(steps))
	switch {
	case have > want:
		return tooNew(have, want)
	case have < want:
		return fault.New(fault.Conflict, "schema_too_old", "the store has schema %d, but this version copies schema %d", have,
			want).WithRemedy("run the version of trainyard that the server has, or upgrade the server first")
	}

	return nil
}

// copyTable copies the rows of a table into an empty one of the same name.
func copyTable(ctx context.Context, from pgx.Tx, to *dbsql.Tx, table string, list []field) error {
	// What migrations put there goes. Names of tables are those of the schema.
	if _, err := to.ExecContext(ctx, fmt.Sprintf(`DELETE FROM "%s"`, table)); err != nil {
		return err
	}

	insert, err := to.PrepareContext(ctx, fmt.Sprintf(`INSERT INTO "%s" (%s) VALUES (%s)`, table, quoted(list),
		strings.TrimSuffix(strings.Repeat("?, ", len(list)), ", ")))
	if err != nil {
		return err
	}

	defer func() { _ = insert.Close() }()

	rows, err := from.Query(ctx, fmt.Sprintf(`SELECT %s FROM "%s"`, quoted(list), table))
	if err != nil {
		return err
	}

	defer rows.Close()

	for rows.Next() {
		values, err := rows.Values()
		if err != nil {
			return err
		}
		if _, err := insert.ExecContext(ctx, values...); err != nil {
			return err
		}
	}

	return rows.Err()
}

// putBack replaces the rows of all tables in one transaction, in which no server can begin to lead. The former ones are
// copied first.
func (e *postgresEngine) putBack(ctx context.Context, file string, former Former) (kept string, err error) {
	s, err := openEngine(ctx, e, Options{})
	if err != nil {
		return "", err
	}

	defer func() { err = errors.Join(err, s.Close()) }()

	used, err := s.used(ctx)
	if err != nil {
		return "", err
	}

	if used {
		kept = former.Keep
		if err := backup(ctx, e, kept); err != nil {
			return "", fmt.Errorf("keep the present database: %w", err)
		}
	}

	from, err := upToDate(ctx, file, former.Keep+".migrated")
	if err != nil {
		return "", err
	}

	defer func() { err = errors.Join(err, from.Close(), removeDatabase(former.Keep+".migrated")) }()

	short, cancel := context.WithTimeout(ctx, 2*former.Lease) // a server that was killed leads until its lease has expired
	defer cancel()

	name := fmt.Sprintf("restore-%d", rand.Int64())
	if _, err := s.Lead(short, store.Candidate{Server: store.Server{Name: name}, Lease: former.Lease}); err != nil {
		if kept != "" {
			err = errors.Join(err, removeDatabase(kept))
		}

		return "", databaseInUse(e, err)
	}

	err = s.replaceRows(ctx, from)

	return kept, errors.Join(err, s.Resign(ctx))
}

// used reports whether anybody has ever used the yard of a database.
func (s *Store) used(ctx context.Context) (bool, error) {
	users, err := s.Users(ctx, "", 1)

	return len(users) > 0, err
}

// upToDate opens a backup with the tables of this version. The backup itself is left as it is.
func upToDate(ctx context.Context, file, migrated string) (*dbsql.DB, error) {
	if err := removeDatabase(migrated); err != nil {
		return nil, fmt.Errorf("remove what an earlier restore left: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(migrated), 0o700); err != nil {
		return nil, fmt.Errorf("create a folder for the copy: %w", err)
	}
	if err := copyBackup(file, migrated); err != nil {
		return nil, fmt.Errorf("copy the backup: %w", err)
	}

	s, err := Open(ctx, migrated, Options{})
	if err != nil {
		return nil, err
	}
	if err := s.Close(); err != nil {
		return nil, err
	}

	return (&sqliteEngine{path: migrated}).connect("mode=ro")
}

// replaceRows replaces what is in the tables by what the copy has.
func (s *Store) replaceRows(ctx context.Context, from *dbsql.DB) (err error) {
	columns, names, err := tables(ctx, from)
	if err != nil {
		return failure("list the tables", err)
	}

	conn, err := s.write.Conn(ctx)
	if err != nil {
		return failure("connect to the database", err)
	}

	defer func() { err = errors.Join(err, conn.Close()) }()

	to, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return failure("write the database", err)
	}

	defer func() { _ = to.Rollback() }() // no effect after Commit

	if err := s.fence(ctx, to); err != nil {
		return err
	}

	for _, table := range names {
		if _, err := to.ExecContext(ctx, fmt.Sprintf(`DELETE FROM "%s"`, table)); err != nil {
			return failure("empty the table "+table, err)
		}
		if err := sendRows(ctx, conn, from, table, columns[table]); err != nil {
			return failure("write the table "+table, err)
		}
	}

	return failure("write the database", to.Commit())
}

// sendRows sends the rows of a table in the database's own form for many rows.
func sendRows(ctx context.Context, conn *dbsql.Conn, from *dbsql.DB, table string, list []field) (err error) {
	rows, err := from.QueryContext(ctx, fmt.Sprintf(`SELECT %s FROM "%s"`, quoted(list), table))
	if err != nil {
		return err
	}

	defer func() { err = errors.Join(err, rows.Close()) }()

	names := make([]string, len(list))
	for i, c := range list {
		names[i] = c.name
	}

	return conn.Raw(func(driver any) error {
		c, ok := driver.(*stdlib.Conn)
		if !ok {
			return fmt.Errorf("the driver %T cannot take many rows", driver)
		}

		_, err := c.Conn().CopyFrom(ctx, pgx.Identifier{table}, names, &rowSource{Rows: rows, columns: list})

		return errors.Join(err, rows.Err())
	})
}

// rowSource passes rows of SQLite on to PostgreSQL.
type rowSource struct {
	*dbsql.Rows

	columns []field
}

// Values returns the present row. SQLite keeps truth values as numbers.
func (r *rowSource) Values() ([]any, error) {
	values := make([]any, len(r.columns))
	at := make([]any, len(values))

	for i := range values {
		at[i] = &values[i]
	}

	if err := r.Scan(at...); err != nil {
		return nil, err
	}

	for i, v := range values {
		if n, ok := v.(int64); ok && r.columns[i].kind == "BOOLEAN" {
			values[i] = n != 0
		}
	}

	return values, nil
}
