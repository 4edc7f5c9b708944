package andreas

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"trainyard/internal/job"
)

// reason says in money why a task is started, stopped or moved.
func (y *yard) reason(t *task) string {
	if t.assigned < 0 {
		return y.stopped(t)
	}

	text := y.where(t) + ", " + y.costs(t, t.assigned)
	if t.running != nil {
		text = y.changed(t) + text
	}

	best := t.assigned
	for k := range t.candidates {
		if t.candidates[k].gain > t.candidates[best].gain {
			best = k
		}
	}

	if best != t.assigned {
		return fmt.Sprintf("%s; its best configuration, %s (%s), goes to other jobs",
			text, y.gpus(&t.candidates[best]), y.costs(t, best))
	}

	if other := y.other(t); other >= 0 {
		return fmt.Sprintf("%s; alternative: %s, %s", text, y.gpus(&t.candidates[other]), y.costs(t, other))
	}

	return text
}

// stopped says why a running task has to wait.
func (y *yard) stopped(t *task) string {
	text := "preempted for jobs that would lose more by waiting"
	if !t.hasDeadline {
		return text
	}

	o := &t.candidates[t.cheapest]
	if spare := t.slack - o.duration - t.restartTime; spare > 0 {
		return fmt.Sprintf("%s: it can wait %s and still meet its deadline", text, span(spare))
	}

	return fmt.Sprintf("%s: each hour of delay costs %s", text, money(t.lateCost*3600))
}

// changed says what happens to a running task.
func (y *yard) changed(t *task) string {
	was, is := &t.candidates[t.current], &t.candidates[t.assigned]
	switch {
	case was.amount() < is.amount() && was.kind == is.kind:
		return fmt.Sprintf("resized from %g to %g GPUs; ", was.amount(), is.amount())
	case was.amount() > is.amount() && was.kind == is.kind:
		return fmt.Sprintf("resized from %g to %g GPUs; ", was.amount(), is.amount())
	case t.assigned == t.current:
		return fmt.Sprintf("moved from %s to make room or to switch a node off; ", t.running.Allocations[0].Node)
	}

	return fmt.Sprintf("moved from %s; ", y.gpus(was))
}

// where says what a task is given.
func (y *yard) where(t *task) string {
	gpus := y.gpus(&t.candidates[t.assigned])
	if len(t.seats) == 1 {
		return string(t.seats[0].Node) + ": " + gpus
	}

	return fmt.Sprintf("%d nodes: %s", len(t.seats), gpus)
}

// gpus names what a candidate has.
func (y *yard) gpus(o *candidate) string {
	g := y.kinds[o.kind].gpu
	if o.gpus == 0 || g == nil {
		return "CPUs"
	}
	if o.share > 0 {
		return fmt.Sprintf("%g of a %s", o.share, g.Model)
	}

	return fmt.Sprintf("%d× %s", o.gpus, g.Model)
}

// costs says what a candidate costs and when the task would be done.
func (y *yard) costs(t *task, at int) string {
	o := &t.candidates[at]
	text := "est. cost " + y.bill(o.cost)
	if !t.hasDeadline {
		return text + ", est. finish in " + span(o.duration)
	}

	spare := t.slack - o.duration
	if spare >= 0 {
		return fmt.Sprintf("%s, est. finish %s before the deadline", text, span(spare))
	}

	return fmt.Sprintf("%s, est. finish %s after the deadline (late cost %s)", text, span(-spare),
		money(-spare*t.lateCost))
}

// bill says what GPUs cost.
func (y *yard) bill(f float64) string {
	if y.view.Tariff == nil {
		return strconv.FormatFloat(f, 'f', 2, 64) + " GPU-hours"
	}

	return money(f)
}

// other is the candidate that a reader would ask about: the cheapest if it was not
// chosen, or else the fastest if the task will be late. It is -1 if there is none.
func (y *yard) other(t *task) int {
	switch {
	case t.assigned != t.cheapest && t.candidates[t.cheapest].cost < t.candidates[t.assigned].cost:
		return t.cheapest
	case t.hasDeadline && t.assigned != t.fastest && t.candidates[t.assigned].duration > t.slack:
		return t.fastest
	}

	return -1
}

// money writes an amount with as many decimals as it needs to be seen.
func money(f float64) string {
	places := 2
	for a := math.Abs(f); a > 0 && a < 0.095 && places < 6; a *= 10 {
		places++
	}

	return "$" + strconv.FormatFloat(f, 'f', places, 64)
}

// span writes a length of time in the greatest units that matter.
func span(seconds float64) string {
	d := job.Seconds(seconds)
	switch {
	case d > 48*time.Hour:
		d = d.Round(time.Hour)
	case d > 10*time.Minute:
		d = d.Round(time.Minute)
	default:
		d = d.Round(time.Second)
	}

	return job.Duration(d).String()
}
