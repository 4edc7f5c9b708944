package sql

import (
	"context"
	"maps"
	"math"
	"strings"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/store"
)

// maxPage is the greatest number of jobs that are read for people; more are read by the server for itself, once.
const maxPage = 501

// Jobs lists jobs, newest or oldest first.
func (s *Store) Jobs(ctx context.Context, f store.JobFilter) ([]job.Job, error) {
	switch {
	case f.Outline:
		return readJobs(ctx, s, f, outlineTable, readOutline)
	case f.Limit <= maxPage:
		return s.listJobs(ctx, f)
	}

	return s.readWhole(ctx, f)
}

// readWhole reads all columns of the jobs that a filter lets through.
func (s *Store) readWhole(ctx context.Context, f store.JobFilter) ([]job.Job, error) {
	stored, err := readJobs(ctx, s, f, jobTable, scanJob)
	if err != nil {
		return nil, err
	}

	return s.decodeJobs(ctx, s.read, stored)
}

// readJobs reads columns of the jobs that a filter lets through.
func readJobs[T any](
	ctx context.Context, s *Store, f store.JobFilter, columns *table, read func(scanner) (T, error),
) ([]T, error) {
	if err := needLimit(f.Limit); err != nil {
		return nil, err
	}

	list, err := s.jobsOf(ctx, &f)
	if err != nil || list.none {
		return nil, err
	}

	if f.Sort != "" {
		return readSorted(ctx, s, &f, list, columns, read)
	}

	if f.Before > 0 {
		list.must(list.number+" < ?", int64(min(f.Before, math.MaxInt64)))
	}

	if f.After > 0 {
		list.must(list.number+" > ?", int64(min(f.After, math.MaxInt64)))
	}

	list.table = columns

	query, args, err := list.query()
	if err != nil {
		return nil, err
	}

	return collect(ctx, s.read, "job", query, args, read)
}

// outlineTable has the columns of a job of which nothing has to be decoded.
var outlineTable = &table{
	name: "jobs", key: "num",
	columns: []string{"id", "owner", "project", "workdir", "pipeline", "array_num", "array_index", "state", "cause",
		"submitted", "started", "ended"},
}

func readOutline(row scanner) (j job.Job, err error) {
	var array int64
	err = row.Scan((*string)(&j.ID), (*string)(&j.Owner), (*string)(&j.Project), &j.Workdir, &j.Pipeline,
		&array, &j.Index, (*string)(&j.State), (*string)(&j.Cause), timeColumn{&j.Submitted},
		timeColumn{&j.Started}, timeColumn{&j.Ended})

	if array > 0 {
		j.Array = id.NewArray(uint64(array))
	}

	return j, err
}

// CountJobs counts jobs by the word that people see.
func (s *Store) CountJobs(ctx context.Context, f store.JobFilter) (map[job.Status]int, error) {
	counts := map[job.Status]int{}

	list, err := s.jobsOf(ctx, &f)
	if err != nil || list.none {
		return counts, err
	}

	groups, err := s.countJobs(ctx, list)
	if err != nil {
		return nil, err
	}

	for i := range groups {
		counts[groups[i].kind.Status()] += groups[i].jobs
	}

	// Only running jobs are suspended, so that no others are read for it.
	list.must("jobs.state = ? AND "+suspended, string(job.Running))

	groups, err = s.countJobs(ctx, list)
	if err != nil {
		return nil, err
	}

	for i := range groups {
		g := &groups[i]
		counts[g.kind.Status()] -= g.jobs
		g.kind.Suspended = time.Unix(1, 0) // at whatever time
		counts[g.kind.Status()] += g.jobs
	}

	maps.DeleteFunc(counts, func(_ job.Status, jobs int) bool { return jobs == 0 })

	return counts, nil
}

// jobGroup is how many jobs have the same state and cause.
type jobGroup struct {
	kind job.Job
	jobs int
}

// countJobs counts the jobs of a list by what an index has of them.
func (s *Store) countJobs(ctx context.Context, list *selection) ([]jobGroup, error) {
	var w where
	w.addAll(list.always)

	for _, choice := range list.choice {
		w.addAll([]condition{either(choice)})
	}

	query := "SELECT jobs.state, jobs.cause, count(*)" + list.from + w.conditions() + "GROUP BY jobs.state, jobs.cause"

	return collect(ctx, s.read, "job count", query, w.args, func(row scanner) (g jobGroup, err error) {
		err = row.Scan((*string)(&g.kind.State), (*string)(&g.kind.Cause), &g.jobs)
		return g, err
	})
}

// suspended is true for a job whose run is suspended in place: only then has its JSON this key.
const suspended = `jobs.extras LIKE '%"suspended":%'`

// jobsOf returns the list of jobs that a filter lets through, without its page. One condition finds the jobs, the one
// that fewest jobs meet as a rule; the others are hidden from the database, which does not know that.
func (s *Store) jobsOf(ctx context.Context, f *store.JobFilter) (*selection, error) {
	list := &selection{table: jobTable, from: " FROM jobs ", number: "jobs.num", newest: !f.Oldest, limit: f.Limit}

	if f.Node != "" {
		// Starts from the jobs of the node, so that a node with few jobs does not require a scan of
		// all jobs.
		list.from, list.number = list.from+"JOIN job_nodes ON job_nodes.num = jobs.num ", "job_nodes.num"
		list.find("job_nodes.node", "", clean(string(f.Node)))
	}

	if f.Array != "" {
		num, err := arrayNumber(f.Array)
		if err != nil {
			return nil, fault.New(fault.Invalid, "bad_value", "%q is not the id of an array", f.Array).WithField("array")
		}

		list.must(arrayTerm(list.found)+" AND jobs.array_num > 0", num)
		list.found = true
	}

	if f.Single {
		list.must("jobs.array_num + 0 = 0")
	}

	if f.Called != "" {
		list.find("jobs.name", "", clean(f.Called))
	}

	if f.Name != "" {
		if err := s.confineNames(ctx, list, f.Name); err != nil {
			return nil, err
		}
	}

	if f.Project != "" {
		list.find("jobs.project", "jobs.project <> ''", clean(string(f.Project)))
	}

	if !f.Since.IsZero() {
		list.must(list.number+sinceTerm, micros(f.Since))
	}

	owners, states := jobOwners(f, list.found), jobStates(f, list.found)
	if list.found {
		list.mustOne(owners)
		list.mustOne(states)
	} else {
		list.choose(owners)
		list.choose(states)
	}

	return list, nil
}

// arrayTerm compares the array of a job. It may be hidden from the database, as in equals.
func arrayTerm(hide bool) string {
	if hide {
		return "jobs.array_num + 0 = ?"
	}

	return "jobs.array_num = ?"
}

// sinceTerm compares the number of a job with that of the first one that was submitted after a time: jobs are numbered
// in the order of their submission.
const sinceTerm = ` >= (SELECT first.num FROM jobs AS first WHERE first.submitted >= ?
			ORDER BY first.submitted, first.num LIMIT 1)`

// jobOwners returns the alternatives of whose jobs are listed.
func jobOwners(f *store.JobFilter, hide bool) []condition {
	if f.Owner == "" {
		return nil
	}

	owners := []condition{equals("jobs.owner", hide, clean(string(f.Owner)))}
	for _, project := range f.Projects {
		c := equals("jobs.project", hide, clean(string(project)))
		c.term += " AND jobs.project <> ''"
		owners = append(owners, c)
	}

	return owners
}

// jobStates returns the alternatives of states, and of the words that people see of them.
func jobStates(f *store.JobFilter, hide bool) []condition {
	var states []condition
	for _, state := range f.States {
		states = append(states, equals("jobs.state", hide, string(state)))
	}

	for _, status := range f.Statuses {
		for _, cause := range job.FailedAs(status) {
			c := equals("jobs.state", hide, string(job.Failed))
			c.term += " AND jobs.cause = ?"
			c.args = append(c.args, string(cause))
			states = append(states, c)
		}

		if status == job.StatusSuspended {
			c := equals("jobs.state", hide, string(job.Running))
			c.term += " AND " + suspended
			states = append(states, c)
		}
	}

	return states
}

// maxNames bounds how many different names of jobs are looked through. Yards have far fewer: jobs are submitted again
// and again.
const maxNames = 5_000

// confineNames confines a list to jobs with a part of their name. No index finds a part of a name, but there are few
// different ones, each of which an index finds.
func (s *Store) confineNames(ctx context.Context, list *selection, part string) error {
	part = strings.ToLower(clean(part))
	contains := nameContains(part)

	if list.found {
		list.always = append(list.always, contains)
		return nil
	}

	names, complete, err := s.distinct(ctx, "jobs", "name", maxNames)
	if err != nil {
		return err
	}

	var called []condition
	for _, name := range names {
		if strings.Contains(strings.ToLower(name), part) {
			called = append(called, equals("jobs.name", false, name))
		}
	}

	switch {
	case complete && len(called) == 0:
		list.none = true
	case complete && len(called) <= maxBranches:
		list.choose(called)
		list.found = true
	default: // so many that the newest jobs have some of them
		list.always = append(list.always, contains)
	}

	return nil
}

// nameContains is true for jobs with a part of their name, in whatever letters.
func nameContains(part string) condition {
	part = strings.ToLower(clean(part))

	return condition{"lower(jobs.name) LIKE ? ESCAPE '!'", []any{"%" + escapeLike(part) + "%"}}
}

// escapeLike escapes the wildcards of LIKE.
func escapeLike(s string) string {
	return strings.NewReplacer("!", "!!", "%", "!%", "_", "!_").Replace(s)
}
