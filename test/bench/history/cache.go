package history

import (
	"cmp"
	"context"
	"crypto/sha256"
	dbsql "database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"trainyard/internal/clock"
	sqlstore "trainyard/internal/store/sql"
)

// Cache keeps filled stores between runs: to fill one with a million jobs takes minutes.
type Cache struct {
	Dir   string
	Clock clock.Clock
	Notes io.Writer // progress, for people
}

// Stored is a filled SQLite store. Who uses it uses a copy.
type Stored struct {
	Path string    // of the database
	At   time.Time // when it was filled: the newest of its jobs ended then
}

// content counts the changes of what Fill writes: stores that were filled before such a change are not used any more.
const content = 3

// maxKept is how many stores are kept; that which was used least recently goes first.
const maxKept = 3

const (
	databaseFile = "yard.db"
	timeFile     = "filled" // written last: without it the store is not whole
)

// DefaultDir is the folder in the user's cache.
func DefaultDir() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the user's cache: %w", err)
	}

	return filepath.Join(dir, "trainyard", "bench-history"), nil
}

// Store returns a store of that size with the schema of this build, and fills one if there is none.
func (c *Cache) Store(ctx context.Context, size Size) (Stored, error) {
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return Stored{}, fmt.Errorf("make the folder of stores: %w", err)
	}

	schema, err := schemaDigest(ctx, c.Clock)
	if err != nil {
		return Stored{}, err
	}

	name := fmt.Sprintf("%d-%d-%d-%s", size.Finished, size.Queued, content, schema)
	dir := filepath.Join(c.Dir, name)

	found, err := read(dir)
	if err == nil {
		now := c.Clock.Now()
		return found, os.Chtimes(dir, now, now)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return Stored{}, err
	}

	if err := c.make(ctx, dir, size); err != nil {
		return Stored{}, err
	}

	return read(dir)
}

// read returns the store in a folder.
func read(dir string) (Stored, error) {
	text, err := os.ReadFile(filepath.Join(dir, timeFile))
	if err != nil {
		return Stored{}, err
	}

	at, err := time.Parse(time.RFC3339Nano, strings.TrimSpace(string(text)))
	if err != nil {
		return Stored{}, fmt.Errorf("read when the store in %s was filled: %w", dir, err)
	}

	return Stored{Path: filepath.Join(dir, databaseFile), At: at}, nil
}

// make fills a store beside the others and puts it in its place when it is whole.
func (c *Cache) make(ctx context.Context, dir string, size Size) error {
	if err := c.prune(maxKept - 1); err != nil {
		return err
	}

	began := c.Clock.Now()
	_, _ = fmt.Fprintf(c.Notes, "   filling a store with %d ended and %d queued jobs\n", size.Finished, size.Queued)

	scratch, err := os.MkdirTemp(c.Dir, ".filling-")
	if err != nil {
		return fmt.Errorf("make a folder for a store: %w", err)
	}

	defer func() { _ = os.RemoveAll(scratch) }() // it is gone if all went well

	err = Fill(ctx, c.Clock, filepath.Join(scratch, databaseFile), size)
	if err != nil {
		return fmt.Errorf("fill a store: %w", err)
	}

	// A lock that a server took belongs to its process, not to the copy.
	if err := os.Remove(filepath.Join(scratch, databaseFile+".lock")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("tidy up a filled store: %w", err)
	}

	text := began.Format(time.RFC3339Nano) + "\n"
	if err := os.WriteFile(filepath.Join(scratch, timeFile), []byte(text), 0o600); err != nil {
		return fmt.Errorf("note when a store was filled: %w", err)
	}
	if err := os.Rename(scratch, dir); err != nil {
		return fmt.Errorf("keep a filled store: %w", err)
	}

	_, _ = fmt.Fprintf(c.Notes, "   filled in %s; kept in %s\n", c.Clock.Now().Sub(began).Round(time.Second), dir)

	return nil
}

// prune removes the stores that were used least recently, but for so many. Whoever uses a store has made a copy
// of it, or has it open.
func (c *Cache) prune(keep int) error {
	list, err := os.ReadDir(c.Dir)
	if err != nil {
		return fmt.Errorf("list stores: %w", err)
	}

	var dirs []fs.FileInfo

	for _, entry := range list {
		info, err := entry.Info()
		if err != nil {
			return fmt.Errorf("list stores: %w", err)
		}

		if info.IsDir() && !strings.HasPrefix(info.Name(), ".") {
			dirs = append(dirs, info)
		}
	}

	slices.SortFunc(dirs, func(a, b fs.FileInfo) int {
		return cmp.Or(b.ModTime().Compare(a.ModTime()), cmp.Compare(a.Name(), b.Name()))
	})

	for i := keep; i < len(dirs); i++ {
		if err := os.RemoveAll(filepath.Join(c.Dir, dirs[i].Name())); err != nil {
			return fmt.Errorf("remove an old store: %w", err)
		}
	}

	return nil
}

// schemaDigest identifies the schema that this build gives a store.
func schemaDigest(ctx context.Context, clk clock.Clock) (digest string, err error) {
	dir, err := os.MkdirTemp("", "trainyard-bench-schema-")
	if err != nil {
		return "", fmt.Errorf("make a folder for a store: %w", err)
	}

	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	path := filepath.Join(dir, databaseFile)

	st, err := sqlstore.Open(ctx, path, sqlstore.Options{Clock: clk})
	if err != nil {
		return "", err
	}
	if err := st.Close(); err != nil {
		return "", err
	}

	db, err := dbsql.Open("sqlite", path)
	if err != nil {
		return "", fmt.Errorf("read the schema: %w", err)
	}

	defer func() { err = errors.Join(err, db.Close()) }()

	var text string

	const all = `SELECT group_concat(sql, ';') FROM (
		SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY type, name)`
	if err := db.QueryRowContext(ctx, all).Scan(&text); err != nil {
		return "", fmt.Errorf("read the schema: %w", err)
	}

	sum := sha256.Sum256([]byte(text))

	return hex.EncodeToString(sum[:6]), nil
}
