package sql

import (
	"context"
	dbsql "database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	_ "modernc.org/sqlite" // registers the driver "sqlite"

	"trainyard/internal/fault"
)

// sqliteReaders is the number of queries that may run at the same time.
const sqliteReaders = 8

type sqliteEngine struct{ path string }

func newSQLite(path string) (engine, error) {
	if path == "" {
		return nil, fault.New(fault.Invalid, "store_url", "the store's address must name a file").
			WithRemedy("write a path or sqlite:///path/file.db")
	}

	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("find the store's file: %w", err)
	}

	return &sqliteEngine{path: abs}, nil
}

func (*sqliteEngine) name() string { return "sqlite" }

func (e *sqliteEngine) place() string { return e.path }

// open opens one connection for writing and several for reading. Readers see the last commit and
// never wait. A commit is on the disk when it returns.
func (e *sqliteEngine) open(Timeouts) (pools, error) {
	if err := os.MkdirAll(filepath.Dir(e.path), 0o700); err != nil {
		return pools{}, fmt.Errorf("create the store's folder: %w", err)
	}

	// The file contains hashes of tokens and the settings of jobs, so only its owner may read it.
	file, err := os.OpenFile(e.path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return pools{}, fmt.Errorf("create the store's file: %w", err)
	}
	if err := file.Close(); err != nil {
		return pools{}, fmt.Errorf("create the store's file: %w", err)
	}

	write, err := e.connect(
		"_txlock=immediate",
		"busy_timeout(5000)",
		"journal_mode(wal)",
		"synchronous(full)",
		"wal_autocheckpoint(4000)",
		"cache_size(-65536)",
		"temp_store(memory)",
	)
	if err != nil {
		return pools{}, err
	}

	write.SetMaxOpenConns(1)

	read, err := e.readers(sqliteReaders)
	if err != nil {
		return pools{}, errors.Join(err, write.Close())
	}

	reports, err := e.readers(reportReaders)
	if err != nil {
		return pools{}, errors.Join(err, write.Close(), read.Close())
	}

	return pools{write: write, read: read, reports: reports, lease: write}, nil
}

// readers returns a pool of connections that only read.
func (e *sqliteEngine) readers(n int) (*dbsql.DB, error) {
	db, err := e.connect("", "busy_timeout(5000)", "query_only(1)", "cache_size(-16384)")
	if err != nil {
		return nil, err
	}

	db.SetMaxOpenConns(n)
	db.SetMaxIdleConns(n)

	return db, nil
}

// dropIdle keeps the connections: a file is not broken by a slow disk.
func (*sqliteEngine) dropIdle(...*dbsql.DB) {}

// locksForLife is true: the kernel keeps the lock on the file as long as the process has it open.
func (*sqliteEngine) locksForLife() bool { return true }

// keyShare and forUpdate add nothing: a transaction that writes has the whole database.
func (*sqliteEngine) keyShare() string { return "" }

func (*sqliteEngine) forUpdate() string { return "" }

func (*sqliteEngine) keepsStatements() bool { return true }

func (*sqliteEngine) now() string {
	return "CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)"
}

func (e *sqliteEngine) connect(options string, pragmas ...string) (*dbsql.DB, error) {
	address := url.URL{Scheme: "file", Path: e.path}
	query := []string{options}
	for _, p := range pragmas {
		query = append(query, "_pragma="+p)
	}

	address.RawQuery = strings.Trim(strings.Join(query, "&"), "&")

	return dbsql.Open("sqlite", address.String())
}

// lock takes a lock on a file beside the database; the kernel releases it when the process ends.
func (e *sqliteEngine) lock(ctx context.Context) (unlock func() error, err error) {
	file, err := os.OpenFile(e.path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock file: %w", err)
	}

	err = waitLock(ctx, func() (bool, error) {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, syscall.EINTR) {
			return false, nil
		}

		return err == nil, err
	})
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}

	return file.Close, nil
}

// schema removes what only PostgreSQL needs: SQLite compares text by its bytes anyway, and only the
// type INTEGER makes a column the row ID.
func (*sqliteEngine) schema(statement string) string {
	return strings.NewReplacer("BIGINT PRIMARY KEY", "INTEGER PRIMARY KEY", ` COLLATE "C"`, "").Replace(statement)
}

// mark returns parameters without a number, because the driver looks numbered ones up by name, one
// by one.
func (*sqliteEngine) mark(int) string { return "?" }

// chunks returns single rows: there is no round trip to save, and the driver's time to bind
// parameters grows with the square of their number.
func (*sqliteEngine) chunks() []int { return []int{1} }

func (*sqliteEngine) risks(context.Context, *dbsql.DB) ([]string, error) { return nil, nil }
