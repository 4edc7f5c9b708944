package sql

import (
	"context"
	dbsql "database/sql"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/tenant"
)

// querier is a database or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*dbsql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *dbsql.Row
}

// reader is the pool of connections for queries, each of which has a time limit.
type reader struct {
	*dbsql.DB
	limit  time.Duration
	failed func(error) // is called with the error of a query

	mu       sync.Mutex
	prepared map[string]*dbsql.Stmt // by their text; nil if none are kept
}

// collect reads all rows of a query.
func collect[T any](
	ctx context.Context,
	q querier,
	what, query string,
	args []any,
	read func(scanner) (T, error),
) (out []T, err error) {
	if r, ok := q.(*reader); ok {
		bounded, cancel := context.WithTimeout(ctx, r.limit)
		defer cancel()

		ctx = bounded
	}

	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		if r, ok := q.(*reader); ok {
			r.failed(err)
		}

		return nil, failure("read "+what+"s", err)
	}

	defer func() { err = errors.Join(err, rows.Close()) }()

	for rows.Next() {
		value, err := read(rows)
		if err != nil {
			return nil, badRow(ctx, what, err)
		}

		out = append(out, value)
	}

	return out, failure("read "+what+"s", rows.Err())
}

// one reads the first row of a query. If there is none it returns the error missing.
func one[T any](
	ctx context.Context,
	q querier,
	what, query string,
	args []any,
	read func(scanner) (T, error),
	missing *fault.Error,
) (T, error) {
	all, err := collect(ctx, q, what, query, args, read)
	var zero T
	switch {
	case err != nil:
		return zero, err
	case len(all) == 0:
		return zero, missing
	}

	return all[0], nil
}

// Job returns one job.
func (s *Store) Job(ctx context.Context, j id.Job) (job.Job, error) {
	missing := fault.New(fault.NotFound, "job_not_found", "job %s not found", j)
	num, err := jobNumber(j)
	if err != nil {
		return job.Job{}, missing
	}

	stored, err := one(ctx, s.read, "job", jobTable.selects()+`WHERE num = $1`, []any{num}, scanJob, missing)
	if err != nil {
		return job.Job{}, err
	}

	jobs, err := s.decodeJobs(ctx, s.read, []storedJob{stored})
	if err != nil {
		return job.Job{}, err
	}

	return jobs[0], nil
}

// JobByKey returns the first job that was submitted with the key.
func (s *Store) JobByKey(ctx context.Context, owner id.User, key string) (job.Job, error) {
	missing := fault.New(
		fault.NotFound,
		"job_not_found",
		"%s has not submitted a job with the idempotency key %q",
		owner,
		key,
	)

	k := submitKey{clean(string(owner)), clean(key)}

	never, err := s.neverStored(ctx, k)
	if err != nil {
		return job.Job{}, err
	}
	if never {
		return job.Job{}, missing
	}

	num, err := one(ctx, s.read, "job", keyQuery, []any{k.owner, k.key}, readNumber, missing)
	if err != nil {
		return job.Job{}, err
	}

	return s.Job(ctx, id.NewJob(uint64(num)))
}

const keyQuery = `SELECT num FROM jobs WHERE owner = $1 AND idem_key = $2 AND idem_key <> '' ORDER BY num LIMIT 1`

func readNumber(row scanner) (num int64, err error) {
	err = row.Scan(&num)
	return num, err
}

// Pipeline returns the jobs that share the pipeline name, in order of submission.
func (s *Store) Pipeline(ctx context.Context, pipeline string) ([]job.Job, error) {
	query := jobTable.selects() + `WHERE pipeline = $1 AND pipeline <> '' ORDER BY num`

	stored, err := collect(ctx, s.read, "job", query, []any{clean(pipeline)}, scanJob)
	if err != nil {
		return nil, err
	}

	return s.decodeJobs(ctx, s.read, stored)
}

// Runs returns all runs of a job.
func (s *Store) Runs(ctx context.Context, j id.Job) ([]job.Run, error) {
	num, ok := j.Number()
	if !ok || num > math.MaxInt64 {
		return nil, nil // not a valid job ID, so it has no runs
	}

	return collect(ctx, s.read, "run", runTable.selects()+`WHERE num = $1 ORDER BY epoch`, []any{int64(num)}, readRun)
}

// Run returns one run.
func (s *Store) Run(ctx context.Context, r id.Run) (job.Run, error) {
	missing := fault.New(fault.NotFound, "run_not_found", "there is no run %s", r)
	j, epoch, ok := r.Split()
	num, err := jobNumber(j)
	if !ok || err != nil {
		return job.Run{}, missing
	}

	return one(
		ctx,
		s.read,
		"run",
		runTable.selects()+`WHERE num = $1 AND epoch = $2`,
		[]any{num, int64(epoch)},
		readRun,
		missing,
	)
}

// Users lists users by name.
func (s *Store) Users(ctx context.Context, after id.User, limit int) ([]tenant.User, error) {
	var w where
	w.add("id > ?", clean(string(after)))

	query, err := w.query(userTable.selects(), "id", limit)
	if err != nil {
		return nil, err
	}

	return collect(ctx, s.read, "user", query, w.args, readUser)
}

// Tokens lists tokens by ID, of one owner or of all.
func (s *Store) Tokens(ctx context.Context, owner id.User, after id.Token, limit int) ([]tenant.Token, error) {
	var w where
	w.add("id > ?", clean(string(after)))

	if owner != "" {
		w.add("owner = ?", clean(string(owner)))
	}

	query, err := w.query(tokenTable.selects(), "id", limit)
	if err != nil {
		return nil, err
	}

	return collect(ctx, s.read, "token", query, w.args, readToken)
}

// marks writes n parameters for a list.
func marks(n int) string { return strings.TrimPrefix(strings.Repeat(", ?", n), ", ") }

// texts returns words as the arguments of a query.
func texts[T ~string](words []T) []any {
	args := make([]any, len(words))
	for i, word := range words {
		args[i] = clean(string(word))
	}

	return args
}

// condition is a condition on rows, in which parameters are written as ?.
type condition struct {
	term string
	args []any
}

// where collects conditions and numbers their parameters.
type where struct {
	terms []string
	args  []any
}

func (w *where) addAll(list []condition) {
	for _, c := range list {
		w.add(c.term, c.args...)
	}
}

func (w *where) add(term string, args ...any) {
	for _, arg := range args {
		w.args = append(w.args, arg)
		term = strings.Replace(term, "?", "$"+strconv.Itoa(len(w.args)), 1)
	}

	w.terms = append(w.terms, term)
}

// conditions writes the conditions, "" if there are none.
func (w *where) conditions() string {
	if len(w.terms) == 0 {
		return ""
	}

	return "WHERE " + strings.Join(w.terms, " AND ") + " "
}

// query inserts the conditions between the beginning of a query and its order.
func (w *where) query(begin, order string, limit int) (string, error) {
	if err := needLimit(limit); err != nil {
		return "", err
	}

	w.args = append(w.args, int64(limit))

	return begin + w.conditions() + "ORDER BY " + order + " LIMIT $" + strconv.Itoa(len(w.args)), nil
}

// needLimit refuses a list without a limit.
func needLimit(limit int) error {
	if limit > 0 {
		return nil
	}

	return fault.New(fault.Invalid, "limit_required", "limit must be at least 1").WithField("limit")
}

// distinct returns the different values of a column, from an index that begins with it: it goes from one value to
// the next, whatever lies between them. There may be more than limit; then it returns false.
func (s *Store) distinct(ctx context.Context, table, column string, limit int) ([]string, bool, error) {
	query := fmt.Sprintf(`WITH RECURSIVE known (value, n) AS (
		SELECT MIN(%[2]s), 1 FROM %[1]s
		UNION ALL
		SELECT (SELECT MIN(%[2]s) FROM %[1]s WHERE %[2]s > known.value), known.n + 1 FROM known
		WHERE known.value IS NOT NULL AND known.n <= $1
	) SELECT value FROM known WHERE value IS NOT NULL`, table, column)

	values, err := collect(ctx, s.read, column, query, []any{int64(limit)}, func(row scanner) (value string, err error) {
		err = row.Scan(&value)
		return value, err
	})

	return values, len(values) <= limit, err
}
