package sql

import (
	"context"
	dbsql "database/sql"
	"errors"
)

// keptStatements bounds how many queries are kept prepared; each takes memory on every connection. Few texts make up
// most of all queries: those that look up a job, a run or a key.
const keptStatements = 64

// QueryContext queries with a prepared statement, if statements are kept.
func (r *reader) QueryContext(ctx context.Context, query string, args ...any) (*dbsql.Rows, error) {
	stmt, err := r.statement(ctx, query) //nolint:sqlclosecheck // kept for later queries; Close closes it
	if err != nil {
		return nil, err
	}
	if stmt == nil {
		return r.DB.QueryContext(ctx, query, args...)
	}

	return stmt.QueryContext(ctx, args...)
}

// statement returns the prepared statement of a query; nil if it is not kept.
func (r *reader) statement(ctx context.Context, query string) (*dbsql.Stmt, error) {
	r.mu.Lock()
	stmt, full := r.prepared[query], len(r.prepared) >= keptStatements
	r.mu.Unlock()

	if stmt != nil || full || r.prepared == nil {
		return stmt, nil
	}

	stmt, err := r.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}

	r.mu.Lock()
	defer r.mu.Unlock()

	if other := r.prepared[query]; other != nil { // of another goroutine
		return other, stmt.Close() //nolint:sqlclosecheck // at once
	}

	r.prepared[query] = stmt

	return stmt, nil
}

// Close closes the statements and the connections.
func (r *reader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()

	var errs []error
	for _, stmt := range r.prepared {
		errs = append(errs, stmt.Close())
	}

	clear(r.prepared)

	return errors.Join(append(errs, r.DB.Close())...)
}
