package sql

import (
	"cmp"
	"context"
	dbsql "database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"trainyard/internal/dataset"
	"trainyard/internal/id"
	"trainyard/internal/inbox"
	"trainyard/internal/job"
	"trainyard/internal/ledger"
	"trainyard/internal/store"
	"trainyard/internal/yardmaster"
)

// spy notes the queries of connections.
type spy struct {
	mu      sync.Mutex
	queries []spied
}

type spied struct {
	text string
	args []any
}

func (s *spy) take() []spied {
	s.mu.Lock()
	defer s.mu.Unlock()

	list := s.queries
	s.queries = nil

	return list
}

// spiedEngine is an engine whose connections for reading are watched.
type spiedEngine struct {
	engine
	spy *spy
}

func (e spiedEngine) open(limits Timeouts) (pools, error) {
	p, err := e.engine.open(limits)
	p.read, p.reports = e.watch(p.read), e.watch(p.reports)

	return p, err
}

// keepsStatements is false: the queries of a prepared statement are not seen.
func (spiedEngine) keepsStatements() bool { return false }

func (e spiedEngine) watch(db *dbsql.DB) *dbsql.DB {
	watched := dbsql.OpenDB(spiedPool{db, e.spy})
	watched.SetMaxOpenConns(1)

	return watched
}

// spiedPool takes its connections from another pool.
type spiedPool struct {
	db  *dbsql.DB
	spy *spy
}

func (p spiedPool) Driver() driver.Driver { return p.db.Driver() }

func (p spiedPool) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := p.db.Conn(ctx)
	if err != nil {
		return nil, err
	}

	c := &spiedConn{of: conn, pool: p}
	err = conn.Raw(func(raw any) error {
		var ok bool
		c.Conn, ok = raw.(driver.Conn)
		if !ok {
			return fmt.Errorf("got %T, want a connection", raw)
		}

		return nil
	})

	return c, err
}

type spiedConn struct {
	driver.Conn
	of   *dbsql.Conn
	pool spiedPool
}

func (c *spiedConn) Close() error { return errors.Join(c.of.Close(), c.pool.db.Close()) }

func (c *spiedConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	return c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
}

func (c *spiedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	q := spied{text: query}
	for _, a := range args {
		q.args = append(q.args, a.Value)
	}

	c.pool.spy.mu.Lock()
	c.pool.spy.queries = append(c.pool.spy.queries, q)
	c.pool.spy.mu.Unlock()

	return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
}

// question is a call of the store.
type question struct {
	name string
	ask  func(ctx context.Context, s *Store) error
	// walks says that it goes through a table in the order of its key, or of an index, and stops at the limit, or that it
	// is about all rows.
	walks bool
	sorts bool // it sorts the few rows that it finds
	// follows is the index that it goes along until the page is full, whatever it does not want on its way.
	follows string
}

// none is the result of a call that nobody looks at.
func none[T any](_ T, err error) error { return err }

func jobQuestions() []question {
	var list []question
	add := func(name string, f store.JobFilter) {
		if f.Limit == 0 {
			f.Limit = 20
		}

		ask := func(ctx context.Context, s *Store) error { return none(s.Jobs(ctx, f)) }
		list = append(list, question{name: "Jobs: " + name, walks: name == "all" || name == "a page", ask: ask})
	}

	live := []job.State{job.Pending, job.Running, job.Starting, job.Paused}

	add("all", store.JobFilter{})
	add("a page", store.JobFilter{Before: 50})
	add("owner", store.JobFilter{Owner: "u3"})
	add("array", store.JobFilter{Array: "a3"})
	add("array and states", store.JobFilter{Array: "a3", States: live})
	add("owner without elements", store.JobFilter{Owner: "u3", Single: true, States: live})
	add("owner, oldest first, a page", store.JobFilter{Owner: "u3", Oldest: true, After: 1000})
	add("states, oldest first", store.JobFilter{States: live, Oldest: true})
	add("owner, projects and states, oldest first", store.JobFilter{
		Owner: "u3", Projects: []id.Project{"p1"}, States: live, Oldest: true,
	})
	add("owner, a page", store.JobFilter{Owner: "u3", Before: 1000})
	add("owner and projects", store.JobFilter{Owner: "u3", Projects: []id.Project{"p1", "none"}})
	add("owner and a state that has none", store.JobFilter{Owner: "u3", States: []job.State{job.Cancelled}})
	add("owner and states", store.JobFilter{Owner: "u3", States: live})
	add("owner, projects and states", store.JobFilter{Owner: "u3", Projects: []id.Project{"p1"}, States: live})
	add("project", store.JobFilter{Project: "p1"})
	add("project and a state that has none", store.JobFilter{Project: "p1", States: []job.State{job.Cancelled}})
	add("project and owner", store.JobFilter{Project: "p1", Owner: "u1"})
	add("a state that has none", store.JobFilter{States: []job.State{job.Cancelled}})
	add("states", store.JobFilter{States: live})
	add("states of almost all", store.JobFilter{States: []job.State{job.Succeeded, job.Failed}})
	add("words", store.JobFilter{Statuses: []job.Status{job.StatusOutOfMemory, job.StatusSuspended}})
	add("part of a rare name", store.JobFilter{Name: "ARE-NA"})
	add("part of a name of nobody", store.JobFilter{Name: "nobody"})
	add("part of a name and owner", store.JobFilter{Name: "rare", Owner: "u3", States: live})
	add("name", store.JobFilter{Called: "rare-name"})
	add("name, owner and states", store.JobFilter{Called: "rare-name", Owner: "u3", States: live})
	add("node", store.JobFilter{Node: "n7"})
	add("node, owner and state", store.JobFilter{Node: "n7", Owner: "u3", States: []job.State{job.Cancelled}})

	lately := planStart.Add((planJobs - 60) * time.Minute)
	add("since", store.JobFilter{Since: lately, Limit: 500})
	add("since and state", store.JobFilter{Since: lately, States: []job.State{job.Failed}})
	add("since and owner", store.JobFilter{Since: lately, Owner: "u3"})

	list = append(list, sortQuestions()...)

	return append(list,
		question{name: "CountJobs: owner", ask: func(ctx context.Context, s *Store) error {
			return none(s.CountJobs(ctx, store.JobFilter{Owner: "u3"}))
		}},
		question{name: "CountJobs: all", walks: true, ask: func(ctx context.Context, s *Store) error {
			return none(s.CountJobs(ctx, store.JobFilter{}))
		}},
		question{name: "Job", ask: func(ctx context.Context, s *Store) error { return none(s.Job(ctx, "j9")) }},
		question{name: "JobByKey", ask: func(ctx context.Context, s *Store) error {
			return none(s.JobByKey(ctx, "u9", "key-9"))
		}},
		question{name: "Pipeline", ask: func(ctx context.Context, s *Store) error { return none(s.Pipeline(ctx, "pipe")) }},
		question{name: "Runs", ask: func(ctx context.Context, s *Store) error { return none(s.Runs(ctx, "j9")) }},
		question{name: "Run", ask: func(ctx context.Context, s *Store) error { return none(s.Run(ctx, "j9.1")) }},
	)
}

// sortQuestions are lists in another order. Few jobs are found by what the filter says and then sorted; of many the
// index of the column is followed.
func sortQuestions() []question {
	last := &store.JobPlace{Number: 1000, Name: "train-7", Cost: 1, Ended: planStart.Add(1000 * time.Minute)}
	filters := map[string]store.JobFilter{
		"all":                       {},
		"owner":                     {Owner: "u3"},
		"owner, projects and state": {Owner: "u3", Projects: []id.Project{"p1"}, States: []job.State{job.Failed}},
		"part of a name":            {Name: "are-na"},
		"node":                      {Node: "n7"},
		"since":                     {Since: planStart.Add((planJobs - 60) * time.Minute)},
	}

	var list []question
	for _, by := range []store.JobSort{store.SortName, store.SortCost, store.SortEnded} {
		for of, f := range filters {
			f.Sort, f.Last, f.Limit = by, last, 20

			for _, most := range []int{0, planJobs} {
				if most > 0 && of == "all" {
					continue
				}

				q := question{name: fmt.Sprintf("Jobs: %s by %s, %d sorted", of, by, most), sorts: most > 0}
				q.ask = func(ctx context.Context, s *Store) error {
					s.sorts = most
					return none(s.Jobs(ctx, f))
				}

				if most == 0 {
					q.follows = "jobs_" + string(by)
				}

				list = append(list, q)
			}
		}
	}

	return list
}

func eventQuestions() []question {
	var list []question
	add := func(name string, f store.EventFilter) {
		f.Limit = 20
		ask := func(ctx context.Context, s *Store) error { return none(s.Events(ctx, f)) }
		list = append(list, question{name: "Events: " + name, walks: name == "all" || name == "after", ask: ask})
	}

	add("all", store.EventFilter{})
	add("after", store.EventFilter{After: 3 * planJobs / 2})
	add("a rare kind", store.EventFilter{Kind: "node.joined"})
	add("a rare kind, newest", store.EventFilter{Kind: "node.joined", Newest: true})
	add("a rare kind, before", store.EventFilter{Kind: "node.joined", Newest: true, Before: planJobs})
	add("before", store.EventFilter{Newest: true, Before: 3 * planJobs / 2})
	add("how rare kinds begin", store.EventFilter{Kind: "node"})
	add("a kind of nothing", store.EventFilter{Kind: "lease"})
	add("how kinds begin", store.EventFilter{Kind: "job", After: 100})
	add("owner", store.EventFilter{Owner: "u3"})
	add("owner and kind", store.EventFilter{Owner: "u3", Kind: "node.joined", Newest: true})
	add("job", store.EventFilter{Job: "j9"})
	add("job, owner, actor and kind", store.EventFilter{Job: "j9", Owner: "u9", Actor: "yard", Kind: "job.started"})
	add("node", store.EventFilter{Node: "n7", Owner: "u3"})
	add("actor", store.EventFilter{Actor: "root"})
	add("actor and kind", store.EventFilter{Actor: "root", Kind: "job"})
	add("audit", store.EventFilter{Audit: true})

	return list
}

func ledgerQuestions() []question {
	var list []question
	add := func(name string, f store.PostingFilter) {
		list = append(list, question{name: "Postings: " + name, ask: func(ctx context.Context, s *Store) error {
			return s.Postings(ctx, f, func(*ledger.Posting) error { return nil })
		}})
	}

	from, to := planStart.Add(24*time.Hour), planStart.Add(28*time.Hour)
	cuts := func(p *ledger.Posting) bool { return p.From.Before(from) || p.To.After(to) }

	add("a period", store.PostingFilter{From: from, To: to})
	add("the last hour", store.PostingFilter{From: planStart.Add((planJobs - 60) * time.Minute)})
	add("an owner", store.PostingFilter{From: from, To: to, Owners: []id.User{"u3"}, Cuts: cuts})
	add("owners", store.PostingFilter{From: from, To: to, Owners: []id.User{"u3", "u4"}})
	add("a project", store.PostingFilter{From: from, To: to, Projects: []id.Project{"p1"}})
	add("a job of an owner", store.PostingFilter{Jobs: []id.Job{"j9"}, Owners: []id.User{"u9"}})
	add("totals", store.PostingFilter{From: from.Add(time.Minute), To: to.Add(time.Minute), Totals: ledger.NodeTotals})

	saving := func(name string, f store.SavingFilter) {
		list = append(list, question{name: "Savings: " + name, ask: func(ctx context.Context, s *Store) error {
			return s.Savings(ctx, f, func(*ledger.Saving) error { return nil })
		}})
	}

	saving("a period", store.SavingFilter{From: from, To: to})
	saving("an owner", store.SavingFilter{From: from, To: to, Owners: []id.User{"u3"}})
	saving("a project", store.SavingFilter{From: from, To: to, Projects: []id.Project{"p1"}})
	saving("a job", store.SavingFilter{Jobs: []id.Job{"j9"}})

	return append(list,
		question{name: "RollUp", ask: func(ctx context.Context, s *Store) error { return none(s.RollUp(ctx, 10)) }},
		question{name: "LedgerDetail", ask: func(ctx context.Context, s *Store) error { return none(s.LedgerDetail(ctx)) }},
		question{name: "ForgetSavings", ask: func(ctx context.Context, s *Store) error {
			return none(s.ForgetSavings(ctx, planStart, 10))
		}},
		question{name: "ForgetPostings", ask: func(ctx context.Context, s *Store) error {
			return none(s.ForgetPostings(ctx, planStart, 10))
		}},
		question{name: "Leases: live", ask: func(ctx context.Context, s *Store) error {
			return none(s.Leases(ctx, store.LeaseFilter{Live: true, Limit: 10}))
		}},
		question{name: "Lease", ask: func(ctx context.Context, s *Store) error {
			_, _ = s.Lease(ctx, "l1") // there is none
			return nil
		}},
		question{name: "Uses", ask: func(ctx context.Context, s *Store) error { return none(s.Uses(ctx, "data-1", 10)) }},
	)
}

func otherQuestions() []question {
	documents := func(name string, f store.DocumentFilter) question {
		f.Kind, f.Limit = store.CurveDocument, 10
		return question{name: "Documents: " + name, ask: func(ctx context.Context, s *Store) error {
			return none(s.Documents(ctx, f))
		}}
	}

	return []question{
		documents("of a kind", store.DocumentFilter{}),
		documents("by id", store.DocumentFilter{ByID: true, After: "j5"}),
		documents("of a job", store.DocumentFilter{Under: "j9"}),
		documents("one", store.DocumentFilter{ID: "j9/loss"}),
		{name: "Checkpoints: all", walks: true, ask: func(ctx context.Context, s *Store) error {
			return none(s.Checkpoints(ctx, store.CheckpointFilter{Limit: 10}))
		}},
		{name: "Checkpoints: of a job", ask: func(ctx context.Context, s *Store) error {
			return none(s.Checkpoints(ctx, store.CheckpointFilter{Job: "j9", Limit: 10}))
		}},
		{name: "Checkpoint", ask: func(ctx context.Context, s *Store) error {
			_, _ = s.Checkpoint(ctx, "j9.c1") // there is none
			return nil
		}},
		{name: "Arrays: all", walks: true, ask: func(ctx context.Context, s *Store) error {
			return none(s.Arrays(ctx, store.ArrayFilter{Limit: 10}))
		}},
		{name: "Arrays: of an owner", ask: func(ctx context.Context, s *Store) error {
			return none(s.Arrays(ctx, store.ArrayFilter{Owner: "u3", Active: true, Limit: 10}))
		}},
		{name: "Array", ask: func(ctx context.Context, s *Store) error {
			_, _ = s.Array(ctx, "a9") // there is none
			return nil
		}},
		{name: "Questions: open", ask: func(ctx context.Context, s *Store) error {
			return none(s.Questions(ctx, store.QuestionFilter{States: []inbox.State{"open"}, Limit: 10}))
		}},
		{name: "Questions: of an owner", ask: func(ctx context.Context, s *Store) error {
			return none(s.Questions(ctx, store.QuestionFilter{Owner: "u3", Limit: 10}))
		}},
		{name: "Questions: of a job", ask: func(ctx context.Context, s *Store) error {
			return none(s.Questions(ctx, store.QuestionFilter{Job: "j9", Limit: 10}))
		}},
		{name: "Question", ask: func(ctx context.Context, s *Store) error {
			_, _ = s.Question(ctx, "j9.q1") // there is none
			return nil
		}},
		{name: "Users", walks: true, ask: func(ctx context.Context, s *Store) error { return none(s.Users(ctx, "", 10)) }},
		{name: "Tokens", walks: true, ask: func(ctx context.Context, s *Store) error {
			return none(s.Tokens(ctx, "u3", "", 10))
		}},
		{name: "Members", ask: func(ctx context.Context, s *Store) error { return none(s.Members(ctx)) }},
		{name: "Possessed", ask: func(ctx context.Context, s *Store) error {
			return none(s.Possessed(ctx, "u3", []string{"d3"}))
		}},
		{name: "PossessedBytes", ask: func(ctx context.Context, s *Store) error { return none(s.PossessedBytes(ctx, "u3")) }},
		{name: "PossessedDigests", walks: true, ask: func(ctx context.Context, s *Store) error {
			return none(s.PossessedDigests(ctx, "", 10))
		}},
		{name: "UnreadManifests", walks: true, ask: func(ctx context.Context, s *Store) error {
			return none(s.UnreadManifests(ctx, 10))
		}},
	}
}

// notAsked are the calls of the store that write, or that are about servers and their start.
var notAsked = []string{
	"Lead", "Renew", "Resign", "Leader", "Attend", "Servers", "Load", "Commit", "Keep", "Drop", "Possess", "Disown",
	"ForgetJobs", "ForgetEvents", "Ping", "Close",
}

// foundBy is the index that finds fewest rows, where SQLite, which has no statistics, could take another one.
var foundBy = map[string]string{
	"Jobs: project and a state that has none": "jobs_project",
	"Jobs: part of a name and owner":          "jobs_name",
	"Jobs: name, owner and states":            "jobs_name",
	"Jobs: node, owner and state":             "job_nodes",
	"Jobs: owner and states":                  "jobs_owner_state",
	"Jobs: states of almost all":              "jobs_state (state=?)",
	"Events: job, owner, actor and kind":      "events_job",
	"Events: node":                            "events_node",
	"Postings: a job of an owner":             "postings_job",
}

// besides are parts of queries that are made beside the one that finds the rows.
var besides = []string{"RECURSIVE", "ledger_rollup", "WHERE num IN (", "SELECT count(*) FROM ("}

const planJobs = 3000

var planStart = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

// fillForPlans writes a job a minute with its run, events, posting, saving, curve, file and use of data.
func fillForPlans(t engineTest, s *Store) {
	t.Helper()

	for first := 1; first <= planJobs; first += 500 {
		b := &yardmaster.Batch{}
		var docs []store.Document
		var files []store.Possession

		for n := first; n < first+500; n++ {
			planJob(b, n)

			at := planStart.Add(time.Duration(n) * time.Minute)
			j := &b.Jobs[len(b.Jobs)-1]
			docs = append(docs, store.Document{Kind: store.CurveDocument, ID: string(j.ID) + "/loss", At: at, Text: "{}"})
			files = append(files, store.Possession{Owner: j.Owner, Digest: fmt.Sprintf("d%d", n), Size: 1, Since: at})
		}

		err := errors.Join(s.Commit(t.Context(), b), s.Keep(t.Context(), docs...), s.Possess(t.Context(), files...))
		if err != nil {
			t.Fatal(err)
		}
	}

	if _, err := s.RollUp(t.Context(), planJobs-100); err != nil {
		t.Fatal(err)
	}

	if s.engine.name() == "postgres" { // as it does by itself after a while
		if _, err := s.write.ExecContext(t.Context(), `ANALYZE`); err != nil {
			t.Fatal(err)
		}
	}
}

func planJob(b *yardmaster.Batch, n int) {
	at := planStart.Add(time.Duration(n) * time.Minute)
	owner, node := id.User(fmt.Sprintf("u%d", n%50)), id.Node(fmt.Sprintf("n%d", n%100))
	j := job.Job{
		ID: id.NewJob(uint64(n)), Seq: 1, Owner: owner, State: job.Succeeded, Submitted: at, Since: at, Ended: at,
		Key: fmt.Sprintf("key-%d", n), Spec: &job.Spec{Name: fmt.Sprintf("train-%d", n%20), Run: "true"},
	}

	switch {
	case n > planJobs-100:
		j.State, j.Ended = job.Pending, time.Time{}
	case n%20 == 0:
		j.State, j.Cause = job.Failed, job.CauseUserCode
	}

	if n%1000 == 0 {
		j.Spec.Name, j.Cause, j.Pipeline = "rare-name", job.CauseHostOOM, "pipe"
	}

	if n%51 == 0 {
		j.Project = "p1"
	}

	run := sampleRunOn(j.ID, node, at)
	b.Jobs, b.Runs = append(b.Jobs, j), append(b.Runs, run)

	for i, kind := range []string{"job.submitted", "job.started", "job.succeeded"} {
		e := yardmaster.Event{Seq: uint64(3*n + i), At: at, Kind: kind, Actor: "yard", Owner: owner, Job: j.ID, Node: node}
		if n%500 == 0 && i == 0 {
			e.Kind, e.Actor, e.Job, e.Owner, e.Address = "node.joined", "root", "", "", "10.0.0.1"
		}

		b.Events = append(b.Events, e)
	}

	b.Ledger.Postings = append(b.Ledger.Postings, ledger.Posting{
		Seq: uint64(n), Node: node, Class: "local", From: at, To: at.Add(time.Minute), Account: ledger.Use, Owner: owner,
		Project: j.Project, Job: j.ID, Amounts: ledger.Amounts{NodeTime: 1},
	})
	b.Ledger.Savings = append(b.Ledger.Savings, ledger.Saving{
		Seq: uint64(n), At: at, Job: j.ID, Owner: owner, Project: j.Project, Kind: "place",
	})
	b.Uses = append(b.Uses, dataset.Use{
		Dataset: id.Dataset(fmt.Sprintf("data-%d", n%10)), Run: run.ID, Node: node, Job: j.ID, Owner: owner, At: at,
	})
}

func sampleRunOn(j id.Job, node id.Node, at time.Time) job.Run {
	return job.Run{
		ID: id.NewRun(j, 1), Job: j, Epoch: 1, Seq: 1, State: job.RunEnded, Ordered: at, Started: at, Ended: at,
		Ranks: []job.Rank{{Node: node}},
	}
}

// No query may go through a table that grows with the jobs: with a million of them that takes seconds.
func TestEveryQueryUsesAnIndex(t *testing.T) {
	t.Parallel()

	questions := slices.Concat(jobQuestions(), eventQuestions(), ledgerQuestions(), otherQuestions())
	asked := map[string]bool{}
	for _, q := range questions {
		name, _, _ := strings.Cut(q.name, ":")
		asked[name] = true
	}

	for call := range reflect.TypeFor[store.Store]().Methods() {
		if name := call.Name; asked[name] == slices.Contains(notAsked, name) {
			t.Errorf("%s: a call that reads needs its plan to be looked at, one that does not is in notAsked", name)
		}
	}

	onEngines(t, func(t engineTest) {
		s, watch := openSpied(t)
		if _, err := s.Lead(t.Context(), candidate("server", time.Minute)); err != nil {
			t.Fatal(err)
		}

		fillForPlans(t, s)

		for _, q := range questions {
			watch.take()

			if err := q.ask(t.Context(), s); err != nil {
				t.Errorf("%s: %v", q.name, err)
			}

			queries := watch.take()
			if len(queries) == 0 {
				t.Errorf("%s: no query was seen", q.name)
			}

			for _, query := range queries {
				if !q.walks {
					checkPlan(t, s, q, query)
				}
			}
		}
	})
}

func checkPlan(t engineTest, s *Store, of question, q spied) {
	t.Helper()
	name := of.name
	explain, check := "EXPLAIN QUERY PLAN ", litePlan
	if s.engine.name() == "postgres" {
		explain, check = "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) ", postgresPlan
	}

	tx, err := s.write.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}

	defer func() { _ = tx.Rollback() }()

	if s.engine.name() == "postgres" { // the tables of the test are so small that going through them is a choice
		if _, err := tx.ExecContext(t.Context(), `SET LOCAL enable_seqscan = off`); err != nil {
			t.Fatal(err)
		}
	}

	rows, err := tx.QueryContext(t.Context(), explain+q.text, q.args...)
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, q.text)
	}

	defer func() { _ = rows.Close() }()

	var plan []string
	for rows.Next() {
		var line string
		into := []any{&line}
		if s.engine.name() == "sqlite" {
			var skip any
			into = []any{&skip, &skip, &skip, &line}
		}

		if err := rows.Scan(into...); err != nil {
			t.Fatal(err)
		}

		plan = append(plan, line)
	}

	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}

	// Of one job, or of a few payers.
	if of.sorts || strings.HasPrefix(name, "Postings") || strings.HasPrefix(name, "Documents") {
		plan = slices.DeleteFunc(plan, func(line string) bool { return line == "USE TEMP B-TREE FOR ORDER BY" })
	}

	if slices.ContainsFunc(bounded, func(part string) bool { return strings.Contains(q.text, part) }) {
		plan = slices.DeleteFunc(plan, openRange.MatchString)
	}

	beside := func(part string) bool { return strings.Contains(q.text, part) }
	index := cmp.Or(foundBy[name], of.follows)
	if index != "" && s.engine.name() == "sqlite" && !slices.ContainsFunc(besides, beside) &&
		!strings.Contains(strings.Join(plan, " "), index) {
		t.Errorf("%s: it does not use %s\n%s\n%s", name, index, q.text, strings.Join(plan, "\n"))
	}

	for _, line := range plan {
		if of.follows != "" && s.engine.name() == "postgres" {
			break
		}

		if why := check(line); why != "" {
			t.Errorf("%s: %s: %s\n%s\n%s", name, why, line, q.text, strings.Join(plan, "\n"))
			break
		}
	}
}

// small are tables that do not grow with the jobs, and what queries make up themselves.
var small = regexp.MustCompile(
	`^(records|leases|users|tokens|nodes|ledger_rollup|known|lasts|found|CONSTANT|branch\d+|\(.*)$`)

// openRange is a search by the key that has only one end, or none.
var openRange = regexp.MustCompile(`PRIMARY KEY \(rowid[<>]\?\)`)

// bounded are queries that read from a row on, and want all that follow: jobs since the first that was submitted
// after a time, and postings that are in no total yet.
var bounded = []string{"first.submitted >= ", "FROM postings WHERE seq > $1"}

func litePlan(line string) string {
	verb, rest, _ := strings.Cut(line, " ")
	table, _, _ := strings.Cut(rest, " ")

	switch {
	case line == "USE TEMP B-TREE FOR ORDER BY":
		return "it sorts all rows that it finds"
	case verb == "SCAN" && !small.MatchString(table):
		return "it goes through all of " + table
	case verb == "SEARCH" && openRange.MatchString(line) && !small.MatchString(table):
		return "it goes through " + table + " from a row on"
	}

	return ""
}

var removed = regexp.MustCompile(`Rows Removed by (?:Join )?Filter: (\d+)`)

// mostRemoved is how many rows a query may look at that it does not want.
const mostRemoved = planJobs / 10

func postgresPlan(line string) string {
	found := removed.FindStringSubmatch(line)
	if found == nil {
		return ""
	}

	n, err := strconv.Atoi(found[1])
	if err != nil {
		n = math.MaxInt
	}

	if n > mostRemoved {
		return "it looks at rows that it does not want"
	}

	return ""
}
