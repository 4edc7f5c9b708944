package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/job"
	"trainyard/test/bench/yard"
)

// shortSection measures how many separate jobs that do nothing one node of this machine runs in a second, and what each
// costs: the server, the agent and all that the agent starts.
type shortSection struct{ settings }

func (shortSection) Name() string { return "short" }

// Run measures jobs that run as the agent does, and as root also jobs that run as users of their own.
func (s shortSection) Run(ctx context.Context) (out []figure, err error) {
	err = s.bench(ctx, func(_, binary string) error {
		if err := s.measure(ctx, &out, binary, "none", "short"); err != nil || os.Geteuid() != 0 {
			return err
		}

		return s.measure(ctx, &out, binary, "users", "short_isolated")
	})

	return out, err
}

// measure measures with jobs that are isolated in one way.
func (s shortSection) measure(ctx context.Context, out *[]figure, binary, isolation, prefix string) (err error) {
	y, err := yard.Start(ctx, yard.Options{Binary: binary})
	if err != nil {
		return err
	}

	defer func() { err = errors.Join(err, y.Stop()) }()

	if err := y.RunAgent(ctx, isolation); err != nil {
		return err
	}

	warm, jobs := 50, 1000
	if s.quick {
		warm, jobs = 2, 20
	}

	if _, err := s.runJobs(ctx, y, warm); err != nil { // opens connections and makes folders
		return err
	}

	before, err := costsOf(y)
	if err != nil {
		return err
	}

	took, err := s.runJobs(ctx, y, jobs)
	if err != nil {
		return err
	}

	after, err := costsOf(y)
	if err != nil {
		return err
	}

	each := func(d time.Duration) float64 { return milliseconds(d) / float64(jobs) }
	note := fmt.Sprintf("%d jobs of `true`, isolation %s, submitted by %d clients", jobs, isolation, shortClients)
	*out = append(*out,
		figure{prefix + "_jobs_per_s", float64(jobs) / took.Seconds(), "jobs/s", note},
		figure{prefix + "_server_cpu_ms", each(after.server - before.server), "ms", "of one job, its submission included"},
		figure{prefix + "_agent_cpu_ms", each(after.agent - before.agent), "ms", ""},
		figure{prefix + "_children_cpu_ms", each(after.children - before.children), "ms", "supervisor, shell and watcher"})

	return nil
}

// costs are the processor times that were used so far.
type costs struct{ server, agent, children time.Duration }

func costsOf(y *yard.Yard) (c costs, err error) {
	c.server, err = y.CPU()
	if err != nil {
		return c, err
	}

	c.agent, c.children, err = y.AgentCPU()

	return c, err
}

// shortClients is how many clients submit at a time.
const shortClients = 4

// runJobs submits so many jobs and returns the time from before the first submission until the last of them has ended.
func (s shortSection) runJobs(ctx context.Context, y *yard.Yard, jobs int) (time.Duration, error) {
	clients := make([]*api.Client, shortClients)
	for i := range clients {
		client, err := y.Client()
		if err != nil {
			return 0, err
		}

		defer client.Close()

		clients[i] = client
	}

	begun := s.clock.Now()
	push := load{clients: shortClients, span: math.MaxInt64, calls: jobs}

	_, _, err := push.push(ctx, s.clock, func(i int) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := clients[i].Submit(ctx, api.SubmitRequest{File: "run: \"true\"\n"}, "")
			return err
		}
	})
	if err != nil {
		return 0, fmt.Errorf("submit: %w", err)
	}

	if err := y.AwaitNoJobs(ctx); err != nil {
		return 0, err
	}

	return s.lastEnd(ctx, clients[0], begun, jobs)
}

// lastEnd returns how long after the first submission the last of so many jobs ended. The server says when: asking it
// all the time would slow it down.
func (s shortSection) lastEnd(
	ctx context.Context, client *api.Client, begun time.Time, jobs int,
) (took time.Duration, err error) {
	filter := api.JobFilter{Page: api.Page{Limit: 500}}
	for left := jobs; left > 0; {
		page, err := client.Jobs(ctx, filter)
		if err != nil {
			return 0, fmt.Errorf("list jobs: %w", err)
		}

		newest := page.Jobs[:min(left, len(page.Jobs))]
		for i := range newest {
			j := &newest[i]
			if j.State != job.Succeeded || j.Ended == nil {
				return 0, fmt.Errorf("job %s is %s: %s", j.ID, j.State, j.Reason)
			}

			took = max(took, j.Ended.Sub(begun))
		}

		left -= len(newest)
		filter.Cursor = page.Next

		if page.Next == "" && left > 0 {
			return 0, fmt.Errorf("%d of %d jobs are missing", left, jobs)
		}
	}

	return took, nil
}
