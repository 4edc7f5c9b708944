package sql

import (
	"context"
	dbsql "database/sql"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/yardmaster"
)

// Load reads everything in one transaction, so that the result is consistent.
func (s *Store) Load(ctx context.Context, recent time.Time) (yardmaster.State, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeouts.Load)
	defer cancel()

	tx, err := s.read.BeginTx(ctx, &dbsql.TxOptions{Isolation: dbsql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return yardmaster.State{}, s.failure("load the yard", err)
	}

	defer func() { _ = tx.Rollback() }() // nothing was written

	state, err := s.load(ctx, tx, recent)
	if err != nil {
		return yardmaster.State{}, s.failure("load the yard", err)
	}

	return state, nil
}

func (s *Store) load(ctx context.Context, tx *dbsql.Tx, recent time.Time) (state yardmaster.State, err error) {
	parts := []func() error{
		func() (err error) {
			state.Jobs, err = s.loadJobs(ctx, tx, recent)
			return err
		},
		func() (err error) {
			// A run that has not ended belongs to a job that has not ended.
			state.Runs, err = collect(ctx, tx, "run", runTable.selects()+`WHERE state <> 'ended'`, nil, readRun)
			return err
		},
		func() (err error) {
			state.Nodes, err = collect(ctx, tx, "node", nodeTable.selects(), nil, readNode)
			return err
		},
		func() (err error) {
			state.IdleSince, err = loadIdle(ctx, tx, state.Nodes)
			return err
		},
		func() (err error) {
			state.Agents, err = collect(ctx, tx, "agent", agentTable.selects()+`ORDER BY node`, nil, readAgent)
			return err
		},
		func() (err error) {
			state.Users, err = collect(ctx, tx, "user", userTable.selects(), nil, readUser)
			return err
		},
		func() (err error) {
			state.Tokens, err = collect(ctx, tx, "token", tokenTable.selects(), nil, readToken)
			return err
		},
		func() (err error) {
			state.Orders, err = collect(ctx, tx, "order", orderTable.selects(), nil, readOrder)
			return err
		},
		func() (err error) {
			// It holds as many as are remembered, however many jobs there were.
			state.Past, err = collect(ctx, tx, "past run", pastTable.selects()+`ORDER BY num`, nil, readPast)
			return err
		},
		func() (err error) {
			state.Needs, err = loadNeeds(ctx, tx, state.Jobs)
			return err
		},
		func() (err error) {
			state.LastJob, err = greatest(ctx, tx, `SELECT MAX(num) FROM jobs`)
			return err
		},
		func() (err error) {
			state.LastEvent, err = greatest(ctx, tx, `SELECT MAX(seq) FROM events`)
			return err
		},
		func() error {
			at, err := greatest(ctx, tx, `SELECT MAX(at) FROM events WHERE seq = (SELECT MAX(seq) FROM events)`)
			state.LastEventAt = fromMicros(int64(at))
			return err
		},
		func() (err error) {
			state.Questions, err = collect(ctx, tx, "question",
				questionTable.selects()+`WHERE state = 'open' ORDER BY num, question`, nil, readQuestion)
			return err
		},
		func() error { return loadLedger(ctx, tx, &state, recent.Add(-leaseMemory)) },
		func() (err error) {
			state.Checkpoints, err = collect(ctx, tx, "checkpoint", checkpointTable.selects()+catalogued,
				[]any{micros(recent)}, readCheckpoint)
			return err
		},
		func() error { return loadIncarnation(ctx, tx, &state) },
	}

	for _, part := range parts {
		if err := part(); err != nil {
			return yardmaster.State{}, err
		}
	}

	return state, nil
}

// idleJobs bounds how many of the newest jobs of a node are looked at for the one that ended last there.
const idleJobs = 20

// loadIdle reads when the last run on each node ended.
func loadIdle(ctx context.Context, tx *dbsql.Tx, nodes []fleet.Node) (map[id.Node]time.Time, error) {
	idle := make(map[id.Node]time.Time, len(nodes))
	for i := range nodes {
		n := &nodes[i]
		if n.State == fleet.Removed {
			continue
		}

		runs, err := collect(ctx, tx, "run", runTable.selects()+`WHERE state = 'ended' AND num IN (
			SELECT num FROM job_nodes WHERE node = $1 ORDER BY num DESC LIMIT $2)`, []any{string(n.ID), idleJobs}, readRun)
		if err != nil {
			return nil, err
		}

		idle[n.ID] = n.Joined
		for k := range runs {
			here := func(r job.Rank) bool { return r.Node == n.ID }
			if runs[k].Ended.After(idle[n.ID]) && slices.ContainsFunc(runs[k].Ranks, here) {
				idle[n.ID] = runs[k].Ended
			}
		}
	}

	return idle, nil
}

// loadIncarnation reads the newest incarnation. Numbers that earlier ones may have used count as used.
func loadIncarnation(ctx context.Context, tx *dbsql.Tx, state *yardmaster.State) error {
	newest, err := collect(ctx, tx, "incarnation", incarnationTable.selects()+`ORDER BY num DESC LIMIT 1`, nil,
		readIncarnation)
	if err != nil || len(newest) == 0 {
		return err
	}

	state.Incarnation = newest[0]
	state.LastJob = max(state.LastJob, newest[0].Last.Job)
	state.LastLease = max(state.LastLease, newest[0].Last.Lease)
	state.LastEvent = max(state.LastEvent, newest[0].Last.Event)

	return nil
}

// leaseMemory is how much longer ended leases are read than ended jobs, because the catalog of
// offers learns from them which offers are available.
const leaseMemory = 24 * time.Hour

func greatest(ctx context.Context, q querier, query string) (uint64, error) {
	var n dbsql.NullInt64
	err := q.QueryRowContext(ctx, query).Scan(&n)
	return uint64(n.Int64), err
}

// loadNeeds reads the states of ended jobs on which jobs that have not ended depend.
func loadNeeds(ctx context.Context, tx *dbsql.Tx, jobs []job.Job) (map[id.Job]job.State, error) {
	loaded := make(map[id.Job]job.State, len(jobs))
	for i := range jobs {
		loaded[jobs[i].ID] = jobs[i].State
	}

	needs := make(map[id.Job]job.State)

	missing := make(map[id.Job]bool)
	for i := range jobs {
		if jobs[i].State.Final() {
			continue
		}

		for _, need := range jobs[i].Needs {
			state, ok := loaded[need]
			switch {
			case !ok:
				missing[need] = true
			case state.Final():
				needs[need] = state
			}
		}
	}

	stmt, err := tx.PrepareContext(ctx, `SELECT state FROM jobs WHERE num = $1`)
	if err != nil {
		return nil, err
	}

	defer func() { _ = stmt.Close() }() // it was used for reading only

	for need := range missing {
		num, ok := need.Number()
		if !ok {
			continue
		}

		var state job.State
		err := stmt.QueryRowContext(ctx, int64(num)).Scan((*string)(&state))
		if errors.Is(err, dbsql.ErrNoRows) {
			continue
		}
		if err != nil {
			return nil, err
		}

		needs[need] = state
	}

	return needs, nil
}

// loadJobs reads the jobs that have not ended, or that ended at recent or later. There may be very
// many, and most of the time is spent on decoding; therefore other goroutines decode while this one
// reads.
func (s *Store) loadJobs(ctx context.Context, tx *dbsql.Tx, recent time.Time) ([]job.Job, error) {
	arrays, err := collect(ctx, tx, "array", loadedArrays, []any{micros(recent)}, readNumber)
	if err != nil {
		return nil, err
	}

	specs, err := s.readSpecs(ctx, tx, arrays)
	if err != nil {
		return nil, err
	}

	d := newDecoder(specs)
	err = d.read(ctx, tx, jobTable.selects()+liveJobs)
	if err == nil {
		err = d.read(ctx, tx, jobTable.selects()+endedJobs, micros(recent))
	}

	jobs, decodeErr := d.finish()

	if err != nil {
		return nil, err
	}
	if decodeErr != nil {
		return nil, badRow(ctx, "job", decodeErr)
	}

	return jobs, nil
}

// The two sets are disjoint. The second uses NOT IN so that the database searches by the time of
// the end and not by the state, which almost all jobs share.
const (
	liveJobs  = `WHERE state IN (` + liveStates + `)`
	endedJobs = `WHERE ended >= $1 AND ended > 0 AND state NOT IN (` + liveStates + `)`
)

// loadedArrays are the arrays of both.
const loadedArrays = `SELECT DISTINCT array_num FROM jobs WHERE array_num > 0 AND (state IN (` + liveStates + `)
	OR ended >= $1 AND ended > 0)`

// liveStates are the states that are not final; the contract tests compare it with job.States.
const liveStates = `'pending', 'starting', 'running', 'recovering', 'pausing', 'paused', 'cancelling'`

// decoderChunk is how many jobs are passed to a goroutine at a time.
const decoderChunk = 512

// decoder decodes jobs in parallel and returns them in the order in which they were read.
type decoder struct {
	specs   map[int64]*job.Spec // of arrays
	work    chan decoderWork
	workers sync.WaitGroup
	out     [][]job.Job
	mu      sync.Mutex // guards err
	err     error
}

type decoderWork struct {
	stored []storedJob
	out    []job.Job
}

func newDecoder(specs map[int64]*job.Spec) *decoder {
	n := runtime.GOMAXPROCS(0)
	d := &decoder{specs: specs, work: make(chan decoderWork, n)}
	for range n {
		d.workers.Go(d.decode)
	}

	return d
}

func (d *decoder) decode() {
	for work := range d.work {
		for i := range work.stored {
			j, err := work.stored[i].decode(d.specs)
			if err != nil {
				d.mu.Lock()
				d.err = err
				d.mu.Unlock()
			}

			work.out[i] = j
		}
	}
}

// read passes all rows of a query to the goroutines.
func (d *decoder) read(ctx context.Context, q querier, query string, args ...any) (err error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}

	defer func() { err = errors.Join(err, rows.Close()) }()

	stored := make([]storedJob, 0, decoderChunk)
	flush := func() {
		out := make([]job.Job, len(stored))
		d.out = append(d.out, out)
		d.work <- decoderWork{stored, out}
		stored = make([]storedJob, 0, decoderChunk)
	}

	for rows.Next() {
		s, err := scanJob(rows)
		if err != nil {
			return badRow(ctx, "job", err)
		}

		stored = append(stored, s)
		if len(stored) == cap(stored) {
			flush()
		}
	}

	flush()

	return rows.Err()
}

// finish waits for the goroutines and returns all jobs.
func (d *decoder) finish() ([]job.Job, error) {
	close(d.work)
	d.workers.Wait()

	total := 0
	for _, out := range d.out {
		total += len(out)
	}

	jobs := make([]job.Job, 0, total)
	for _, out := range d.out {
		jobs = append(jobs, out...)
	}

	if d.err != nil {
		return nil, fmt.Errorf("decode: %w", d.err)
	}

	return jobs, nil
}
