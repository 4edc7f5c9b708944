package sql

import (
	"context"
	dbsql "database/sql"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/store"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
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

	return one(ctx, s.read, "job", jobTable.selects()+`WHERE num = $1`, []any{num}, readJob, missing)
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

	query := jobTable.selects() + `WHERE owner = $1 AND idem_key = $2 AND idem_key <> '' ORDER BY num LIMIT 1`

	return one(ctx, s.read, "job", query, []any{clean(string(owner)), clean(key)}, readJob, missing)
}

// Pipeline returns the jobs that share the pipeline name, in order of submission.
func (s *Store) Pipeline(ctx context.Context, pipeline string) ([]job.Job, error) {
	query := jobTable.selects() + `WHERE pipeline = $1 AND pipeline <> '' ORDER BY num`
	return collect(ctx, s.read, "job", query, []any{clean(pipeline)}, readJob)
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

// Jobs lists jobs, newest first.
func (s *Store) Jobs(ctx context.Context, f store.JobFilter) ([]job.Job, error) {
	if f.Limit <= maxPage {
		return s.listJobs(ctx, f)
	}

	return s.readJobs(ctx, f)
}

// readJobs reads jobs from the database alone.
func (s *Store) readJobs(ctx context.Context, f store.JobFilter) ([]job.Job, error) {
	query, args, err := jobsQuery(&f, jobTable.list("jobs."))
	if err != nil {
		return nil, err
	}

	return collect(ctx, s.read, "job", query, args, readJob)
}

// maxPage is the greatest number of jobs that are read for people; more are read by the server for itself, once.
const maxPage = 501

// jobsQuery returns the query for columns of the jobs that a filter lets through.
func jobsQuery(f *store.JobFilter, columns string) (query string, args []any, err error) {
	from, order, w := jobsOf(f)
	if f.Before > 0 {
		w.add(order+" < ?", int64(min(f.Before, math.MaxInt64)))
	}

	query, err = w.query("SELECT "+columns+from, order+" DESC", f.Limit)

	return query, w.args, err
}

// CountJobs counts jobs by the word that people see.
func (s *Store) CountJobs(ctx context.Context, f store.JobFilter) (map[job.Status]int, error) {
	type group struct {
		kind job.Job
		jobs int
	}

	from, _, w := jobsOf(&f)
	query := "SELECT jobs.state, jobs.cause, CASE WHEN " + suspended + " THEN 1 ELSE 0 END AS suspended, count(*)" + from +
		w.conditions() + "GROUP BY jobs.state, jobs.cause, CASE WHEN " + suspended + " THEN 1 ELSE 0 END"

	groups, err := collect(ctx, s.read, "job count", query, w.args, func(row scanner) (group, error) {
		var g group
		var away int
		err := row.Scan((*string)(&g.kind.State), (*string)(&g.kind.Cause), &away, &g.jobs)
		if away > 0 {
			g.kind.Suspended = time.Unix(1, 0) // at whatever time
		}

		return g, err
	})
	if err != nil {
		return nil, err
	}

	counts := map[job.Status]int{}
	for i := range groups {
		counts[groups[i].kind.Status()] += groups[i].jobs
	}

	return counts, nil
}

// suspended is true for a job whose run is suspended in place: only then has its JSON this key.
const suspended = `jobs.extras LIKE '%"suspended":%'`

// jobsOf returns where jobs are looked for, the column of their numbers, and the conditions of a filter.
func jobsOf(f *store.JobFilter) (from, number string, w where) {
	from, number = " FROM jobs ", "jobs.num"
	if f.Node != "" {
		// Starts from the jobs of the node, so that a node with few jobs does not require a scan of
		// all jobs.
		from, number = from+"JOIN job_nodes ON job_nodes.num = jobs.num ", "job_nodes.num"
		w.add("job_nodes.node = ?", clean(string(f.Node)))
	}

	switch {
	case f.Owner != "" && len(f.Projects) > 0:
		w.add("(jobs.owner = ? OR jobs.project IN ("+marks(len(f.Projects))+"))",
			append([]any{clean(string(f.Owner))}, texts(f.Projects)...)...)
	case f.Owner != "":
		w.add("jobs.owner = ?", clean(string(f.Owner)))
	}

	if f.Project != "" {
		w.add("jobs.project = ? AND jobs.project <> ''", clean(string(f.Project)))
	}

	w.states(f)

	if f.Name != "" {
		w.add("lower(jobs.name) LIKE ? ESCAPE '!'", "%"+escapeLike(strings.ToLower(clean(f.Name)))+"%")
	}

	if f.Called != "" {
		w.add("jobs.name = ?", clean(f.Called))
	}

	if !f.Since.IsZero() {
		w.add("jobs.submitted >= ?", micros(f.Since))
	}

	return from, number, w
}

// states adds the condition that a job is in one of the states, or shows one of the words.
func (w *where) states(f *store.JobFilter) {
	var either []string
	var args []any

	if len(f.States) > 0 {
		either = append(either, "jobs.state IN ("+marks(len(f.States))+")")
		args = append(args, texts(f.States)...)
	}

	for _, s := range f.Statuses {
		if causes := job.FailedAs(s); len(causes) > 0 {
			either = append(either, "jobs.state = ? AND jobs.cause IN ("+marks(len(causes))+")")
			args = append(append(args, string(job.Failed)), texts(causes)...)
		}

		if s == job.StatusSuspended {
			either = append(either, "jobs.state = ? AND "+suspended)
			args = append(args, string(job.Running))
		}
	}

	if len(either) > 0 {
		w.add("("+strings.Join(either, " OR ")+")", args...)
	}
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

// Events lists events, oldest first.
func (s *Store) Events(ctx context.Context, f store.EventFilter) ([]yardmaster.Event, error) {
	var w where
	w.add("seq > ?", int64(min(f.After, math.MaxInt64)))

	if f.Owner != "" {
		w.add("owner = ? AND owner <> ''", clean(string(f.Owner)))
	}

	if f.Job != "" {
		w.add("job = ? AND job <> ''", clean(string(f.Job)))
	}

	if f.Node != "" {
		w.add("node = ? AND node <> ''", clean(string(f.Node)))
	}

	if f.Kind != "" {
		kind, first := clean(f.Kind), clean(f.KindPrefix())
		w.add("(kind = ? OR substr(kind, 1, ?) = ?)", kind, int64(utf8.RuneCountInString(first)), first)
	}

	if f.Actor != "" {
		w.add("actor = ?", clean(f.Actor))
	}

	if f.Audit {
		w.add("address <> ''")
	}

	order := "seq"
	if f.Newest {
		order = "seq DESC"
	}

	query, err := w.query(eventTable.selects(), order, f.Limit)
	if err != nil {
		return nil, err
	}

	events, err := collect(ctx, s.read, "event", query, w.args, readEvent)
	if f.Newest {
		slices.Reverse(events)
	}

	return events, err
}

// escapeLike escapes the wildcards of LIKE.
func escapeLike(s string) string {
	return strings.NewReplacer("!", "!!", "%", "!%", "_", "!_").Replace(s)
}

// where collects conditions, in which parameters are written as ?, and numbers the parameters.
type where struct {
	terms []string
	args  []any
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
	if limit <= 0 {
		return "", fault.New(fault.Invalid, "limit_required", "limit must be at least 1").WithField("limit")
	}

	w.args = append(w.args, int64(limit))

	return begin + w.conditions() + "ORDER BY " + order + " LIMIT $" + strconv.Itoa(len(w.args)), nil
}
