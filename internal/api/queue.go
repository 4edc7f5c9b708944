package api

import (
	"context"
	"time"

	"trainyard/internal/id"
)

// QueuePage is one page of the queue.
type QueuePage struct {
	At     time.Time   `json:"at" doc:"when it was read"`
	Queued int         `json:"queued" doc:"number of jobs in the queue that the caller may see and that match"`
	Held   int         `json:"held" doc:"number of such jobs that wait outside the queue: for jobs they need, a retry, a quota, a secret or a stopping run"`
	Jobs   []QueuedJob `json:"jobs" doc:"in the order in which they are considered"`
	Next   string      `json:"next,omitempty"`
}

// QueuedJob is a job in the queue, with why it waits.
type QueuedJob struct {
	Job
	Position int       `json:"position" doc:"position in the whole queue, starting at 1"`
	Queued   time.Time `json:"queued" doc:"when it was queued"`
	// Start is told for the first jobs of the queue.
	Start *time.Time `json:"start,omitempty" doc:"when it starts if jobs are started in the order of the queue and last as long as is expected of them; absent if unknown"`
	Why   Why        `json:"why" doc:"why it waits; with at most 5 holders, of which the job has more"`
}

// QueueFilter chooses queued jobs. A zero field lets all through.
type QueueFilter struct {
	Page
	Owner id.User
}

// Queue returns one page of the queue, in the order in which jobs are considered.
func (c *Client) Queue(ctx context.Context, f QueueFilter) (QueuePage, error) {
	query := f.query()
	if f.Owner != "" {
		query.Set("owner", string(f.Owner))
	}

	return get[QueuePage](ctx, c, at("queue"), query)
}

// EditPreview is what an edit of a job would change.
type EditPreview struct {
	Before    EditPlace     `json:"before" doc:"as it is now"`
	After     EditPlace     `json:"after" doc:"as it would be"`
	Starts    bool          `json:"starts" doc:"it would start with the next plan, now or as soon as jobs have stopped for it"`
	Passed    PassedJobs    `json:"passed" doc:"jobs that are considered before it now, and would be after it"`
	Passing   PassedJobs    `json:"passing" doc:"jobs that are considered after it now, and would be before it"`
	Preempted []AffectedJob `json:"preempted" doc:"running jobs that would be preempted where it would start"`
}

// EditPlace is where a job is in the queue and why it waits.
type EditPlace struct {
	Position int  `json:"position,omitempty" doc:"position in the queue, starting at 1; absent if it is not in the queue"`
	Why      *Why `json:"why,omitempty" doc:"why it waits, or that it starts"`
}

// PassedJobs are jobs whose place in the queue changes against that of another one.
type PassedJobs struct {
	Count int           `json:"count"`
	Jobs  []AffectedJob `json:"jobs" doc:"at most 20, the first of them"`
}

// AffectedJob is a job on which an edit of another one has an effect.
type AffectedJob struct {
	Job   id.Job  `json:"job"`
	Owner id.User `json:"owner"`
}

// PreviewEdit says what an edit of a job would change, or why it would be refused. Nothing is changed.
func (c *Client) PreviewEdit(ctx context.Context, j id.Job, changes ...string) (EditPreview, error) {
	return post[EditPreview](ctx, c, at("jobs", string(j), "edit", "preview"), EditRequest{Set: changes})
}

// CodeTooManyPreviews is the code of a preview that would be one too many at the same time.
const CodeTooManyPreviews = "too_many_previews"
