// Package history fills a store with what a yard leaves behind that has been in use for months: ended jobs with their
// runs, events, postings and savings, and jobs that are queued.
//
// It writes as a server would have, by the store's own commits, so that whatever the store derives from them is there
// too; only that it commits thousands of jobs at a time. The sections of the benchmark call it.
package history

import (
	"context"
	"errors"
	"fmt"
	"time"

	"trainyard/internal/clock"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/ledger"
	"trainyard/internal/place"
	"trainyard/internal/store"
	sqlstore "trainyard/internal/store/sql"
	"trainyard/internal/yardmaster"
	"trainyard/test/bench/scene"
)

// Size is how many jobs a store has.
type Size struct{ Finished, Queued int }

// Span is how far back the ended jobs go.
const Span = 90 * 24 * time.Hour

// runTime is how long each of them ran.
const runTime = 45 * time.Minute

// Nodes is how many nodes the ended jobs ran on.
const Nodes = 1000

// Of so many ended jobs one failed, one has a saving, and one got an event of the rare kind.
const (
	failedEvery = 20
	savedEvery  = 10
	rareEvery   = 50_000
)

// RareKind is the kind of the events of which there is one for every 50,000 ended jobs, and at least one.
const RareKind = "node.reclaim_notice"

// batchSize is how many jobs are written at a time.
const batchSize = 5_000

// EndOf returns when the i-th of n ended jobs ended. They are spread evenly over Span, the last one ended lately, so
// that a few of them are still in the server's memory.
func EndOf(now time.Time, i, n int) time.Time {
	// Not Span times i: for a million jobs a duration does not hold that.
	return now.Add(-Span + Span/time.Duration(n)*time.Duration(i))
}

// Fill writes jobs to a store that no server uses: the ended ones first, then the queued ones.
func Fill(ctx context.Context, clk clock.Clock, url string, size Size) (err error) {
	st, err := sqlstore.Open(ctx, url, sqlstore.Options{Clock: clk})
	if err != nil {
		return err
	}

	defer func() { err = errors.Join(err, st.Close()) }()

	if _, err := st.Lead(ctx, store.Candidate{Server: store.Server{Name: "bench"}, Lease: time.Minute}); err != nil {
		return err
	}

	now := clk.Now()

	state, err := st.Load(ctx, now)
	if err != nil {
		return err
	}

	f := filler{
		scene:   scene.New(now),
		now:     now,
		job:     state.LastJob,
		event:   state.LastEvent,
		posting: state.Ledger.LastPosting,
		saving:  state.Ledger.LastSaving,
		batch:   &yardmaster.Batch{},
	}

	f.batch.Users = f.scene.People()

	for i := range size.Finished + size.Queued {
		if i < size.Finished {
			err = f.ended(i, EndOf(now, i, size.Finished))
		} else {
			err = f.queued(i)
		}

		if err != nil {
			return err
		}

		if len(f.batch.Jobs) == batchSize || i == size.Finished+size.Queued-1 {
			if err := st.Commit(ctx, f.batch); err != nil {
				return err
			}

			f.batch = &yardmaster.Batch{}
		}
	}

	return rollUp(ctx, st)
}

// rollUp adds the postings up, as a server has done by the time that it has so many.
func rollUp(ctx context.Context, st *sqlstore.Store) error {
	for {
		n, err := st.RollUp(ctx, batchSize)
		if err != nil || n == 0 {
			return err
		}
	}
}

// filler makes up what a store would hold.
type filler struct {
	scene *scene.Scene
	now   time.Time
	batch *yardmaster.Batch

	job, event, posting, saving uint64 // numbers of the last ones
}

// next makes up the next job: one that was submitted now.
func (f *filler) next(n int) (job.Job, error) {
	f.job++
	sp, err := f.scene.Any(n)

	return job.Job{
		ID: id.NewJob(f.job), Seq: 1, Owner: f.scene.Owner(), Spec: sp, State: job.Pending, Reason: "queued",
		Submitted: f.now, Since: f.now,
	}, err
}

// queued adds a job that waits.
func (f *filler) queued(n int) error {
	j, err := f.next(n)
	if err != nil {
		return err
	}

	f.log(&j, "job.submitted", j.Submitted, job.Pending)
	f.batch.Jobs = append(f.batch.Jobs, j)

	return nil
}

// ended adds a job that has ended, with its run, the events of both, postings and some savings.
func (f *filler) ended(n int, at time.Time) error {
	j, err := f.next(n)
	if err != nil {
		return err
	}

	j.Submitted, j.Started, j.Ended, j.Since = at.Add(-2*time.Hour), at.Add(-runTime), at, at
	j.State, j.Reason = job.Succeeded, "succeeded"
	j.Seq, j.Epoch = 4, 1

	if n%failedEvery == 0 {
		j.State, j.Reason, j.Cause, j.ExitCode = job.Failed, "the program failed with exit code 1", job.CauseUserCode, 1
	}

	node := id.Node(fmt.Sprintf("node-%05d", n%Nodes))
	run := job.Run{
		ID: id.NewRun(j.ID, 1), Job: j.ID, Epoch: 1, Seq: 4, State: job.RunEnded, Cause: j.Cause, Reason: j.Reason,
		Ordered: j.Started, Started: j.Started, Ended: at,
		Ranks: []job.Rank{{
			Node: node, GPUs: []int{0}, CPUs: 8000, State: job.RunEnded, Started: j.Started, Ended: at, ExitCode: j.ExitCode,
		}},
	}

	f.batch.Jobs, f.batch.Runs = append(f.batch.Jobs, j), append(f.batch.Runs, run)
	f.log(&j, "job.submitted", j.Submitted, job.Pending)
	f.log(&j, "job.started", j.Started, job.Running)
	f.log(&j, "job."+string(j.State), at, j.State)
	f.post(&run, j.Owner)

	if n%savedEvery == 0 {
		f.save(&j)
	}

	if n%rareEvery == 0 {
		f.event++
		f.batch.Events = append(f.batch.Events, yardmaster.Event{
			Seq: f.event, At: at, Kind: RareKind, Actor: "node/" + string(node), Node: node, Reason: "taken back in 2m",
		})
	}

	return nil
}

// post adds what a run used: one of the eight GPUs of its node. As in a yard, no posting goes over the end of an hour.
func (f *filler) post(r *job.Run, owner id.User) {
	const share = 8 // of the node

	end := r.Ended.Truncate(time.Millisecond)

	for from := r.Started.Truncate(time.Millisecond); from.Before(end); {
		to := from.Truncate(time.Hour).Add(time.Hour)
		if to.After(end) {
			to = end
		}

		f.posting++
		length := to.Sub(from).Milliseconds()
		f.batch.Ledger.Postings = append(f.batch.Ledger.Postings, ledger.Posting{
			Seq: f.posting, Node: r.Ranks[0].Node, Class: "local", GPU: "A100", From: from, To: to,
			Account: ledger.Use, Owner: owner, Job: r.Job, Run: r.ID, GPUs: 1000,
			Amounts: ledger.Amounts{
				NodeTime: ledger.Span(length / share), GPUTime: ledger.Span(length), EnergyCost: ledger.Nanos(length * 30),
				Energy: ledger.Millijoules(length * 400),
			},
		})

		from = to
	}
}

// save adds what a decision about a job saved.
func (f *filler) save(j *job.Job) {
	kinds := place.DecisionKinds()

	f.saving++
	f.batch.Ledger.Savings = append(f.batch.Ledger.Savings, ledger.Saving{
		Seq: f.saving, At: j.Ended, Job: j.ID, Owner: j.Owner, Kind: string(kinds[f.saving%uint64(len(kinds))]),
		Money: ledger.Nanos(1e8 * (1 + f.saving%50)), Reason: "provision an on-demand node (8× A100)",
	})
}

// log adds an event of a job.
func (f *filler) log(j *job.Job, kind string, at time.Time, to job.State) {
	f.event++
	f.batch.Events = append(f.batch.Events, yardmaster.Event{
		Seq: f.event, At: at, Kind: kind, Actor: string(j.Owner), Owner: j.Owner, Job: j.ID, To: string(to), Reason: j.Reason,
	})
}
