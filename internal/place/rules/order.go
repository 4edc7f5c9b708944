package rules

import (
	"cmp"
	"math"

	"trainyard/internal/queue"
)

// compareJobs tells which is considered first. Numbers decide last: no two are equal.
func compareJobs(a, b *queuedJob) int {
	switch {
	case a.priority != b.priority:
		return cmp.Compare(b.priority, a.priority)
	case a.aged != b.aged:
		if a.aged {
			return -1
		}

		return 1
	case a.aged:
		return cmp.Or(a.due.Compare(b.due), cmp.Compare(a.number, b.number))
	}

	return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.lasts, b.lasts), cmp.Compare(a.number, b.number))
}

// weigh computes the sort key of a job: its length for each GPU, divided by what its time is worth, times its fair
// share. The fair share is the mean usage of all who have a job here. Each share that its owner and its project used
// beyond their own doubles the key, each share less halves it: between a quarter and four times.
func (e *engine) weigh(j *queuedJob) {
	j.adoptLength()

	over := j.user.Over
	if j.project != nil {
		over += j.project.Over
	}

	if over != j.overshare || j.sharePenalty == 0 {
		j.overshare, j.sharePenalty = over, math.Exp2(min(max(over, -2), 2))
	}

	j.key = j.lasts.Hours() / j.width / float64(max(j.value, 1e-9)) * j.sharePenalty
}

// weighShares computes the fair shares of this round.
func (e *engine) weighShares() {
	e.backlog.users.Weigh(e.view.UsageOf)
	e.backlog.projects.Weigh(e.view.ProjectUsageOf)
}

// find returns what is known of a job, which may not be queued.
func (e *engine) find(it *queue.Item) *queuedJob {
	j := e.backlog.jobs[it.Job]
	if j == nil {
		j = e.describeNew(it)
	}

	e.weigh(j)

	return j
}
