package main

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/yardmaster"
)

// roundsSection measures scheduling rounds of the yardmaster with the default policy, and with FIFO beside it.
type roundsSection struct{ settings }

func (roundsSection) Name() string { return "rounds" }

// Run measures each policy on each size of yard.
func (s roundsSection) Run(ctx context.Context) ([]figure, error) {
	defer collectAsServer()()

	var out []figure
	for _, size := range []struct {
		name        string
		nodes, jobs int
	}{{"1k_10k", 1_000, 10_000}, {"1k_100k", 1_000, 100_000}, {"10k_10k", 10_000, 10_000}, {"10k_100k", 10_000, 100_000}} {
		if s.quick {
			size.nodes, size.jobs = size.nodes/100, size.jobs/100
		}

		for _, c := range contenders() {
			figures, err := s.measure(ctx, c, size.name+c.suffix, size.nodes, size.jobs)
			out = append(out, figures...)
			if err != nil {
				return out, fmt.Errorf("rounds of %s at %s: %w", c.name, size.name, err)
			}
		}
	}

	return out, nil
}

// measure measures rounds on one size of yard: on empty nodes, on full ones, and after one change.
func (s roundsSection) measure(
	ctx context.Context, c contender, name string, nodes, jobs int,
) ([]figure, error) {
	var full time.Duration
	var y *theYard
	starts := 0

	for range s.rounds() {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}

		var err error
		if y, err = newYard(s.clock.Now(), nodes, time.Minute, c.name); err != nil {
			return nil, err
		}
		if err := y.fill(jobs, y.scene.Any); err != nil {
			return nil, err
		}

		runtime.GC() // what filling left behind is not the round's
		began := s.clock.Now()
		y.Round(y.now)

		if took := s.clock.Now().Sub(began); full == 0 || took < full {
			full = took
		}

		y.ready = y.Take().Orders
		starts = y.started()
	}

	// As many jobs wait again as before, and the nodes are full.
	if err := y.fill(starts, y.scene.Any); err != nil {
		return nil, err
	}

	out := []figure{
		{
			"round_full_ms_" + name,
			milliseconds(full),
			"ms",
			fmt.Sprintf(
				"policy %s; %d empty nodes, %d queued jobs, %d of them started; planned, checked and carried out; best of %d",
				y.policy,
				nodes,
				jobs,
				starts,
				s.rounds(),
			),
		},
	}

	changes, err := s.changes(ctx, y, name)

	return append(out, changes...), err
}

// started counts the jobs that the open orders are of.
func (y *theYard) started() int {
	jobs := map[id.Job]bool{}
	for i := range y.ready {
		jobs[y.ready[i].Job] = true
	}

	return len(jobs)
}

// changes measures rounds on a yard whose nodes are full and whose queue is
// long: with nothing changed, with one job more, and with one node that has become free.
func (s roundsSection) changes(ctx context.Context, y *theYard, name string) ([]figure, error) {
	times := 101
	if s.quick {
		times = 5
	}

	var still, added, freed []time.Duration

	for i := range times {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}

		y.now = y.now.Add(time.Second)
		took, err := s.timed(y)
		if err != nil {
			return nil, err
		}

		still = append(still, took)

		m, err := y.submission(y.scene.Any)
		if err != nil {
			return nil, err
		}

		took, err = s.timed(y, m)
		if err != nil {
			return nil, err
		}

		added = append(added, took)

		took, err = s.timed(y, y.endOf(i)...)
		if err != nil {
			return nil, err
		}

		freed = append(freed, took)
	}

	jobMS, nodeMS := milliseconds(percentile(added, 50)), milliseconds(percentile(freed, 50))

	return []figure{
		{"round_saturated_ms_" + name, milliseconds(percentile(still, 50)), "ms", ""},
		{"round_job_added_ms_" + name, jobMS, "ms", ""},
		{"round_node_freed_ms_" + name, nodeMS, "ms", ""},
		{
			"round_incremental_ms_" + name,
			max(jobMS, nodeMS),
			"ms",
			fmt.Sprintf(
				"policy %s; the slower of one job added and one node freed; medians of %d, each with its message",
				y.policy,
				times,
			),
		},
	}, nil
}

// timed hands in the messages and plans; the time is that of both.
func (s roundsSection) timed(y *theYard, messages ...yardmaster.Message) (time.Duration, error) {
	began := s.clock.Now()

	for _, m := range messages {
		if _, err := y.Step(y.now, m); err != nil {
			return 0, err
		}
	}

	y.Round(y.now)
	took := s.clock.Now().Sub(began)
	y.ready = append(y.ready, y.Take().Orders...)

	return took, nil
}

// endOf reports the end of the i-th run that has one rank.
func (y *theYard) endOf(i int) []yardmaster.Message {
	for at := i; at < len(y.ready); at++ {
		o := &y.ready[at]
		if len(o.Launch.Nodes) == 1 && len(fleet.Indices(fleet.Mask(o.Launch.GPUs))) > 0 {
			m := y.report(o, job.RunEnded)
			y.ready = append(y.ready[:at:at], y.ready[at+1:]...)
			return []yardmaster.Message{m}
		}
	}

	return nil
}
