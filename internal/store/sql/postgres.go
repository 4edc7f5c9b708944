package sql

import (
	"context"
	dbsql "database/sql"
	"errors"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"trainyard/internal/fault"
)

// Connections of one server: Commit and Ping use those for writing, queries those for reading.
const (
	postgresWriters = 2
	postgresReaders = 8
)

// postgresLock is the number of the writer's advisory lock within the yard's database.
const postgresLock = 0x7472616e79617264

type postgresEngine struct{ config *pgx.ConnConfig }

func newPostgres(url string) (engine, error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, fault.New(fault.Invalid, "store_url", "invalid store address").
			WithRemedy("write it as postgres://user:password@host:5432/database").WithCause(err)
	}

	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "trainyard"
	}

	return &postgresEngine{config: config}, nil
}

func (*postgresEngine) name() string { return "postgres" }

func (e *postgresEngine) open() (write, read *dbsql.DB, err error) {
	write = stdlib.OpenDB(*e.config.Copy())
	write.SetMaxOpenConns(postgresWriters)
	write.SetMaxIdleConns(postgresWriters)
	read = stdlib.OpenDB(*e.config.Copy())
	read.SetMaxOpenConns(postgresReaders)
	read.SetMaxIdleConns(postgresReaders)

	return write, read, nil
}

// lock takes an advisory lock on a connection of its own; the database releases it when the
// connection is closed.
func (e *postgresEngine) lock(ctx context.Context) (unlock func() error, err error) {
	conn, err := pgx.ConnectConfig(ctx, e.config.Copy())
	if err != nil {
		return nil, err
	}

	release := func() error { return conn.Close(context.WithoutCancel(ctx)) }

	err = waitLock(ctx, func() (bool, error) {
		var locked bool
		err := conn.QueryRow(ctx, `SELECT pg_try_advisory_lock($1)`, int64(postgresLock)).Scan(&locked)
		return locked, err
	})
	if err != nil {
		return nil, errors.Join(err, release())
	}

	return release, nil
}

func (*postgresEngine) schema(statement string) string { return statement }

func (*postgresEngine) mark(n int) string { return "$" + strconv.Itoa(n) }

// chunks keeps the number of round trips small for many rows, with only a few different statements
// to prepare.
func (*postgresEngine) chunks() []int { return []int{256, 128, 64, 32, 16, 8, 4, 2, 1} }

func (*postgresEngine) risks(ctx context.Context, db *dbsql.DB) ([]string, error) {
	return collect(ctx, db, "setting", `SELECT name FROM pg_settings
		WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit') AND setting = 'off' ORDER BY name`,
		nil, func(row scanner) (string, error) {
			var name string
			err := row.Scan(&name)
			return name, err
		})
}
