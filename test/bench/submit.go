package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/clock"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/store/storetest/pgtest"
	"trainyard/test/bench/yard"
)

// submitSection measures durable submissions: each is one job file in one
// request over TLS, answered when its job is on the disk. The clients are part
// of this process and share the machine with the server, as Slurm's do with slurmctld.
type submitSection struct{ settings }

func (submitSection) Name() string { return "submit" }

// rounds is how often each rate is measured, each time on a new server; the
// best counts, as it does for Slurm.
func (s settings) rounds() int {
	if s.quick {
		return 1
	}

	return 3
}

// bench makes a folder for a section and lets it work there with the binary that all of them measure.
func (s settings) bench(ctx context.Context, work func(dir, binary string) error) (err error) {
	dir, err := os.MkdirTemp("", "trainyard-bench-")
	if err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}

	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	binary, err := s.build.binary(ctx)
	if err != nil {
		return err
	}

	return work(dir, binary)
}

// Run measures SQLite first, then PostgreSQL.
func (s submitSection) Run(ctx context.Context) (out []figure, err error) {
	err = s.bench(ctx, func(_, binary string) error {
		sqlite := func(string) (string, error) { return "", nil }
		for _, clients := range []int{1, 64} {
			for _, keyed := range []bool{false, true} {
				if err := s.best(ctx, &out, binary, "sqlite", sqlite, clients, keyed); err != nil {
					return err
				}
			}
		}

		return s.postgres(ctx, &out, binary)
	})

	return out, err
}

// postgres measures on a PostgreSQL server of its own that syncs to the disk.
func (s submitSection) postgres(ctx context.Context, out *[]figure, binary string) (err error) {
	server, err := pgtest.Start("", true)
	if err != nil {
		return err
	}

	defer func() { err = errors.Join(err, server.Stop()) }()

	for _, clients := range []int{1, 64} {
		if err := s.best(ctx, out, binary, "postgres", server.NewDatabase, clients, false); err != nil {
			return err
		}
	}

	return nil
}

// best adds the best of some rounds. A submission with an idempotency key is a
// figure beside: the key is checked, and stored with the job.
func (s submitSection) best(
	ctx context.Context,
	out *[]figure,
	binary, engine string,
	database func(name string) (string, error),
	clients int,
	keyed bool,
) error {
	best := figure{name: fmt.Sprintf("submit_per_s_%s_%d", engine, clients), unit: "jobs/s"}
	if keyed {
		best.name = fmt.Sprintf("submit_keyed_per_s_%s_%d", engine, clients)
	}

	for round := range s.rounds() {
		store, err := database(fmt.Sprintf("%s_%d", best.name, round))
		if err != nil {
			return err
		}

		got, err := s.rate(ctx, yard.Options{Binary: binary, Store: store}, clients, keyed)
		if err != nil {
			return fmt.Errorf("submit to %s with %d clients: %w", engine, clients, err)
		}

		if got.rate > best.value {
			best.value = got.rate
			best.note = fmt.Sprintf(
				"%d jobs, one to a request; %s of the server's processor time each; all there after kill -9 and restart; best "+
					"of %d rounds",
				got.jobs,
				(got.cpu / time.Duration(got.jobs)).Round(time.Microsecond),
				s.rounds(),
			)
		}
	}

	*out = append(*out, best)

	return nil
}

// round is what one round came to.
type round struct {
	jobs int
	rate float64
	cpu  time.Duration // of the server's process
}

// rate measures one round on a server of its own, kills the server while the
// clients go on, and makes sure that it has every job that it acknowledged.
func (s submitSection) rate(ctx context.Context, o yard.Options, clients int, keyed bool) (got round, err error) {
	y, err := yard.Start(ctx, o)
	if err != nil {
		return round{}, err
	}

	defer func() { err = errors.Join(err, y.Stop()) }()

	submits := make([]*submitter, clients)
	for i := range submits {
		submits[i], err = newSubmitter(y, i, keyed)
		if err != nil {
			return round{}, err
		}

		defer submits[i].client.Close()

		// One each beforehand: connections and caches are no part of a rate.
		if err := submits[i].submit(ctx); err != nil {
			return round{}, err
		}
	}

	push := load{clients: clients, span: 6 * time.Second, calls: 100_000}
	if s.quick {
		push.span, push.calls = time.Second, 500
	}

	before, err := y.CPU()
	if err != nil {
		return round{}, err
	}

	got.jobs, got.rate, err = push.push(ctx, s.clock, func(i int) func(context.Context) error { return submits[i].submit })
	if err != nil {
		return round{}, err
	}

	after, err := y.CPU()
	if err != nil {
		return round{}, err
	}

	got.cpu = after - before

	if err := crash(ctx, y, submits); err != nil {
		return round{}, err
	}

	return got, s.verify(ctx, y, submits)
}

// submitter is one client.
type submitter struct {
	client *api.Client
	name   int
	keyed  bool
	acked  []id.Job
}

func newSubmitter(y *yard.Yard, name int, keyed bool) (*submitter, error) {
	client, err := y.Client()
	return &submitter{client: client, name: name, keyed: keyed}, err
}

// jobFile is what is submitted: small, as the batch script that Slurm gets.
const jobFile = `run: "true"`

func (s *submitter) submit(ctx context.Context) error {
	key := ""
	if s.keyed {
		key = fmt.Sprintf("client-%d-job-%d", s.name, len(s.acked))
	}

	reply, err := s.client.Submit(ctx, api.SubmitRequest{File: jobFile}, key)
	if err != nil {
		return err
	}
	if len(reply.Jobs) != 1 || reply.Replay {
		return fmt.Errorf("submitted one new job and got %d back", len(reply.Jobs))
	}

	s.acked = append(s.acked, reply.Jobs[0].ID)

	return nil
}

// crash kills the server under load; the clients go on until it is gone.
func crash(ctx context.Context, y *yard.Yard, submits []*submitter) error {
	var group sync.WaitGroup
	for _, s := range submits {
		group.Go(func() {
			for s.submit(ctx) == nil { // the first failure is the server's death
			}
		})
	}

	clock.Sleep(ctx, 200*time.Millisecond)
	err := y.Kill()
	group.Wait()

	return err
}

// verify starts the server again and compares what it has with what it acknowledged.
func (submitSection) verify(ctx context.Context, y *yard.Yard, submits []*submitter) error {
	if err := y.Run(ctx); err != nil {
		return fmt.Errorf("start again after the kill: %w", err)
	}

	found, err := y.Jobs(ctx, job.Pending)
	if err != nil {
		return err
	}

	acked := 0
	for _, s := range submits {
		for _, j := range s.acked {
			if !found[j] {
				return fmt.Errorf("the server acknowledged %s and lost it", j)
			}
		}

		acked += len(s.acked)
	}

	// What it stored and could not answer any more is at most one job of each client.
	if len(found) > acked+len(submits) {
		return fmt.Errorf("the server acknowledged %d jobs and has %d", acked, len(found))
	}

	waiting, err := y.Metric(ctx, "trainyard_queued_jobs")
	if err != nil {
		return err
	}
	if int(waiting) != len(found) {
		return fmt.Errorf("the store has %d queued jobs and the yard %.0f", len(found), waiting)
	}

	return nil
}
