package sql

import (
	"context"
	dbsql "database/sql"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"trainyard/internal/fault"
)

// Connections of one server: Commit and Ping use those for writing, queries those for reading, and the
// leadership has its own.
const (
	postgresWriters = 2
	postgresReaders = 8
	postgresLeases  = 2
)

// postgresLock is the number of the advisory lock within the yard's database. A server of a version before
// the leadership holds it as long as it writes.
const postgresLock = 0x7472616e79617264

// When a connection is taken for broken. A server whose network is cut must not hold rows that the
// next leader needs for longer than a leader's lease lasts, so PostgreSQL gives up sooner than we do.
const (
	connectTimeout  = 3 * time.Second
	keepAliveAfter  = 5 * time.Second // without traffic
	keepAliveEvery  = 2 * time.Second
	keepAliveProbes = 3
	idleTransaction = 3 * time.Second // between two statements of a transaction that writes
)

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

	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = connectTimeout
	}

	return &postgresEngine{config: config}, nil
}

func (*postgresEngine) name() string { return "postgres" }

func (e *postgresEngine) place() string {
	return "the database " + e.config.Database + " at " + net.JoinHostPort(e.config.Host, strconv.Itoa(int(e.config.Port)))
}

func (e *postgresEngine) open(limits Timeouts) (pools, error) {
	e.config.DialFunc = (&net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{
			Enable: true, Idle: keepAliveAfter, Interval: keepAliveEvery, Count: keepAliveProbes,
		},
		Control: userTimeout(limits.Commit),
	}).DialContext

	pool := func(connections int, settings string) *dbsql.DB {
		db := stdlib.OpenDB(*e.config.Copy(), stdlib.OptionAfterConnect(func(ctx context.Context, c *pgx.Conn) error {
			_, err := c.PgConn().Exec(ctx, settings).ReadAll()
			return err
		}))
		db.SetMaxOpenConns(connections)
		db.SetMaxIdleConns(connections)

		return db
	}

	// PostgreSQL watches the connections from its side too: it is the one that holds the locks.
	watched := fmt.Sprintf("SET tcp_keepalives_idle = %d; SET tcp_keepalives_interval = %d; "+
		"SET tcp_keepalives_count = %d; SET tcp_user_timeout = %d",
		keepAliveAfter/time.Second, keepAliveEvery/time.Second, keepAliveProbes, limits.Commit.Milliseconds())
	patience := min(idleTransaction, limits.Commit)
	writing := fmt.Sprintf("%s; SET idle_in_transaction_session_timeout = %d", watched, patience.Milliseconds())

	return pools{
		write:   pool(postgresWriters, writing),
		read:    pool(postgresReaders, watched),
		reports: pool(reportReaders, watched),
		lease:   pool(postgresLeases, writing),
	}, nil
}

// dropIdle closes idle connections: when one hangs, the others that were made over the same path hang
// too, while new ones may work.
func (*postgresEngine) dropIdle(pools ...*dbsql.DB) {
	for _, db := range pools {
		most := db.Stats().MaxOpenConnections
		db.SetMaxIdleConns(0)
		db.SetMaxIdleConns(most)
	}
}

// locksForLife is false: the lock belongs to a connection, and a server can lose that without noticing.
func (*postgresEngine) locksForLife() bool { return false }

func (*postgresEngine) keyShare() string { return " FOR KEY SHARE" }

func (*postgresEngine) forUpdate() string { return " FOR UPDATE" }

// keepsStatements is false: the driver keeps those of each connection.
func (*postgresEngine) keepsStatements() bool { return false }

func (*postgresEngine) now() string {
	return "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)"
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
