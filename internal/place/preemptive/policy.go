// Package preemptive holds the policies that run the first jobs of an order and preempt the
// others: by remaining time or service (Policy), and by equal shares of the yard for all
// users (FairShare). Jobs have a fixed size; an elastic job gets what is free when it starts.
//
// They are baselines from published rules. Like every policy they are pure functions from a
// view to a plan. They learn nothing and know no money.
package preemptive

import (
	"math"
	"time"

	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/lineup"
	"trainyard/internal/queue"
)

// Policy lets those jobs run that come first in an order over running and
// waiting ones, and stops others for them. Jobs that save no checkpoint are never
// stopped.
type Policy struct {
	name string
	why  string // why a job goes before another, after "which": "has less time remaining"
	// rank is a job's place: the smallest first, then the second number, then submission.
	rank func(now time.Time, it *queue.Item, run *place.Running) (first, second float64)
	// again is when a running job may fall back in the order though nothing happens;
	// nil if none does.
	nextChange func(now time.Time, t *task) time.Duration
}

var _ place.Policy = Policy{}

// Name is what the policy is called in the configuration.
func (o Policy) Name() string { return o.name }

// Revises reports that it also changes what runs.
func (o Policy) Revises() bool { return true }

// Plan runs the jobs that come first in the order.
func (o Policy) Plan(v *place.View) place.Plan {
	if v.Queue.Len() == 0 { // nothing to preempt for
		return place.Plan{}
	}

	p := newPreemptor(v, o.why)

	l := lineup.New(v.Queue)
	for n := range int32(p.count()) {
		it, run := p.job(n)
		first, second := o.rank(v.Now, it, run)
		e := lineup.Entry{First: first, Second: second, Number: it.Number, At: n}
		if run != nil {
			p.tasks[n].rank = e
			l.AddRunning(e)
		} else {
			l.AddQueued(it.Shape, e)
		}
	}

	l.Sort()
	p.sortHolders()

	p.run(func(*task) int32 {
		if e, more := l.Next(p.mayFit); more {
			return e.At
		}

		return -1
	})

	plan := p.plan()
	if o.nextChange != nil && p.waiting() {
		plan.WakeAt = o.next(v.Now, p)
	}

	return plan
}

// next is when the first of the running jobs falls back in the order.
func (o Policy) next(now time.Time, p *preemptor) time.Time {
	var soonest time.Duration
	for i := range p.tasks {
		if d := o.nextChange(now, &p.tasks[i]); d > 0 && (soonest == 0 || d < soonest) {
			soonest = d
		}
	}

	if soonest == 0 {
		return time.Time{}
	}

	return now.Add(soonest)
}

// timeLeft is how much longer a job would run on as little as it asks for, in
// seconds: a running job and a waiting one are measured alike. Unknown is longest.
func timeLeft(now time.Time, it *queue.Item, run *place.Running) float64 {
	if it.Outlook.Speed != nil {
		units, known := it.Outlook.RemainingWork()
		if run != nil {
			units, known = run.RemainingWork(now)
		}

		if rate := slowest(it); known && rate > 0 {
			return units / rate
		}
	}

	if it.Lasts == 0 {
		return math.Inf(1)
	}

	return math.Max(it.Lasts.Seconds()-lineup.ServedAsked(now, it, run)/lineup.Processors(it), 0)
}

// slowest is how fast a job is on as little as it asks for, of the kind on which
// it is slowest; 0 if that is not known.
func slowest(it *queue.Item) float64 {
	rate, need := 0.0, &it.Shape.Need
	for _, kind := range it.Outlook.Speed.Kinds() {
		c := it.Outlook.Speed.On(kind, 0)
		if r := c.Rate(max(need.GPUs*need.Nodes, c.MinGPUs()), need.Nodes); r > 0 && (rate == 0 || r < rate) {
			rate = r
		}
	}

	return rate
}

// byTimeLeft is shortest remaining time first.
func byTimeLeft(now time.Time, it *queue.Item, run *place.Running) (float64, float64) {
	return timeLeft(now, it, run), 0
}

// byServiceLeft is shortest remaining time × GPUs first.
func byServiceLeft(now time.Time, it *queue.Item, run *place.Running) (float64, float64) {
	return timeLeft(now, it, run) * lineup.Processors(it), 0
}

// lasLimits are the GPU-seconds at which a job falls into the next queue, as
// published with the Tiresias simulator for three queues.
func lasLimits() []float64 { return []float64{3250, 7200} }

// queueOf returns the queue for so much service.
func queueOf(served float64) int {
	q := 0
	for _, limit := range lasLimits() {
		if served >= limit-tolerance {
			q++
		}
	}

	return q
}

// tolerance is by how much a sum of GPU-seconds may be off.
const tolerance = 1e-6

// byService is two-dimensional least attained service with discrete queues: by
// queue, within a queue those that run before those that are queued, then who has had
// least, then by submission. Two things of the published simulator are corrected:
// it foresees the next fall of a job of several GPUs from its seconds where its
// GPU-seconds count, and who waits in a queue is there in the order of being
// stopped, whatever it has had.
func byService(now time.Time, it *queue.Item, run *place.Running) (float64, float64) {
	had := lineup.Served(now, it, run)
	if run != nil {
		return float64(queueOf(had)), -1
	}

	return float64(queueOf(had)), had
}

// nextFall is when a job that runs, or starts now, falls into the next queue, 0
// if it does not.
func nextFall(now time.Time, t *task) time.Duration {
	gpus := 0
	switch {
	case t.state == placed:
		gpus = t.gpus()
	case t.run != nil && t.state != stopped:
		gpus = t.run.GPUs
	}

	if gpus == 0 {
		return 0
	}

	had := lineup.Served(now, t.it, t.run)
	for _, limit := range lasLimits() {
		if had < limit-tolerance {
			return job.Seconds((limit-had)/float64(gpus)) + time.Nanosecond
		}
	}

	return 0
}
