package sql

import (
	"context"
	dbsql "database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/store"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// migration is one step of the schema. Steps are never undone.
type migration struct {
	version int64
	name    string
	text    string
}

// readMigrations reads migrations/NNNN_name.sql in order, or NNNN_name.ENGINE.sql where the engines
// need different texts.
func readMigrations(files fs.FS, engine string) ([]migration, error) {
	paths, err := fs.Glob(files, "migrations/*.sql")
	if err != nil {
		return nil, fmt.Errorf("list the migrations: %w", err)
	}

	slices.Sort(paths)
	var steps []migration

	for _, path := range paths {
		name := strings.TrimSuffix(strings.TrimPrefix(path, "migrations/"), ".sql")
		name, only, _ := strings.Cut(name, ".")
		if only != "" && only != engine {
			continue
		}

		digits, _, _ := strings.Cut(name, "_")
		version, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || version != int64(len(steps)+1) {
			return nil, fmt.Errorf("migration %s: its number must be %d", path, len(steps)+1)
		}

		text, err := fs.ReadFile(files, path)
		if err != nil {
			return nil, fmt.Errorf("read migration %s: %w", path, err)
		}

		steps = append(steps, migration{version: version, name: name, text: string(text)})
	}

	return steps, nil
}

// statements splits a text at lines that end with a semicolon, because not every driver accepts
// more than one statement. Comment lines are left out.
func statements(text string) []string {
	var out []string
	var current strings.Builder
	for line := range strings.Lines(text) {
		trimmed := strings.TrimSpace(line)
		if strings.HasPrefix(trimmed, "--") || trimmed == "" {
			continue
		}

		current.WriteString(line)

		if strings.HasSuffix(trimmed, ";") {
			out = append(out, current.String())
			current.Reset()
		}
	}

	if strings.TrimSpace(current.String()) != "" {
		out = append(out, current.String())
	}

	return out
}

// metaTable holds one row: the version of the schema and the number of commits. It exists before any
// migration; what it had of the writer is in the table leadership since schema 10.
const metaTable = `CREATE TABLE IF NOT EXISTS meta (
	one BIGINT PRIMARY KEY CHECK (one = 1),
	schema_version BIGINT NOT NULL,
	holder TEXT NOT NULL,
	term BIGINT NOT NULL,
	acquired BIGINT NOT NULL,
	commits BIGINT NOT NULL
)`

// leadershipSince is the schema that has leadership.
const leadershipSince = 10

// migrationLease is for how long a server that has not finished its migration keeps others from leading.
const migrationLease = 30 * time.Second

// migrate brings the schema to the last step. Nothing may write meanwhile, so it holds the lock and
// leads; a schema that is up to date needs neither.
func (s *Store) migrate(ctx context.Context, steps []migration) error {
	have, err := s.schemaVersion(ctx)
	if err != nil {
		return s.failure("read the schema's version", err)
	}

	want := int64(len(steps))
	if have > want {
		return tooNew(have, want)
	}
	if have == want {
		return nil
	}

	unlock, err := s.engine.lock(ctx)
	if err != nil {
		return s.failure("wait for the writer before changing the schema", err)
	}

	have, err = s.schemaVersion(ctx) // another server may have changed it meanwhile
	if err == nil {
		err = s.leadAndApply(ctx, have, steps)
	}

	return errors.Join(s.failure("change the schema", err), unlock())
}

// leadAndApply applies the missing steps while no other server leads.
func (s *Store) leadAndApply(ctx context.Context, have int64, steps []migration) error {
	if have > int64(len(steps)) {
		return tooNew(have, int64(len(steps)))
	}

	leased := have >= leadershipSince && !s.engine.locksForLife()
	if leased {
		name := fmt.Sprintf("migration-%d", rand.Int64())
		if _, err := s.Lead(ctx, store.Candidate{Server: store.Server{Name: name}, Lease: migrationLease}); err != nil {
			return err
		}
	}

	err := s.applyAll(ctx, have, leased, steps)

	return errors.Join(err, s.Resign(ctx))
}

func tooNew(have, want int64) error {
	return fault.New(fault.Conflict, "schema_too_new",
		"the store has schema %d, but this version supports schemas up to %d", have, want).
		WithRemedy("run the version of trainyard that last used this store, or a newer one")
}

// schemaVersion returns the version of the schema, 0 for an empty database.
func (s *Store) schemaVersion(ctx context.Context) (int64, error) {
	var version int64
	err := s.write.QueryRowContext(ctx, `SELECT schema_version FROM meta WHERE one = 1`).Scan(&version)
	if errors.Is(err, dbsql.ErrNoRows) || noTable(err) {
		return 0, nil
	}

	return version, err
}

// applyAll applies all missing steps in one transaction.
func (s *Store) applyAll(ctx context.Context, have int64, leads bool, steps []migration) error {
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return s.failure("begin the migration", err)
	}

	defer func() { _ = tx.Rollback() }() // no effect after Commit

	if leads {
		if err := s.fence(ctx, tx); err != nil {
			return err
		}
	}

	if have == 0 {
		first := []string{
			s.engine.schema(metaTable),
			`INSERT INTO meta (one, schema_version, holder, term, acquired, commits) VALUES (1, 0, '', 0, 0, 0)
				ON CONFLICT (one) DO NOTHING`,
		}

		for _, statement := range first {
			if _, err := tx.ExecContext(ctx, statement); err != nil {
				return s.failure("create the table meta", err)
			}
		}
	}

	for _, step := range steps[have:] {
		for _, statement := range statements(step.text) {
			if _, err := tx.ExecContext(ctx, s.engine.schema(statement)); err != nil {
				return s.failure("apply migration "+step.name, err)
			}
		}

		s.log.Info("schema changed", "migration", step.name, "version", step.version)
	}

	if _, err := tx.ExecContext(ctx, `UPDATE meta SET schema_version = $1 WHERE one = 1`, int64(len(steps))); err != nil {
		return s.failure("write the schema's version", err)
	}

	return s.failure("commit the migration", tx.Commit())
}
