package sql

import (
	"context"
	dbsql "database/sql"
	"errors"
	"fmt"
	"slices"

	"trainyard/internal/checkpoint"
	"trainyard/internal/clock"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/inbox"
	"trainyard/internal/job"
	"trainyard/internal/queue"
	"trainyard/internal/store"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// changes is the combined effect of several batches: each changed row once, in its state after the
// last of them.
type changes struct {
	jobs     []*job.Job
	arrays   []*job.Job // first elements
	runs     []*job.Run
	jobNodes []*jobNode
	nodes    []*fleet.Node
	agents   []*fleet.Agent
	users    []*tenant.User
	tokens   []*tenant.Token
	events   []*yardmaster.Event
	past     []*queue.PastRun
	dropped  []*uint64 // numbers of past runs to be deleted
	orders   []*yardmaster.Order
	closed   []*string

	incarnations []*yardmaster.Incarnation
	checkpoints  []*checkpoint.Checkpoint
	questions    []*inbox.Question
}

// fold combines batches into changes. A statement may touch a row only once, and what was opened
// and closed again within the batches need not be written at all.
func fold(batches []*yardmaster.Batch) changes {
	jobs, runs := newest[id.Job, job.Job]{}, newest[id.Run, job.Run]{}
	nodes, users := newest[id.Node, fleet.Node]{}, newest[id.User, tenant.User]{}
	tokens, events := newest[id.Token, tenant.Token]{}, newest[uint64, yardmaster.Event]{}
	jobNodes, agents := newest[jobNode, jobNode]{}, newest[id.Node, fleet.Agent]{}
	past, dropped := newest[uint64, queue.PastRun]{}, newest[uint64, uint64]{}
	orders, closed := newest[string, yardmaster.Order]{}, newest[string, string]{}
	incarnations := newest[uint64, yardmaster.Incarnation]{}
	checkpoints := newest[id.Checkpoint, checkpoint.Checkpoint]{}
	questions := newest[id.Question, inbox.Question]{}
	arrays := newest[id.Array, job.Job]{}

	for _, b := range batches {
		for i := range b.Jobs {
			jobs.put(b.Jobs[i].ID, b.Jobs[i].Seq, &b.Jobs[i])

			if beginsArray(&b.Jobs[i]) {
				arrays.put(b.Jobs[i].Array, b.Jobs[i].Seq, &b.Jobs[i])
			}
		}

		for i := range b.Runs {
			r := &b.Runs[i]
			runs.put(r.ID, r.Seq, r)

			for k := range r.Ranks {
				n := jobNode{node: r.Ranks[k].Node, job: r.Job}
				jobNodes.put(n, 0, &n)
			}
		}

		for i := range b.Nodes {
			nodes.put(b.Nodes[i].ID, b.Nodes[i].Seq, &b.Nodes[i])
		}

		for i := range b.Agents {
			agents.put(b.Agents[i].Node, 0, &b.Agents[i])
		}

		for i := range b.Users {
			users.put(b.Users[i].ID, b.Users[i].Seq, &b.Users[i])
		}

		for i := range b.Tokens {
			tokens.put(b.Tokens[i].ID, b.Tokens[i].Seq, &b.Tokens[i])
		}

		for i := range b.Events {
			events.put(b.Events[i].Seq, 0, &b.Events[i])
		}

		for i := range b.Past {
			past.put(b.Past[i].Number, 0, &b.Past[i])
		}

		for i := range b.PastForgotten {
			past.drop(b.PastForgotten[i])
			dropped.put(b.PastForgotten[i], 0, &b.PastForgotten[i])
		}

		for i := range b.Incarnations {
			incarnations.put(b.Incarnations[i].Number, 0, &b.Incarnations[i])
		}

		for i := range b.Checkpoints {
			checkpoints.put(b.Checkpoints[i].ID, b.Checkpoints[i].Seq, &b.Checkpoints[i])
		}

		for i := range b.Questions {
			questions.put(b.Questions[i].ID, b.Questions[i].Seq, &b.Questions[i])
		}

		for i := range b.Orders {
			key := b.Orders[i].Key()
			orders.put(key, 0, &b.Orders[i])
			closed.drop(key)
		}

		for i := range b.Closed {
			orders.drop(b.Closed[i])
			closed.put(b.Closed[i], 0, &b.Closed[i])
		}
	}

	return changes{
		jobs: jobs.rows(), arrays: arrays.rows(), runs: runs.rows(), jobNodes: jobNodes.rows(), nodes: nodes.rows(),
		agents: agents.rows(), users: users.rows(),
		tokens: tokens.rows(), events: events.rows(), orders: orders.rows(), closed: closed.rows(),
		past: past.rows(), dropped: dropped.rows(), incarnations: incarnations.rows(),
		checkpoints: checkpoints.rows(), questions: questions.rows(),
	}
}

// newest keeps the newest row for each key, in the order in which the keys first appeared.
type newest[K comparable, T any] struct {
	at   map[K]int
	list []*T
	seqs []uint64
}

func (n *newest[K, T]) put(key K, seq uint64, row *T) {
	if n.at == nil {
		n.at = make(map[K]int)
	}

	i, ok := n.at[key]
	if !ok {
		n.at[key] = len(n.list)
		n.list, n.seqs = append(n.list, row), append(n.seqs, seq)
		return
	}

	if seq >= n.seqs[i] {
		n.list[i], n.seqs[i] = row, seq
	}
}

func (n *newest[K, T]) drop(key K) {
	if i, ok := n.at[key]; ok {
		n.list[i] = nil
		delete(n.at, key)
	}
}

func (n *newest[K, T]) rows() []*T {
	kept := n.list[:0]
	for _, row := range n.list {
		if row != nil {
			kept = append(kept, row)
		}
	}

	return kept
}

// Commit writes the batches in one transaction. Even without anything to write it fails if this
// store's server does not lead.
func (s *Store) Commit(ctx context.Context, batches ...*yardmaster.Batch) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.term.Load() == 0 {
		return store.ErrNotLeader
	}

	if f := s.keys.Load(); f != nil {
		f.addBatches(batches)
	}

	books, err := foldLedger(batches)
	if err != nil {
		return s.failure("commit", fault.New(fault.Internal, "bad_value", "a value cannot be stored: %s", err).WithCause(err))
	}

	return s.failure("commit", s.commit(ctx, batches, fold(batches), books))
}

func (s *Store) commit(ctx context.Context, batches []*yardmaster.Batch, c changes, books ledgerChanges) error {
	steps := []step{
		put(jobTable, c.jobs, jobRow),
		put(arrayTable, c.arrays, arrayRow),
		put(runTable, c.runs, runRow),
		put(jobNodeTable, c.jobNodes, jobNodeRow),
		put(nodeTable, c.nodes, nodeRow),
		put(agentTable, c.agents, agentRow),
		put(userTable, c.users, userRow),
		put(tokenTable, c.tokens, tokenRow),
		put(eventTable, c.events, eventRow),
		put(pastTable, c.past, pastRow),
		{stmtKey{table: pastTable, remove: true}, len(c.dropped), func(i int, args []any) ([]any, error) {
			return append(args, int64(*c.dropped[i])), nil
		}},
		put(incarnationTable, c.incarnations, incarnationRow),
		put(checkpointTable, c.checkpoints, checkpointRow),
		put(questionTable, c.questions, questionRow),
		put(orderTable, c.orders, orderRow),
		{stmtKey{table: orderTable, remove: true}, len(c.closed), func(i int, args []any) ([]any, error) {
			return append(args, clean(*c.closed[i])), nil
		}},
	}

	return s.transact(ctx, batches, append(steps, books.steps()...)...)
}

// doubt is a transaction whose outcome is not known: it was sent, and no answer came.
type doubt struct {
	number  int64
	batches []*yardmaster.Batch // that it writes; none if it writes documents
}

// transact carries out the steps that write the batches in one transaction, if this store's server still
// leads. It finds out first what became of an earlier transaction whose outcome is not known.
//
// The time limit is for each statement: a large commit may take longer than a small one, and would never get through
// if it were ended each time.
func (s *Store) transact(parent context.Context, batches []*yardmaster.Batch, steps ...step) error {
	ctx, moved, stop := clock.Progress(parent, s.timeouts.Commit)
	defer stop()

	if last := s.doubt; last != nil {
		stored, err := s.resolve(ctx)
		if err != nil || stored && len(batches) > 0 && slices.Equal(last.batches, batches) {
			return s.timedOut(ctx, err)
		}
	}

	return s.timedOut(ctx, s.attempt(ctx, moved, batches, steps))
}

// timedOut adds to an error that the time was over, if it was, and replaces the connections for writing if they may be
// broken.
func (s *Store) timedOut(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		err = fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	}

	s.dropIdle(err, s.write)

	return err
}

// resolve finds out whether the transaction in doubt was stored. Each transaction that writes has a
// number, one more than the one before, and holds the row with the number until it ends: whoever gets the row
// knows that the transaction in doubt has ended.
func (s *Store) resolve(ctx context.Context) (bool, error) {
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return false, fmt.Errorf("find out whether the last commit was stored: %w", err)
	}

	defer func() { _ = tx.Rollback() }() // nothing was written

	if err := s.fence(ctx, tx); err != nil {
		return false, err
	}

	var number int64
	err = tx.QueryRowContext(ctx, `SELECT commits FROM meta WHERE one = 1`+s.engine.forUpdate()).Scan(&number)
	if err != nil {
		return false, fmt.Errorf("find out whether the last commit was stored: %w", err)
	}

	stored := number == s.doubt.number
	s.log.InfoContext(ctx, "outcome of a commit that was not answered is known now", "stored", stored)

	if stored {
		s.commits = number
	}

	s.doubt = nil

	return stored, nil
}

// dropIdle replaces idle connections after an error that shows that they may be broken.
func (s *Store) dropIdle(err error, pools ...*dbsql.DB) {
	if err == nil || !errors.Is(err, context.DeadlineExceeded) && (errors.Is(err, context.Canceled) || !broken(err)) {
		return
	}

	s.engine.dropIdle(pools...)
}

// attempt carries out steps in one transaction.
func (s *Store) attempt(ctx context.Context, moved func(), batches []*yardmaster.Batch, steps []step) error {
	for _, step := range steps {
		if err := s.prepareStep(ctx, step); err != nil {
			return fmt.Errorf("prepare for %s: %w", step.key.table.name, err)
		}
	}

	// Every commit has these two, and the text of a statement takes longer to read than the statement.
	fence, count := stmtKey{text: s.fenceText()}, stmtKey{text: countText}
	if err := errors.Join(s.prepareStmt(ctx, fence), s.prepareStmt(ctx, count)); err != nil {
		return fmt.Errorf("prepare a commit: %w", err)
	}

	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}

	defer func() { _ = tx.Rollback() }() // no effect after Commit

	// The end of the transaction closes both statements.
	leader := tx.StmtContext(ctx, s.stmts[fence]) //nolint:sqlclosecheck // see above
	if err := s.checkTerm(leader.QueryRowContext(ctx)); err != nil {
		return err
	}
	if err := s.count(ctx, tx.StmtContext(ctx, s.stmts[count])); err != nil {
		return err
	}

	for _, step := range steps {
		if err := s.run(ctx, tx, moved, step); err != nil {
			return fmt.Errorf("write %s: %w", step.key.table.name, err)
		}
	}

	moved()

	number := s.commits + 1
	if err := tx.Commit(); err != nil {
		s.doubt = &doubt{number: number, batches: batches}
		return err
	}

	s.commits = number

	return nil
}

// countText is the statement of count.
const countText = `UPDATE meta SET commits = commits + 1 WHERE one = 1 AND commits = $1`

// count gives a transaction the number after that of the last one.
func (s *Store) count(ctx context.Context, stmt *dbsql.Stmt) error {
	counted, err := changed(stmt.ExecContext(ctx, s.commits))
	if err != nil {
		return err
	}
	if !counted {
		return fault.New(fault.Internal, "store_changed", "the store was changed by another server under this term")
	}

	return nil
}

// step is one statement over n rows.
type step struct {
	key    stmtKey // without the number of rows
	n      int
	encode func(i int, args []any) ([]any, error)
}

// put returns the step that writes rows into a table.
func put[T any](t *table, rows []*T, encode func([]any, *T) ([]any, error)) step {
	return step{stmtKey{table: t}, len(rows), func(i int, args []any) ([]any, error) { return encode(args, rows[i]) }}
}

// prepareStep prepares the statements of a step before the transaction, because the transaction
// occupies the only connection for writing.
func (s *Store) prepareStep(ctx context.Context, step step) error {
	return s.chunked(step, func(key stmtKey, _, _ int) error { return s.prepareStmt(ctx, key) })
}

func (s *Store) run(ctx context.Context, tx *dbsql.Tx, moved func(), step step) error {
	var args []any
	return s.chunked(step, func(key stmtKey, first, times int) (err error) {
		stmt := tx.StmtContext(ctx, s.stmts[key])
		defer func() { err = errors.Join(err, stmt.Close()) }()

		for ; times > 0; times-- {
			args = args[:0]
			for range key.rows {
				args, err = step.encode(first, args)
				if err != nil {
					return fault.New(fault.Internal, "bad_value", "a value cannot be stored: %s", err).WithCause(err)
				}

				first++
			}

			if _, err := stmt.ExecContext(ctx, args...); err != nil {
				return err
			}

			moved()
		}

		return nil
	})
}

// chunked splits the rows of a step into chunks that suit the engine, and calls do with the
// statement, its first row, and how many times to execute it.
func (s *Store) chunked(step step, do func(key stmtKey, first, times int) error) error {
	first, key := 0, step.key
	for _, size := range s.engine.chunks() {
		times := (step.n - first) / size
		if times == 0 {
			continue
		}

		key.rows = size
		if err := do(key, first, times); err != nil {
			return err
		}

		first += times * size
	}

	return nil
}
