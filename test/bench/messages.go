package main

import (
	"context"
	"fmt"
	"time"

	"trainyard/internal/job"
	"trainyard/internal/yardmaster"
)

// messagesSection measures how fast the yardmaster handles messages, alone and
// in this process: no store, no network.
type messagesSection struct{ settings }

func (messagesSection) Name() string { return "messages" }

// flow is a steady flow of messages into a yard.
type flow struct {
	name  string
	nodes int
	batch int // messages that share a commit and a round; the server takes as many as have come, up to 2,048
	// jobs is how many messages of a batch are submissions; as many report that a rank runs, and as many that one has
	// ended. The others are heartbeats.
	jobs int
}

// flows are the yard that the figure is about, and three beside it: more nodes,
// more nodes in larger batches, and nothing but jobs. A yard of 1,000 nodes in
// which 20 jobs start each second gets 60 messages about jobs and 200 heartbeats in a second.
func flows() []flow {
	return []flow{
		{"messages_per_s", 100, 64, 6},
		{"messages_per_s_1k_nodes", 1000, 64, 6},
		{"messages_per_s_1k_nodes_batch_512", 1000, 512, 50},
		{"messages_per_s_jobs_only", 100, 63, 21},
	}
}

// Run measures each flow with the default policy, and with FIFO beside it.
func (s messagesSection) Run(ctx context.Context) ([]figure, error) {
	defer collectAsServer()()

	var out []figure
	for _, f := range flows() {
		for _, c := range contenders() {
			got, err := s.measure(ctx, f, c)
			if err != nil {
				return out, fmt.Errorf("%s with policy %s: %w", f.name, c.name, err)
			}

			out = append(out, got)
		}
	}

	return out, nil
}

// measure lets a flow into a yard. After each batch comes the round, if one is
// wanted, and what changed is taken out, as the server does. Making up the messages is not counted.
func (s messagesSection) measure(ctx context.Context, f flow, c contender) (figure, error) {
	messages := 1_000_000
	if s.quick {
		messages = 10_000
	}

	y, err := newYard(s.clock.Now(), f.nodes, time.Second, c.name)
	if err != nil {
		return figure{}, err
	}

	var busy time.Duration

	counted, handled := 0, 0
	for tick := y.now; counted < messages; {
		if ctx.Err() != nil {
			return figure{}, context.Cause(ctx)
		}

		batch, err := y.mixed(f)
		if err != nil {
			return figure{}, err
		}

		y.now = y.now.Add(time.Duration(f.batch) * 3 * time.Microsecond)
		if y.now.Sub(tick) > 50*time.Millisecond { // the server's tick, by which ended jobs are forgotten
			tick = y.now
			batch = append(batch, yardmaster.Tick{})
		}

		began := s.clock.Now()

		for _, m := range batch {
			if _, err := y.Step(y.now, m); err != nil {
				return figure{}, err
			}
		}

		if y.PlanDue() {
			y.Round(y.now)
		}

		out := y.Take()
		took := s.clock.Now().Sub(began)

		handled += len(batch)
		if handled > messages/10 { // a tenth to warm up
			busy += took
			counted += len(batch)
		}

		y.ready = append(y.ready, out.Orders...)
	}

	return figure{
		f.name + c.suffix,
		float64(counted) / busy.Seconds(),
		"messages/s",
		fmt.Sprintf(
			"policy %s; of %d messages that share a commit and a round %d are submissions, %d runs, %d ends, the others "+
				"heartbeats; %d messages, %d nodes, %d jobs",
			y.policy,
			f.batch,
			f.jobs,
			f.jobs,
			f.jobs,
			counted,
			f.nodes,
			y.jobs,
		),
	}, nil
}

// mixed makes up the next batch. Where there is nothing to report yet, a heartbeat comes instead.
func (y *theYard) mixed(f flow) ([]yardmaster.Message, error) {
	batch := make([]yardmaster.Message, 0, f.batch+1)
	starting, running := min(len(y.ready), f.jobs), min(len(y.runs), f.jobs)

	for range f.jobs {
		m, err := y.submission(y.scene.Small)
		if err != nil {
			return nil, err
		}

		batch = append(batch, m)
	}

	for i := range starting {
		batch = append(batch, y.report(&y.ready[i], job.RunRunning))
	}

	for i := range running {
		batch = append(batch, y.report(&y.runs[i], job.RunEnded))
	}

	for len(batch) < f.batch {
		batch = append(batch, y.heartbeat(f.nodes))
	}

	y.runs = append(y.runs[running:], y.ready[:starting]...)
	y.ready = y.ready[starting:]

	return batch, nil
}
