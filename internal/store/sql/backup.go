package sql

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"modernc.org/sqlite"

	"trainyard/internal/atomicfile"
	"trainyard/internal/fault"
)

// Backup writes a copy of the database at url to a new file. Whatever the store is, the file is a SQLite database with
// the same tables, so that it can be put back into either. The copy is consistent, also while a server
// writes to the database, and it is checked before it gets its name.
func Backup(ctx context.Context, url, file string) error {
	eng, err := engineOf(url)
	if err != nil {
		return err
	}

	return backup(ctx, eng, file)
}

func backup(ctx context.Context, eng engine, file string) error {
	if _, err := os.Lstat(file); err == nil {
		return fault.New(fault.Conflict, "file_exists", "%s already exists", file).WithRemedy("choose another name")
	}

	// Under another name first: a file with the name that was asked for is a complete backup.
	part := file + ".part"
	if err := removeDatabase(part); err != nil {
		return fmt.Errorf("remove an unfinished backup: %w", err)
	}

	// The file contains hashes of tokens, so only its owner may read it. SQLite keeps its mode.
	if err := os.WriteFile(part, nil, 0o600); err != nil {
		return fmt.Errorf("create the backup: %w", err)
	}

	err := eng.copyTo(ctx, part)
	if err == nil {
		err = checkBackup(ctx, part)
	}

	if err != nil {
		return errors.Join(err, removeDatabase(part))
	}

	return finishFile(part, file)
}

// removeDatabase removes a SQLite database with the files that belong to it, as far as they are there.
func removeDatabase(path string) error {
	var errs []error
	for _, suffix := range append([]string{"-journal"}, walSuffixes...) {
		if err := os.Remove(path + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}

	return errors.Join(errs...)
}

// copyPages is how many pages of a database are copied between two looks at whether the copy is still wanted.
const copyPages = 4096

// pageCopier is the connection of the driver, as far as it copies databases page by page.
type pageCopier interface {
	NewBackup(to string) (*sqlite.Backup, error)
}

// copyTo copies the pages of the database as they are in one transaction that reads: that is as fast as the disk, and
// writers do not wait for it.
func (e *sqliteEngine) copyTo(ctx context.Context, file string) (err error) {
	if _, err := os.Stat(e.path); err != nil {
		return fault.New(fault.NotFound, "no_database", "no database at %s", e.path).WithCause(err)
	}

	db, err := e.connect("", "busy_timeout(5000)")
	if err != nil {
		return failure("open the database", err)
	}

	defer func() { err = errors.Join(err, db.Close()) }()

	conn, err := db.Conn(ctx)
	if err != nil {
		return failure("open the database", err)
	}

	defer func() { err = errors.Join(err, conn.Close()) }()

	// The transaction begins with its first read. Without it the copy would begin anew after every commit of the server.
	var tables int
	if _, err := conn.ExecContext(ctx, `BEGIN`); err != nil {
		return failure("read the database", err)
	}
	if err := conn.QueryRowContext(ctx, `SELECT COUNT(*) FROM sqlite_master`).Scan(&tables); err != nil {
		return failure("read the database", err)
	}

	err = conn.Raw(func(driver any) error {
		c, ok := driver.(pageCopier)
		if !ok {
			return fmt.Errorf("the driver %T cannot copy databases", driver)
		}

		copying, err := c.NewBackup(file)
		if err != nil {
			return err
		}

		for more := true; more && err == nil; {
			more, err = copying.Step(copyPages)
			if ctx.Err() != nil {
				err = ctx.Err()
			}
		}

		return errors.Join(err, copying.Finish())
	})

	_, ended := conn.ExecContext(context.WithoutCancel(ctx), `ROLLBACK`)

	return failure("copy the database", errors.Join(err, ended))
}

// finishFile makes a file durable and gives it its name.
func finishFile(part, name string) (err error) {
	f, err := os.OpenFile(part, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}

	err = errors.Join(f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(part, name)
	}

	if err == nil {
		err = atomicfile.SyncDir(filepath.Dir(name))
	}

	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}

	return nil
}

// lockWait is how long PutBack waits for a server that uses the database to end.
const lockWait = 2 * time.Second

// Former says what becomes of the database that a backup replaces.
type Former struct {
	Keep string // file to which that of a database server is copied; a SQLite database is renamed beside itself
	// Lease is for how long others are kept from leading while a database server's tables are replaced.
	Lease time.Duration
}

// PutBack makes a backup the database at url. The present database, if there is one, is kept
// in the file that is returned. It fails if a server uses the database.
func PutBack(ctx context.Context, url, file string, former Former) (kept string, err error) {
	eng, err := engineOf(url)
	if err != nil {
		return "", err
	}
	if err := checkBackup(ctx, file); err != nil {
		return "", err
	}

	return eng.putBack(ctx, file, former)
}

// putBack copies the backup beside the database and lets them change places.
func (e *sqliteEngine) putBack(ctx context.Context, file string, _ Former) (kept string, err error) {
	if err := os.MkdirAll(filepath.Dir(e.path), 0o700); err != nil {
		return "", fmt.Errorf("create the store's folder: %w", err)
	}

	short, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()

	unlock, err := e.lock(short)
	if err != nil {
		return "", databaseInUse(e, err)
	}

	defer func() { err = errors.Join(err, unlock()) }()

	part := e.path + ".part"
	if err := copyBackup(file, part); err != nil {
		return "", fmt.Errorf("copy the backup: %w", err)
	}

	kept, err = e.putAside()
	if err != nil {
		return "", fmt.Errorf("put the present database aside: %w", err)
	}

	return kept, finishFile(part, e.path)
}

func databaseInUse(e engine, cause error) error {
	return fault.New(fault.Conflict, "database_in_use", "a server is using %s", e.place()).
		WithRemedy("stop all servers of the yard first").WithCause(cause)
}

// checkBackup refuses a file that is not a complete backup that this version can use.
func checkBackup(ctx context.Context, file string) (err error) {
	notBackup := func(err error) error {
		return fault.New(fault.Invalid, "not_a_backup", "%s is not a backup of a Trainyard database", file).WithCause(err)
	}

	if _, err := os.Stat(file); err != nil {
		return fault.New(fault.NotFound, "no_backup", "no file %s", file).WithCause(err)
	}

	eng, err := newSQLite(file)
	if err != nil {
		return err
	}

	lite, ok := eng.(*sqliteEngine)
	if !ok {
		return notBackup(nil)
	}

	db, err := lite.connect("mode=ro&immutable=1")
	if err != nil {
		return notBackup(err)
	}

	defer func() { err = errors.Join(err, db.Close()) }()

	var version int64
	if err := db.QueryRowContext(ctx, `SELECT schema_version FROM meta WHERE one = 1`).Scan(&version); err != nil {
		return notBackup(err)
	}

	steps, err := readMigrations(migrationFiles, lite.name())
	if err != nil {
		return err
	}
	if version > int64(len(steps)) {
		return tooNew(version, int64(len(steps)))
	}

	var result string
	if err := db.QueryRowContext(ctx, `PRAGMA quick_check(1)`).Scan(&result); err != nil || result != "ok" {
		return fault.New(fault.Invalid, "damaged_backup", "the backup %s is damaged: %s", file, result).WithCause(err)
	}

	return nil
}

// walSuffixes are those of the files that belong to a database.
var walSuffixes = []string{"", "-wal", "-shm"}

// putAside renames the database with the files that belong to it and returns its new name, "" if
// there is none.
func (e *sqliteEngine) putAside() (string, error) {
	if _, err := os.Stat(e.path); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}

	name := e.path + ".replaced"
	for n := 2; ; n++ {
		_, err := os.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err != nil {
			return "", err
		}

		name = e.path + ".replaced-" + strconv.Itoa(n)
	}

	for _, suffix := range walSuffixes {
		if err := os.Rename(e.path+suffix, name+suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}

	return name, nil
}

func copyBackup(from, to string) (err error) {
	src, err := os.Open(from)
	if err != nil {
		return err
	}

	defer func() { _ = src.Close() }() // it was only read

	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}

	_, err = io.Copy(dst, src)

	return errors.Join(err, dst.Close())
}
