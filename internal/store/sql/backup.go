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

	"trainyard/internal/atomicfile"
	"trainyard/internal/fault"
)

// Backup writes a copy of the SQLite database at url to a new file. The copy is consistent, also
// while a server writes to the database.
func Backup(ctx context.Context, url, file string) (err error) {
	eng, err := fileEngine(url, "backup")
	if err != nil {
		return err
	}

	if _, err := os.Stat(eng.path); err != nil {
		return fault.New(fault.NotFound, "no_database", "no database at %s", eng.path).WithCause(err)
	}
	if _, err := os.Lstat(file); err == nil {
		return fault.New(fault.Conflict, "file_exists", "%s already exists", file).WithRemedy("choose another name")
	}

	db, err := eng.connect("", "busy_timeout(5000)")
	if err != nil {
		return failure("open the database", err)
	}

	defer func() { err = errors.Join(err, db.Close()) }()

	// Under another name first: a file with the name that was asked for is a complete backup.
	part := file + ".part"
	if err := os.Remove(part); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove an unfinished backup: %w", err)
	}

	// The file contains hashes of tokens, so only its owner may read it. SQLite keeps its mode.
	if err := os.WriteFile(part, nil, 0o600); err != nil {
		return fmt.Errorf("create the backup: %w", err)
	}
	if _, err := db.ExecContext(ctx, `VACUUM INTO $1`, part); err != nil {
		return errors.Join(failure("copy the database", err), os.Remove(part))
	}

	return finishFile(part, file)
}

// fileEngine returns the engine of a store that is a file.
func fileEngine(url, command string) (*sqliteEngine, error) {
	eng, err := engineOf(url)
	if err != nil {
		return nil, err
	}

	lite, ok := eng.(*sqliteEngine)
	if !ok {
		return nil, fault.New(fault.Invalid, "not_sqlite", "%s copies SQLite databases only", command).
			WithRemedy("use pg_dump and pg_restore for a PostgreSQL database")
	}

	return lite, nil
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

// PutBack makes a backup the SQLite database at url. The present database, if there is one, is kept
// under the name that is returned. It fails if a server uses the database.
func PutBack(ctx context.Context, url, file string) (kept string, err error) {
	eng, err := fileEngine(url, "restore")
	if err != nil {
		return "", err
	}
	if err := checkBackup(ctx, file); err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(eng.path), 0o700); err != nil {
		return "", fmt.Errorf("create the store's folder: %w", err)
	}

	short, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()

	unlock, err := eng.lock(short)
	if err != nil {
		return "", fault.New(fault.Conflict, "database_in_use", "a server is using %s", eng.path).
			WithRemedy("stop it first").WithCause(err)
	}

	defer func() { err = errors.Join(err, unlock()) }()

	part := eng.path + ".part"
	if err := copyBackup(file, part); err != nil {
		return "", fmt.Errorf("copy the backup: %w", err)
	}

	kept, err = eng.putAside()
	if err != nil {
		return "", fmt.Errorf("put the present database aside: %w", err)
	}

	return kept, finishFile(part, eng.path)
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
