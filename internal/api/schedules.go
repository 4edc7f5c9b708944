package api

import (
	"context"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/job"
)

// Schedule submits the jobs of a file again and again.
type Schedule struct {
	ID        id.Schedule `json:"id"`
	Owner     id.User     `json:"owner"`
	Name      string      `json:"name,omitempty" doc:"name of its first job"`
	Every     string      `json:"every" doc:"interval, or the five fields of a crontab in UTC"`
	Overlap   job.Overlap `json:"overlap" doc:"what happens when jobs of last time have not ended"`
	Jobs      int         `json:"jobs" doc:"how many jobs it submits each time"`
	Added     time.Time   `json:"added"`
	Next      *time.Time  `json:"next,omitempty" doc:"when it submits next; absent if it was stopped"`
	Last      *time.Time  `json:"last,omitempty" doc:"when it submitted last"`
	LastJobs  []id.Job    `json:"last_jobs,omitempty" doc:"jobs that it submitted then"`
	Submitted int         `json:"submitted" doc:"how often it submitted"`
	Skipped   int         `json:"skipped,omitempty" doc:"how often it did not, because jobs of the time before had not ended"`
	Missed    int         `json:"missed,omitempty" doc:"how often it could not, because no server ran; it then submitted once for all of them"`
	Problem   string      `json:"problem,omitempty" doc:"why nothing could be submitted last time"`
	Stopped   *time.Time  `json:"stopped,omitempty"`
	StoppedBy id.User     `json:"stopped_by,omitempty"`
}

// SchedulePage is one page of a list of schedules, the oldest first.
type SchedulePage struct {
	Schedules []Schedule `json:"schedules"`
	Next      string     `json:"next,omitempty" doc:"cursor of the next page; absent on the last page"`
}

// ScheduleFilter says which schedules are wanted. Empty fields do not filter.
type ScheduleFilter struct {
	Owner id.User
	All   bool // also those that were stopped
	Page
}

// Schedules returns one page of the schedules that the filter lets through.
func (c *Client) Schedules(ctx context.Context, f ScheduleFilter) (SchedulePage, error) {
	q := f.Page.query()
	set(q, "owner", string(f.Owner))

	if f.All {
		q.Set("all", "true")
	}

	return get[SchedulePage](ctx, c, at("schedules"), q)
}

// StopSchedule ends a schedule. The jobs that it submitted go on.
func (c *Client) StopSchedule(ctx context.Context, s id.Schedule) (Schedule, error) {
	return post[Schedule](ctx, c, at("schedules", string(s), "stop"), nil)
}
