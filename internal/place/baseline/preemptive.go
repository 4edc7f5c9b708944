package baseline

import (
	"math"
	"time"

	"trainyard/internal/job"
	"trainyard/internal/place"
)

// Preemptive lets those jobs run that come first in an order over running and
// waiting ones, and stops others for them. Jobs that save no checkpoint are never
// stopped.
type Preemptive struct {
	name string
	why  string // what is said of a job that goes before another: "which …"
	// rank is a job's place: the smallest first, then the second number, then submission.
	rank func(now time.Time, t *task) (first, second float64)
	// again is when a running job may fall back in the order though nothing happens;
	// nil if none does.
	again func(now time.Time, t *task) time.Duration
}

var _ place.Policy = Preemptive{}

// Name is what the policy is called in the configuration.
func (o Preemptive) Name() string { return o.name }

// Revises reports that it also changes what runs.
func (o Preemptive) Revises() bool { return true }

// Plan lets run what comes first.
func (o Preemptive) Plan(v *place.View) place.Plan {
	if v.Line.Len() == 0 { // nobody is in anybody's way
		return place.Plan{}
	}
	p := newPreemptor(v, o.why)
	h := make(heap, len(p.tasks))
	for i := range p.tasks {
		t := &p.tasks[i]
		first, second := o.rank(v.Now, t)
		t.rank = entry{first: first, second: second, number: t.it.Number, at: int32(i)}
		h[i] = t.rank
	}
	p.sortHolders()
	h.init()
	p.run(func() int32 {
		if len(h) == 0 {
			return -1
		}
		return h.pop().at
	})
	plan := p.plan()
	if o.again != nil && p.waiting() {
		plan.Again = o.next(v.Now, p)
	}
	return plan
}

// next is when the first of the running jobs falls back in the order.
func (o Preemptive) next(now time.Time, p *preemptor) time.Time {
	var soonest time.Duration
	for i := range p.tasks {
		if d := o.again(now, &p.tasks[i]); d > 0 && (soonest == 0 || d < soonest) {
			soonest = d
		}
	}
	if soonest == 0 {
		return time.Time{}
	}
	return now.Add(soonest)
}

// timeLeft is how much longer a job is expected to run, in seconds. What it has
// had is taken off what was declared; unknown is longest.
func timeLeft(now time.Time, t *task) float64 {
	if t.run != nil {
		if ends, known := t.run.Ends(now); known {
			return ends.Sub(now).Seconds()
		}
	} else if left, known := t.it.Outlook.Left(); known && t.it.Outlook.Speed.Work > 0 && t.it.Lasts > 0 {
		return left / t.it.Outlook.Speed.Work * t.it.Lasts.Seconds()
	}
	if t.it.Lasts == 0 {
		return math.Inf(1)
	}
	return math.Max(t.it.Lasts.Seconds()-served(now, t)/size(t.it), 0)
}

// served is the GPU-seconds that a job has had.
func served(now time.Time, t *task) float64 {
	if t.run != nil {
		return t.run.Served(now)
	}
	return t.it.Outlook.Served
}

// byTimeLeft is shortest remaining time first.
func byTimeLeft(now time.Time, t *task) (float64, float64) { return timeLeft(now, t), 0 }

// byServiceLeft is shortest remaining time × GPUs first.
func byServiceLeft(now time.Time, t *task) (float64, float64) {
	return timeLeft(now, t) * size(t.it), 0
}

// lasLimits are the GPU-seconds at which a job falls into the next queue, as
// published with the Tiresias simulator for three queues.
func lasLimits() []float64 { return []float64{3250, 7200} }

// queueOf returns the queue for so much service.
func queueOf(served float64) int {
	q := 0
	for _, limit := range lasLimits() {
		if served >= limit-slack {
			q++
		}
	}
	return q
}

// slack is by how much a sum of GPU-seconds may be off.
const slack = 1e-6

// byService is two-dimensional least attained service with discrete queues: by
// queue, within a queue those that run before those that wait, then who has had
// least, then by submission. Two things of the published simulator are corrected:
// it foresees the next fall of a job of several GPUs from its seconds where its
// GPU-seconds count, and who waits in a queue is there in the order of being
// stopped, whatever it has had.
func byService(now time.Time, t *task) (float64, float64) {
	had := served(now, t)
	if t.run != nil {
		return float64(queueOf(had)), -1
	}
	return float64(queueOf(had)), had
}

// nextFall is when a running job falls into the next queue, 0 if it does not.
func nextFall(now time.Time, t *task) time.Duration {
	if t.run == nil || t.state == stopped && t.seats == nil || t.run.GPUs == 0 || t.run.Began.IsZero() {
		return 0
	}
	had := served(now, t)
	for _, limit := range lasLimits() {
		if had < limit-slack {
			return job.Seconds((limit-had)/float64(t.run.GPUs)) + time.Nanosecond
		}
	}
	return 0
}
