package sql

import (
	"context"
	dbsql "database/sql"
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	"trainyard/internal/clock"
	"trainyard/internal/store"
)

// A candidate asks pollsPerLease times during a lease whether the leader still renews it.
const pollsPerLease = 8

// maxTermStep bounds how much a term is greater than the one before. Terms grow by random steps, so
// that a server of a yard that was restored from a backup does not meet its own old term again.
const maxTermStep = 1 << 20

// Lead begins a new term. Where the engine has a lock that lasts as long as the process, that lock
// is enough. Otherwise leadership is a lease: a candidate may begin a term when the leader has
// resigned, or when the candidate has seen on its own clock that the lease was not renewed for its
// whole length. The clocks of the database and of other servers do not matter, so nobody can gain or
// lose the lead because one of them was set.
func (s *Store) Lead(ctx context.Context, c store.Candidate) (time.Duration, error) {
	if s.engine.locksForLife() {
		return 0, s.leadByLock(ctx, c)
	}

	var watched expiry
	for failing := false; ; {
		took, err := s.tryLead(ctx, c, &watched)
		if took {
			return c.Lease, nil
		}

		if err != nil && !failing {
			s.log.WarnContext(ctx, "cannot ask the store who leads, trying again", "error", err,
				"cause", errors.Unwrap(err))
		}

		failing = err != nil

		if !clock.Sleep(ctx, c.Lease/pollsPerLease) {
			return 0, held(ctx)
		}
	}
}

// leadByLock waits for the engine's lock and begins a term.
func (s *Store) leadByLock(ctx context.Context, c store.Candidate) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.unlock == nil {
		unlock, err := s.engine.lock(ctx)
		if err != nil {
			return s.failure("wait for the lead", err)
		}

		s.unlock = unlock
	}

	seen, err := s.Leader(ctx)
	if err == nil {
		c.Lease = 0
		_, err = s.beginTerm(ctx, c, seen)
	}

	if err != nil {
		unlock := s.unlock
		s.unlock = nil
		return errors.Join(err, unlock())
	}

	return nil
}

// expiry is since when a candidate sees the same renewal of the same term.
type expiry struct {
	term, renewals int64
	since          time.Time
}

// passed reports whether the lease of a leader has expired for certain.
func (e *expiry) passed(now time.Time, l store.Leader) bool {
	if e.since.IsZero() || e.term != l.Term || e.renewals != l.Renewals {
		*e = expiry{term: l.Term, renewals: l.Renewals, since: now}
	}

	return now.Sub(e.since) >= l.Lease
}

// tryLead begins a term if nobody leads, and reports whether it did.
func (s *Store) tryLead(ctx context.Context, c store.Candidate, watched *expiry) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeouts.Commit)
	defer cancel()

	seen, err := s.Leader(ctx)
	if err != nil {
		return false, err
	}

	gone := seen.Name == c.Name || c.Former != "" && strings.HasPrefix(seen.Name, c.Former)
	if !watched.passed(s.clock.Now(), seen) && !gone {
		return false, nil
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	return s.beginTerm(ctx, c, seen)
}

// beginTerm begins a term if the leader is still the one that was seen and has not renewed its lease
// since. It waits for a commit of that leader which is under way. The caller holds s.mu.
func (s *Store) beginTerm(ctx context.Context, c store.Candidate, seen store.Leader) (bool, error) {
	tx, err := s.lease.BeginTx(ctx, nil)
	if err != nil {
		return false, s.failure("begin a new term", err)
	}

	defer func() { _ = tx.Rollback() }() // no effect after Commit

	term := seen.Term + 1 + rand.Int64N(maxTermStep)

	began, err := changed(tx.ExecContext(ctx,
		`UPDATE leadership SET term = $1, holder = $2, address = $3, lease = $4, renewals = renewals + 1
			WHERE one = 1 AND term = $5 AND renewals = $6`,
		term, clean(c.Name), clean(c.Address), c.Lease.Microseconds(), seen.Term, seen.Renewals))
	if err != nil || !began {
		return false, s.failure("begin a new term", err)
	}

	var commits int64
	if err := tx.QueryRowContext(ctx, `SELECT commits FROM meta WHERE one = 1`).Scan(&commits); err != nil {
		return false, s.failure("begin a new term", err)
	}
	if err := tx.Commit(); err != nil {
		return false, s.failure("begin a new term", err)
	}

	s.term.Store(term)
	s.keys.Store(newKeyFilter())
	s.commits, s.doubt = commits, nil

	return true, nil
}

// changed reports whether a statement changed a row.
func changed(result dbsql.Result, err error) (bool, error) {
	if err != nil {
		return false, err
	}

	rows, err := result.RowsAffected()

	return rows > 0, err
}

// Renew extends the lease of this store's term. It uses connections of its own and no lock that a
// commit holds.
func (s *Store) Renew(ctx context.Context) error {
	term := s.term.Load()
	if term == 0 {
		return store.ErrNotLeader
	}

	if s.engine.locksForLife() {
		return nil
	}

	renewed, err := changed(s.lease.ExecContext(ctx,
		`UPDATE leadership SET renewals = renewals + 1 WHERE one = 1 AND term = $1`, term))
	if err != nil {
		s.dropIdle(err, s.lease)
		return s.failure("renew the lease of the leader", err)
	}
	if !renewed {
		return store.ErrNotLeader
	}

	return nil
}

// Resign ends this store's term.
func (s *Store) Resign(ctx context.Context) error {
	term := s.term.Swap(0)
	if term == 0 {
		return nil
	}

	s.keys.Store(nil)

	ctx, cancel := context.WithTimeout(ctx, s.timeouts.Commit)
	defer cancel()

	_, err := s.lease.ExecContext(ctx,
		`UPDATE leadership SET lease = 0, renewals = renewals + 1 WHERE one = 1 AND term = $1`, term)

	s.mu.Lock()
	defer s.mu.Unlock()

	if s.unlock != nil {
		err = errors.Join(err, s.unlock())
		s.unlock = nil
	}

	return s.failure("resign", err)
}

// Leader returns who leads, or who did last.
func (s *Store) Leader(ctx context.Context) (store.Leader, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeouts.Read)
	defer cancel()

	var l store.Leader
	var lease int64
	err := s.lease.QueryRowContext(ctx, `SELECT term, holder, address, lease, renewals FROM leadership WHERE one = 1`).
		Scan(&l.Term, &l.Name, &l.Address, &lease, &l.Renewals)
	if err != nil {
		s.dropIdle(err, s.lease)
		return l, s.failure("read who leads", err)
	}

	l.Lease = time.Duration(lease) * time.Microsecond

	return l, nil
}

// Attend records that a server is there now, by the clock of the database.
func (s *Store) Attend(ctx context.Context, server store.Server) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeouts.Commit)
	defer cancel()

	//nolint:gosec // the text of the engine's clock is our own
	statement := `INSERT INTO servers (name, address, seen) VALUES ($1, $2, ` + s.engine.now() + `)
		ON CONFLICT (name) DO UPDATE SET address = excluded.address, seen = excluded.seen`
	_, err := s.lease.ExecContext(ctx, statement, clean(server.Name), clean(server.Address))

	// Every start of a server is a row; those of long ago are of no use to anybody.
	if err == nil {
		statement = `DELETE FROM servers WHERE seen < ` + s.engine.now() + ` - $1`
		_, err = s.lease.ExecContext(ctx, statement, forgetServer.Microseconds())
	}

	s.dropIdle(err, s.lease)

	return s.failure("record that the server is there", err)
}

// forgetServer is after how long a server that is gone is forgotten.
const forgetServer = 24 * time.Hour

// Servers lists the servers that were there recently.
func (s *Store) Servers(ctx context.Context, within time.Duration) ([]store.Server, error) {
	query := `SELECT name, address FROM servers WHERE seen >= ` + s.engine.now() + ` - $1 ORDER BY name`
	return collect(ctx, s.read, "server", query, []any{within.Microseconds()}, func(row scanner) (store.Server, error) {
		var one store.Server
		err := row.Scan(&one.Name, &one.Address)
		return one, err
	})
}

// fence fails the transaction unless this store's server leads, and locks the row of the leader so that no
// other server can begin a term before the transaction has ended.
func (s *Store) fence(ctx context.Context, tx *dbsql.Tx) error {
	return s.checkTerm(tx.QueryRowContext(ctx, s.fenceText()))
}

// fenceText returns the statement of fence.
func (s *Store) fenceText() string {
	return `SELECT term FROM leadership WHERE one = 1` + s.engine.keyShare()
}

// checkTerm fails unless the answer to fenceText is the term of this store's server.
func (s *Store) checkTerm(answer *dbsql.Row) error {
	var term int64
	if err := answer.Scan(&term); err != nil {
		return err
	}
	if mine := s.term.Load(); mine == 0 || term != mine {
		return store.ErrNotLeader
	}

	return nil
}
