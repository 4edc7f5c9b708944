package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/store"
	sqlstore "trainyard/internal/store/sql"
	"trainyard/internal/store/storetest/pgtest"
	"trainyard/internal/yardmaster"
	"trainyard/test/bench/scene"
	"trainyard/test/bench/yard"
)

// restartSection measures how long a server that was killed takes from the
// start of its process until it is ready, with a long history and a long queue.
type restartSection struct{ settings }

func (restartSection) Name() string { return "restart" }

// Run measures on SQLite and on PostgreSQL.
func (s restartSection) Run(ctx context.Context) (out []figure, err error) {
	err = s.bench(ctx, func(_, binary string) error {
		sqlite, err := s.measure(ctx, "restart_s_1m", yard.Options{Binary: binary})
		if err != nil {
			return err
		}

		out = append(out, sqlite...)

		return s.postgres(ctx, &out, binary)
	})

	return out, err
}

func (s restartSection) postgres(ctx context.Context, out *[]figure, binary string) (err error) {
	server, err := pgtest.Start("", true)
	if err != nil {
		return err
	}

	defer func() { err = errors.Join(err, server.Stop()) }()

	url, err := server.NewDatabase("restart")
	if err != nil {
		return err
	}

	figures, err := s.measure(ctx, "restart_s_1m_postgres", yard.Options{Binary: binary, Store: url})
	*out = append(*out, figures...)

	return err
}

// measure fills a store and restarts a server on it three times.
func (s restartSection) measure(ctx context.Context, name string, o yard.Options) (out []figure, err error) {
	finished, queued := 1_000_000, 100_000
	if s.quick {
		finished, queued = 2_000, 200
	}

	y, err := yard.Start(ctx, o)
	if err != nil {
		return nil, err
	}

	defer func() { err = errors.Join(err, y.Stop()) }()

	if err := y.Halt(); err != nil {
		return nil, err
	}

	began := s.clock.Now()

	if err := s.fill(ctx, y.Database(), finished, queued); err != nil {
		return nil, fmt.Errorf("fill the store: %w", err)
	}

	_, _ = fmt.Fprintf(s.notes, "   %s: store filled in %s\n", name, s.clock.Now().Sub(began).Round(time.Second))
	var samples []time.Duration

	for range 3 {
		began := s.clock.Now()

		if err := y.Run(ctx); err != nil {
			return nil, err
		}

		samples = append(samples, s.clock.Now().Sub(began))

		waiting, err := y.Metric(ctx, "trainyard_queued_jobs")
		if err != nil {
			return nil, err
		}
		if int(waiting) != queued {
			return nil, fmt.Errorf("the yard has %.0f queued jobs, want %d", waiting, queued)
		}

		memory, err := y.Memory()
		if err != nil {
			return nil, err
		}

		_, _ = fmt.Fprintf(s.notes, "   %s: %s, %d MiB\n", name, samples[len(samples)-1].Round(time.Millisecond), memory>>20)

		if err := y.Kill(); err != nil {
			return nil, err
		}
	}

	return []figure{
		{
			name,
			percentile(samples, 50).Seconds(),
			"s",
			fmt.Sprintf(
				"%d finished and %d queued jobs; from the process's start until /readyz says yes; median of %d, after kill -9, "+
					"files in the page cache",
				finished,
				queued,
				len(samples),
			),
		},
	}, nil
}

// history is how far back the finished jobs go. They are spread evenly, so that
// a few ended so lately that the server still keeps them in memory.
const history = 90 * 24 * time.Hour

// fillBatch is how many jobs are written at a time.
const fillBatch = 5_000

// fill writes jobs as a server would have, in large commits.
func (s restartSection) fill(ctx context.Context, url string, finished, queued int) (err error) {
	st, err := sqlstore.Open(ctx, url, sqlstore.Options{Clock: s.clock})
	if err != nil {
		return err
	}

	defer func() { err = errors.Join(err, st.Close()) }()

	if _, err := st.Lead(ctx, store.Candidate{Server: store.Server{Name: "bench"}, Lease: time.Minute}); err != nil {
		return err
	}

	state, err := st.Load(ctx, s.clock.Now())
	if err != nil {
		return err
	}

	f := filler{
		scene: scene.New(s.clock.Now()),
		now:   s.clock.Now(),
		job:   state.LastJob,
		event: state.LastEvent,
		batch: &yardmaster.Batch{},
	}

	f.batch.Users = f.scene.People()
	for i := range finished + queued {
		ended := f.now.Add(-history + history*time.Duration(i)/time.Duration(finished))
		if err := f.add(i, ended, i >= finished); err != nil {
			return err
		}

		if len(f.batch.Jobs) == fillBatch || i == finished+queued-1 {
			if err := st.Commit(ctx, f.batch); err != nil {
				return err
			}

			f.batch = &yardmaster.Batch{}
		}
	}

	return nil
}

// filler makes up what the store would hold.
type filler struct {
	scene *scene.Scene
	now   time.Time
	job   uint64
	event uint64
	batch *yardmaster.Batch
}

// add adds a job: one that waits, or one that has ended, with its run and the events of both.
func (f *filler) add(n int, ended time.Time, waits bool) error {
	f.job++
	sp, err := f.scene.Any(n)
	if err != nil {
		return err
	}

	j := job.Job{
		ID: id.NewJob(f.job), Seq: 1, Owner: f.scene.Owner(), Spec: sp, State: job.Pending, Reason: "queued",
		Submitted: f.now, Since: f.now,
	}

	if waits {
		f.log(&j, "job.submitted", j.Submitted)
		f.batch.Jobs = append(f.batch.Jobs, j)
		return nil
	}

	j.Submitted, j.Started, j.Ended, j.Since = ended.Add(-3*time.Hour), ended.Add(-2*time.Hour), ended, ended
	j.State = job.Succeeded
	j.Reason = "succeeded"
	j.Seq = 4
	j.Epoch = 1
	run := job.Run{
		ID:      id.NewRun(j.ID, 1),
		Job:     j.ID,
		Epoch:   1,
		Seq:     4,
		State:   job.RunEnded,
		Reason:  "succeeded",
		Ordered: j.Started,
		Started: j.Started,
		Ended:   ended,
		Ranks: []job.Rank{
			{
				Node:    id.Node(fmt.Sprintf("node-%05d", n%1000)),
				GPUs:    []int{0},
				CPUs:    8000,
				State:   job.RunEnded,
				Started: j.Started,
				Ended:   ended,
			},
		},
	}

	f.batch.Jobs, f.batch.Runs = append(f.batch.Jobs, j), append(f.batch.Runs, run)
	f.log(&j, "job.submitted", j.Submitted)
	f.log(&j, "job.succeeded", ended)

	return nil
}

func (f *filler) log(j *job.Job, kind string, at time.Time) {
	f.event++
	f.batch.Events = append(f.batch.Events, yardmaster.Event{
		Seq:    f.event,
		At:     at,
		Kind:   kind,
		Actor:  string(j.Owner),
		Owner:  j.Owner,
		Job:    j.ID,
		To:     string(j.State),
		Reason: j.Reason,
	})
}
