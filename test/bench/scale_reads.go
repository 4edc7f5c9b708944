package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/job"
	"trainyard/test/bench/history"
	"trainyard/test/bench/scene"
	"trainyard/test/bench/yard"
)

// readsSection measures what people and programs ask about jobs, events and nodes, one client at a time, while the
// yard is full and nothing ends.
type readsSection struct{ settings }

func (readsSection) Name() string { return "reads" }

// Run measures each question.
func (s readsSection) Run(ctx context.Context) ([]figure, error) {
	y, err := s.at(ctx, defaultPolicy)
	if err != nil {
		return nil, err
	}

	reader, err := y.Reader()
	if err != nil {
		return nil, err
	}

	defer reader.Close()

	client, err := y.Client()
	if err != nil {
		return nil, err
	}

	defer client.Close()

	queued, err := client.Jobs(ctx, api.JobFilter{States: []job.State{job.Pending}, Page: api.Page{Limit: 1}})
	if err != nil {
		return nil, err
	}
	if len(queued.Jobs) == 0 {
		return nil, errors.New("no job is queued")
	}

	paths := y.reads(string(queued.Jobs[0].ID))

	questions := make([]question, 0, len(paths)+1)
	for _, p := range paths {
		questions = append(questions, question{p.name, p.note, get(reader, p.path)})
	}

	files := scene.New(y.stored.At)
	questions = append(questions, question{"dry_run", "a dry run of one job", func(ctx context.Context) error {
		_, err := client.Submit(ctx, api.SubmitRequest{File: files.File(0), DryRun: true}, "")
		return err
	}})

	return y.askAll(ctx, 2*time.Second, questions)
}

// read is a question that is a path.
type read struct{ name, note, path string }

// reads are the questions: pages that are found at once, and those for which something has to be searched. queued is a
// job that waits.
func (y *largeYard) reads(queued string) []read {
	since := func(ago time.Duration) string {
		return "since=" + url.QueryEscape(y.stored.At.Add(-ago).UTC().Format(time.RFC3339))
	}

	middle := fmt.Sprintf("j%d", y.size.Finished/2)

	return []read{
		{"jobs_page", "jobs, first page of 50", "/api/v1/jobs?limit=50"},
		{"jobs_page_500", "jobs, first page of 500", "/api/v1/jobs?limit=500"},
		{"jobs_deep", "jobs, a page in the middle", "/api/v1/jobs?limit=50&cursor=" + middle},
		{"jobs_owner", "jobs of one owner", "/api/v1/jobs?limit=50&owner=user-07"},
		{"jobs_queued", "jobs that are queued", "/api/v1/jobs?limit=50&state=pending"},
		{"jobs_failed", "jobs that failed", "/api/v1/jobs?limit=50&state=failed"},
		{
			"jobs_owner_none", "jobs of one owner in a state that none of them has",
			"/api/v1/jobs?limit=50&owner=user-07&state=cancelled",
		},
		{"jobs_name", "jobs by a name that 1 of 2,000 has", "/api/v1/jobs?limit=50&name=cifar-1999"},
		{"jobs_name_none", "jobs by a name that none has", "/api/v1/jobs?limit=50&name=none-of-them"},
		{"jobs_since", "jobs since two hours", "/api/v1/jobs?limit=50&" + since(2*time.Hour)},
		{
			"jobs_since_failed", "jobs that failed since two hours, fewer than a page",
			"/api/v1/jobs?limit=50&state=failed&" + since(2*time.Hour),
		},
		{"job_ended", "one ended job", "/api/v1/jobs/" + middle},
		{"job_queued", "one queued job, with why it is queued", "/api/v1/jobs/" + queued},
		{"events_tail", "the last 50 events", "/api/v1/events?tail=50"},
		{"events_rare", "events of a kind of which there are few", "/api/v1/events?kind=" + history.RareKind},
		{"events_rare_tail", "the last 50 of them", "/api/v1/events?tail=50&kind=" + history.RareKind},
		{"nodes_page", "nodes, first page of 50", "/api/v1/nodes?limit=50"},
	}
}

// get asks for a path.
func get(r *yard.Reader, path string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := r.Get(ctx, path)
		return err
	}
}
