package andreas

import (
	"fmt"
	"strconv"
	"time"

	"trainyard/internal/humanize"
	"trainyard/internal/money"
	"trainyard/internal/place/andreas/problem"
)

// reason explains in money why a task is started, stopped or moved.
func (y *planner) reason(t *problem.Task) string {
	if t.Assigned < 0 {
		return y.stopped(t)
	}

	text := y.Where(t) + ", " + y.costs(t, t.Assigned)
	if t.Running != nil {
		text = y.changed(t) + text
	}

	best := t.Assigned
	for k := range t.Candidates {
		if t.Candidates[k].Gain > t.Candidates[best].Gain {
			best = k
		}
	}

	if best != t.Assigned {
		return fmt.Sprintf("%s; its best configuration, %s (%s), goes to other jobs",
			text, y.Describe(&t.Candidates[best]), y.costs(t, best))
	}

	if other := y.other(t); other >= 0 {
		return fmt.Sprintf("%s; alternative: %s, %s", text, y.Describe(&t.Candidates[other]), y.costs(t, other))
	}

	return text
}

// stopped explains why a running task has to wait.
func (y *planner) stopped(t *problem.Task) string {
	text := "preempted for jobs that would lose more by waiting"
	if !t.HasDeadline {
		return text
	}

	o := &t.Candidates[t.Cheapest]
	if spare := t.Slack - o.Duration - t.RestartTime; spare > 0 {
		return fmt.Sprintf("%s: it can wait %s and still meet its deadline", text, humanize.Seconds(spare))
	}

	return fmt.Sprintf("%s: each hour of delay costs %s", text, humanize.Dollars(t.LateCost.PerHour().For(time.Hour)))
}

// changed describes what happens to a running task.
func (y *planner) changed(t *problem.Task) string {
	was, is := &t.Candidates[t.Current], &t.Candidates[t.Assigned]
	switch {
	case was.Amount() < is.Amount() && was.Kind == is.Kind:
		return fmt.Sprintf("resized from %g to %g GPUs; ", was.Amount(), is.Amount())
	case was.Amount() > is.Amount() && was.Kind == is.Kind:
		return fmt.Sprintf("resized from %g to %g GPUs; ", was.Amount(), is.Amount())
	case t.Assigned == t.Current:
		return fmt.Sprintf("moved from %s to make room or to switch a node off; ", t.Running.Allocations[0].Node)
	}

	return fmt.Sprintf("moved from %s; ", y.Describe(was))
}

// costs describes what a candidate costs and when the task would be done.
func (y *planner) costs(t *problem.Task, at int) string {
	o := &t.Candidates[at]
	text := "est. cost " + y.bill(o.Cost)
	if !t.HasDeadline {
		return text + ", est. finish in " + humanize.Seconds(o.Duration)
	}

	spare := t.Slack - o.Duration
	if spare >= 0 {
		return fmt.Sprintf("%s, est. finish %s before the deadline", text, humanize.Seconds(spare))
	}

	return fmt.Sprintf("%s, est. finish %s after the deadline (late cost %s)", text, humanize.Seconds(-spare),
		humanize.Dollars(t.LateCost.For(-spare)))
}

// bill describes the cost of GPUs.
func (y *planner) bill(cost money.Amount) string {
	if y.View.Tariff == nil {
		return strconv.FormatFloat(float64(cost), 'f', 2, 64) + " GPU-hours"
	}

	return humanize.Dollars(cost)
}

// other returns the alternative that a reader would ask about: the cheapest candidate if it was not
// chosen, or else the fastest if the task will be late. It returns -1 if there is none.
func (y *planner) other(t *problem.Task) int {
	switch {
	case t.Assigned != t.Cheapest && t.Candidates[t.Cheapest].Cost < t.Candidates[t.Assigned].Cost:
		return t.Cheapest
	case t.HasDeadline && t.Assigned != t.Fastest && t.Candidates[t.Assigned].Duration > t.Slack:
		return t.Fastest
	}

	return -1
}
