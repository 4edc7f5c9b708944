package sql

import (
	"context"
	dbsql "database/sql"
	"errors"

	"trainyard/internal/fault"
)

// Acquire takes the writer's lock and begins a new term. The lock makes a second server wait while
// the first lives. The term stops a server that lost its lock without noticing, because every
// Commit checks the term in its own transaction.
func (s *Store) Acquire(ctx context.Context, holder string) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.unlock == nil {
		unlock, err := s.engine.lock(ctx)
		if err != nil {
			return failure("acquire the store", err)
		}

		s.unlock = unlock
	}

	var term int64
	err := s.write.QueryRowContext(ctx,
		`UPDATE meta SET holder = $1, term = term + 1, acquired = $2 WHERE one = 1 RETURNING term`,
		clean(holder), micros(s.clock.Now())).Scan(&term)
	if err != nil {
		unlock := s.unlock
		s.unlock = nil
		return errors.Join(failure("begin a new term", err), unlock())
	}

	s.holder, s.term = clean(holder), term

	return nil
}

// fence fails the transaction unless this store is still the writer. It locks the row, so that no
// other server can begin a term before this commit is complete.
func fence(ctx context.Context, tx *dbsql.Tx, holder string, term int64) error {
	result, err := tx.ExecContext(ctx,
		`UPDATE meta SET commits = commits + 1 WHERE one = 1 AND holder = $1 AND term = $2`, holder, term)
	if err != nil {
		return err
	}

	rows, err := result.RowsAffected()
	if err != nil {
		return err
	}
	if rows == 0 {
		return notWriter()
	}

	return nil
}

func notWriter() error {
	return fault.New(fault.Conflict, "not_writer", "this server is not the store's writer").
		WithRemedy("stop it: another server has taken over, or it never acquired the store")
}
