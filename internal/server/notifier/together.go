package notifier

import (
	"context"
	"fmt"
	"slices"
	"time"

	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/store"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// togetherType is the type of messages about all jobs of a file.
const togetherType = "jobs.ended"

// counts is how the jobs of a file have ended.
type counts struct {
	Succeeded int `json:"succeeded"`
	Failed    int `json:"failed"`
	Cancelled int `json:"cancelled"`
}

// endsJob reports whether a job has ended with events of a kind.
func endsJob(kind string) bool {
	return slices.ContainsFunc(job.States(), func(s job.State) bool { return s.Final() && kind == "job."+string(s) })
}

// together returns the deliveries of the end of a job that was submitted with others in one file: none until the last
// of them has ended, and then one for all of them. The channels of a project hear of its own jobs alone.
func (n *Notifier) together(ctx context.Context, e *yardmaster.Event, pipeline string) ([]*delivery, error) {
	open := n.unfinished[pipeline]
	delete(open, e.Job)

	if len(open) > 0 {
		return nil, nil
	}

	jobs, err := n.Store.Pipeline(ctx, pipeline)
	if err != nil {
		return nil, fmt.Errorf("read the jobs that were submitted with %s: %w", e.Job, err)
	}

	later, err := n.endLater(ctx, e, jobs)
	if err != nil {
		return nil, err
	}

	n.remember(pipeline, later)

	if len(later) > 0 {
		return nil, nil
	}

	var list []*delivery
	add := func(u id.User, p id.Project, of []job.Job) error {
		found, err := n.summaries(ctx, e, u, p, of)
		list = append(list, found...)

		return err
	}

	if err := add(e.Owner, "", jobs); err != nil {
		return nil, err
	}

	var told []id.Project
	for i := range jobs {
		p := jobs[i].Project
		if p == "" || slices.Contains(told, p) {
			continue
		}

		told = append(told, p)
		own := slices.DeleteFunc(slices.Clone(jobs), func(j job.Job) bool { return j.Project != p })
		if err := add("", p, own); err != nil {
			return nil, err
		}
	}

	return list, nil
}

// maxUnfinished bounds of how many files it is remembered which jobs have not ended.
const maxUnfinished = 10_000

// remember remembers the jobs of a file of whose end there was no event yet, so that a file of many jobs is not read
// with the end of each. What is forgotten is read again.
func (n *Notifier) remember(pipeline string, open map[id.Job]bool) {
	delete(n.unfinished, pipeline)

	if len(n.unfinished) >= maxUnfinished {
		clear(n.unfinished)
	}

	if len(open) > 0 {
		n.unfinished[pipeline] = open
	}
}

// endLater returns the jobs of a file that have not ended, or did so with a later event than this one: the store may
// be ahead of the events. Those that ended at the same time are looked for only if there are no others.
func (n *Notifier) endLater(ctx context.Context, e *yardmaster.Event, jobs []job.Job) (map[id.Job]bool, error) {
	at := e.At.Truncate(time.Microsecond) // as times are stored
	later, same := map[id.Job]bool{}, map[id.Job]bool{}

	for i := range jobs {
		j := &jobs[i]

		switch {
		case !j.State.Final() || j.Ended.After(at):
			later[j.ID] = true
		case j.ID != e.Job && j.Ended.Equal(at):
			same[j.ID] = true
		}
	}

	if len(later) > 0 {
		return later, nil
	}

	for after := e.Seq; len(same) > 0; {
		events, err := n.Store.Events(ctx, store.EventFilter{After: after, Owner: e.Owner, Kind: "job", Limit: readLimit})
		if err != nil {
			return nil, fmt.Errorf("read events: %w", err)
		}

		for i := range events {
			next := &events[i]
			after = next.Seq

			if next.At.After(at) {
				return later, nil
			}
			if endsJob(next.Kind) && same[next.Job] {
				later[next.Job] = true
			}
		}

		if len(events) < readLimit {
			break
		}
	}

	return later, nil
}

// summaries returns the deliveries of how jobs of a file have ended, to the channels of a user or of a project.
func (n *Notifier) summaries(
	ctx context.Context, e *yardmaster.Event, u id.User, p id.Project, jobs []job.Job,
) ([]*delivery, error) {
	m := summaryOf(e, jobs)

	var topics []tenant.Topic
	if m.Jobs.Failed > 0 {
		topics = append(topics, tenant.TopicFailed)
	}
	if m.Jobs.Succeeded > 0 {
		topics = append(topics, tenant.TopicDone)
	}

	var list []*delivery
	for _, topic := range topics {
		m.Topic = topic

		found, err := n.deliveries(ctx, u, p, &m)
		if err != nil {
			return nil, err
		}

		for _, d := range found {
			if !slices.ContainsFunc(list, func(o *delivery) bool { return o.path() == d.path() }) {
				list = append(list, d)
			}
		}
	}

	return list, nil
}

// maxNamed bounds how many failed jobs a message names.
const maxNamed = 5

// summaryOf makes the message about jobs of a file that have all ended.
func summaryOf(e *yardmaster.Event, jobs []job.Job) message {
	m := messageOf(e, "", "", jobs[0].Project)
	m.Type, m.Job, m.Reason, m.Jobs = togetherType, "", "", &counts{}
	m.First, m.Last = jobs[0].ID, jobs[len(jobs)-1].ID

	var failed []string
	for i := range jobs {
		j := &jobs[i]

		switch j.State { //nolint:exhaustive // all of them have ended
		case job.Succeeded:
			m.Jobs.Succeeded++
		case job.Failed:
			m.Jobs.Failed++
			failed = append(failed, fmt.Sprintf("%s %s: %s", j.ID, j.Spec.Name, j.Reason))
		default:
			m.Jobs.Cancelled++
		}

		if j.Project != m.Project {
			m.Project = "" // they are of several
		}
	}

	if len(failed) > 0 {
		m.Reason = "failed: " + humanize.ListUpTo(maxNamed, failed...)
	}

	return m
}

// title says how jobs of a file have ended: "8 jobs (j3 to j10): 6 succeeded, 2 failed".
func (c *counts) title(first, last id.Job) string {
	text := fmt.Sprintf("%s (%s to %s): %d succeeded, %d failed",
		humanize.Count(c.Succeeded+c.Failed+c.Cancelled, "job"), first, last, c.Succeeded, c.Failed)
	if c.Cancelled > 0 {
		text += fmt.Sprintf(", %d cancelled", c.Cancelled)
	}

	return text
}
