package rules

import (
	"cmp"
	"math"
	"slices"
	"time"

	"trainyard/internal/queue"
)

// inOrder returns the jobs in the order in which they are considered, with one more if it
// is given and not queued.
func (e *engine) inOrder(more *queue.Item) []*queuedJob {
	l := e.backlog
	l.users.Weigh(e.view.UsageOf)
	l.projects.Weigh(e.view.ProjectUsageOf)

	order := l.order[:0]
	for _, j := range l.order {
		if !j.removed {
			j.weigh(e.view.Now)
			order = append(order, j)
		}
	}

	clear(l.order[len(order):])

	l.order = order
	if more != nil && l.jobs[more.Job] == nil {
		j := e.describeNew(more)
		j.weigh(e.view.Now)
		order = append(slices.Clone(order), j)
	}

	arrange(order)

	return order
}

// arrange sorts the jobs. They are as they were in the last round, with a few new ones
// at the end, so most of them stand where they belong already.
func arrange(order []*queuedJob) {
	moved := 0

	for i := 1; i < len(order); i++ {
		j := order[i]
		if compareJobs(order[i-1], j) < 0 {
			continue
		}

		at, _ := slices.BinarySearchFunc(order[:i], j, compareJobs)
		copy(order[at+1:i+1], order[at:i])
		order[at] = j

		moved += i - at
		if moved > 64*len(order) { // the order has changed a lot: sorting is faster
			slices.SortFunc(order, compareJobs)
			return
		}
	}
}

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

	return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.number, b.number))
}

// weigh computes the sort key of a job from its base key and fair share. The fair share is
// the mean usage of all who have a job here. Each share that its owner and its project used
// beyond their own doubles the key, each share less halves it: between a quarter and four
// times.
func (j *queuedJob) weigh(now time.Time) {
	over := j.user.Over
	if j.project != nil {
		over += j.project.Over
	}

	if over != j.overshare || j.sharePenalty == 0 {
		j.overshare, j.sharePenalty = over, math.Exp2(min(max(over, -2), 2))
	}

	j.key = j.baseKey * j.sharePenalty
	j.aged = !j.due.After(now)
}
