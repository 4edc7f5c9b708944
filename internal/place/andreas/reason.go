package andreas

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/money"
	"trainyard/internal/place"
	"trainyard/internal/place/andreas/problem"
)

// reason explains in money why a task is started, stopped or moved. takers are the jobs that get
// GPUs which it holds now.
func (y *planner) reason(t *problem.Task, takers []id.Job) string {
	if t.Assigned < 0 {
		return y.stopped(t, takers)
	}

	text := y.Where(t) + ", " + y.costs(t, t.Assigned)
	if t.Running != nil {
		text = y.changed(t, takers) + text
	}

	best := t.Assigned
	for k := range t.Candidates {
		if t.Candidates[k].Gain > t.Candidates[best].Gain {
			best = k
		}
	}

	if best != t.Assigned {
		return fmt.Sprintf("%s; its best configuration, %s (%s), %s",
			text, y.Describe(&t.Candidates[best]), y.costs(t, best), y.whyNot(t, best))
	}

	if other := y.other(t); other >= 0 {
		return fmt.Sprintf("%s; alternative: %s, %s", text, y.Describe(&t.Candidates[other]), y.costs(t, other))
	}

	return text
}

// whyNot says why a task does not have a candidate: who has its GPUs, or that all jobs together
// cost less without it.
func (y *planner) whyNot(t *problem.Task, at int) string {
	if y.roomFor(t, at) {
		return "is free, but the cheapest plan found for all jobs does not use it"
	}

	var others []id.Job
	for _, room := range y.Kinds[t.Candidates[at].Kind].Rooms {
		for _, i := range y.TasksIn[room] {
			if o := &y.Tasks[i]; o != t && !slices.Contains(others, o.Item.Job) {
				others = append(others, o.Item.Job)
			}
		}
	}

	if len(others) == 0 {
		return "is not free"
	}

	return "is not free: " + place.JobNames(others) + " " + plural(len(others), "has", "have") + " GPUs of that kind"
}

func plural(n int, one, more string) string {
	if n == 1 {
		return one
	}

	return more
}

// stopped explains why a running task has to wait.
func (y *planner) stopped(t *problem.Task, takers []id.Job) string {
	text := "preempted: the cheapest plan found for all jobs leaves no GPUs for it"
	if len(takers) > 0 {
		text = "preempted: released GPUs go to " + place.JobNames(takers)
	}

	if !t.HasDeadline {
		return text
	}

	o := &t.Candidates[t.Cheapest]
	if spare := t.Slack - o.Duration - t.RestartTime; spare > 0 {
		return fmt.Sprintf("%s; it can wait %s and still meet its deadline", text, humanize.Seconds(spare))
	}

	return fmt.Sprintf("%s; each hour past its deadline costs %s", text,
		humanize.Dollars(t.LateCost.PerHour().For(time.Hour)))
}

// changed describes what happens to a running task.
func (y *planner) changed(t *problem.Task, takers []id.Job) string {
	was, is := &t.Candidates[t.Current], &t.Candidates[t.Assigned]
	text := fmt.Sprintf("moved from %s", y.Describe(was))
	if was.Kind == is.Kind {
		text = fmt.Sprintf("resized from %g to %g GPUs", was.Amount(), is.Amount())
		if was.Amount() == is.Amount() {
			text = fmt.Sprintf("moved from %s", t.Running.Allocations[0].Node)
		}
	}

	if len(takers) > 0 {
		return text + ", released GPUs go to " + place.JobNames(takers) + "; "
	}

	if node := y.emptied(t); node != "" {
		return fmt.Sprintf("%s, which leaves %s empty and switched off; ", text, node)
	}

	return text + "; "
}

// emptied returns a node that a running task leaves and that is switched off when nothing runs
// there, "" if there is none.
func (y *planner) emptied(t *problem.Task) id.Node {
	for _, room := range t.CurrentRooms {
		at := y.Positions[room]
		if at.Kind >= 0 && y.Kinds[at.Kind].PowersOff && y.Indexes[at.Kind].Used[at.At] == 0 {
			return y.Rooms[room].Node.ID
		}
	}

	return ""
}

// waits says of queued tasks for which GPUs are free why they do not start.
func (y *planner) waits() []place.Wait {
	var list []place.Wait
	for i := range y.Tasks {
		t := &y.Tasks[i]
		if t.Running != nil || len(t.Seats) > 0 || len(list) == place.MaxWaits {
			continue
		}

		free := -1
		for k := range t.Candidates {
			if y.roomFor(t, k) && (free < 0 || t.Candidates[k].Cost < t.Candidates[free].Cost) {
				free = k
			}
		}

		if free >= 0 {
			list = append(list, place.Wait{Job: t.Item.Job, Reason: y.whyWaits(t, free)})
		}
	}

	return list
}

// whyWaits says why a queued task does not take a candidate that is free.
func (y *planner) whyWaits(t *problem.Task, free int) string {
	now := fmt.Sprintf("%s is free, %s", y.Describe(&t.Candidates[free]), y.costs(t, free))
	if y.declines(t, free) {
		return fmt.Sprintf("%s; waits for %s, %s", now, y.Describe(&t.Candidates[t.Leanest]), y.costs(t, t.Leanest))
	}

	return now + "; the cheapest plan found for all jobs does not start it now"
}

// costs describes what a candidate costs and when the task would be done.
func (y *planner) costs(t *problem.Task, at int) string {
	o := &t.Candidates[at]
	text := "est. cost " + y.bill(y.Charge(t, at))
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
