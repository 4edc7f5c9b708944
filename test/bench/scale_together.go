package main

import (
	"context"
	"fmt"
	"time"

	"trainyard/test/bench/scale"
)

// togetherSection measures everything at the same time: jobs end and arrive, one client reads, one asks for reports,
// and many follow a log and the events.
type togetherSection struct{ settings }

func (togetherSection) Name() string { return "together" }

// togetherLines is how many lines in a second the followed job prints.
const togetherLines = 200

// mixed are the clients of the section, by what they do.
type mixed struct {
	yard *largeYard

	submits, reads, reports *scale.Latencies
	log, events             *scale.Feed
	lines                   int
	done                    []func()
}

// Run measures for a minute.
func (s togetherSection) Run(ctx context.Context) ([]figure, error) {
	y, err := s.at(ctx, defaultPolicy)
	if err != nil {
		return nil, err
	}

	m := &mixed{
		yard: y, submits: scale.NewLatencies(y.clock), reads: scale.NewLatencies(y.clock),
		reports: scale.NewLatencies(y.clock), log: scale.NewFeed(y.clock), events: scale.NewFeed(y.clock),
	}

	defer m.close()

	tasks, err := m.tasks()
	if err != nil {
		return nil, err
	}

	y.fleet.Waits() // those from before do not count

	used, err := y.watch(ctx, func(ctx context.Context) error { return together(ctx, y.span(60*time.Second), tasks...) })
	if err != nil {
		return nil, err
	}

	memory, err := y.Memory()
	if err != nil {
		return nil, err
	}

	return append(m.figures(),
		figure{"together_cores", used.cores(), "cores", "of the server"},
		figure{"together_rss_mib", float64(memory) / (1 << 20), "MiB", "resident memory of the server then"}), nil
}

func (m *mixed) close() {
	for _, done := range m.done {
		done()
	}
}

// tasks is what all clients do.
func (m *mixed) tasks() ([]func(context.Context) error, error) {
	y := m.yard

	submit, done, err := y.submitter(m.submits)
	if err != nil {
		return nil, err
	}

	m.done = append(m.done, done)

	writer, err := y.fleet.Writer()
	if err != nil {
		return nil, err
	}

	tasks := []func(context.Context) error{
		y.endJobs(churn),
		func(ctx context.Context) error { return scale.Pace(ctx, y.clock, churn, submit) },
		func(ctx context.Context) (err error) {
			m.lines, err = scale.Print(ctx, y.clock, writer, togetherLines)
			return err
		},
	}

	reads, err := m.inTurn(m.reads, []read{
		{path: "/api/v1/jobs?limit=50"}, {path: "/api/v1/jobs?limit=50&owner=user-07"}, {path: "/api/v1/events?tail=50"},
		{path: "/api/v1/nodes?limit=50"}, {path: fmt.Sprintf("/api/v1/jobs/j%d", y.size.Finished/2)},
	})
	if err != nil {
		return nil, err
	}

	reports, err := m.inTurn(m.reports, y.reports()[3:]) // those of one researcher and job, and savings
	if err != nil {
		return nil, err
	}

	tasks = append(tasks, reads, reports)
	job, _, _ := writer.Run.Split()

	for range y.followers() {
		tasks = append(tasks, func(ctx context.Context) error {
			return m.events.FollowEvents(ctx, y.Yard, "job.submitted")
		})
	}

	for range y.followers() / 5 {
		tasks = append(tasks, func(ctx context.Context) error { return m.log.FollowLog(ctx, y.Yard, job) })
	}

	return tasks, nil
}

// inTurn is one client that asks for one path after the other.
func (m *mixed) inTurn(latencies *scale.Latencies, list []read) (func(context.Context) error, error) {
	reader, err := m.yard.Reader()
	if err != nil {
		return nil, err
	}

	m.done = append(m.done, reader.Close)
	next := -1

	return func(ctx context.Context) error {
		return again(ctx, latencies, func(ctx context.Context) error {
			next = (next + 1) % len(list)
			return get(reader, list[next].path)(ctx)
		})
	}, nil
}

// figures are the latencies of each kind of client.
func (m *mixed) figures() []figure {
	var out []figure

	add := func(name, note string, samples []time.Duration) {
		out = append(out,
			figure{"together_" + name + "_ms", milliseconds(percentile(samples, 50)), "ms", note},
			figure{"together_" + name + "_p99_ms", milliseconds(percentile(samples, 99)), "ms", ""})
	}

	followers := m.yard.followers()

	add("submit", fmt.Sprintf("%d jobs arrive and end in a second", churn), m.submits.All())
	add("free_to_start", "node free to its next run", m.yard.fleet.Waits())
	add("read", "one client, pages of jobs, events and nodes and one job in turn", m.reads.All())
	add("report", "one client, reports on a researcher, a job and savings in turn", m.reports.All())
	add("events", fmt.Sprintf("delay of %d followers of submissions", followers), m.events.Delays.All())
	add("follow", fmt.Sprintf("delay of %d followers of a log, %d lines a second, %d lines", followers/5, togetherLines,
		m.lines), m.log.Delays.All())

	return out
}
