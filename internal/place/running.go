package place

import (
	"math/bits"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/queue"
	"trainyard/internal/share"
)

// Running is a job that holds nodes.
type Running struct {
	*queue.Item
	Run         id.Run
	Allocations []Allocation // in rank order
	GPUs        int          // of all allocations
	Rate        float64      // units of work per second expected there, 0 if unknown
	// Pace is how many seconds of its expected run time it gets done there in a second, 0 for 1.
	Pace float64 `json:",omitempty"`
	// Takes is how long a whole run takes there, 0 if unknown.
	Takes    time.Duration `json:",omitempty"`
	Ordered  time.Time
	Began    time.Time // when its processes started; zero before that
	Stopping bool      // it was ordered to stop, or is about to be: what it holds will be free soon
	// Stays says that no plan may stop it at present, because its checkpoints cannot be stored.
	Stays bool `json:",omitempty"`
	// Hurried is when nodes were last provisioned for this run because it is too slow; zero if never.
	Hurried time.Time `json:",omitzero"`
}

// Awaits reports whether a lease is of a node that was provisioned for this run because it is too slow, or is being.
// What was provisioned for earlier runs of the job is older than this one.
func (r *Running) Awaits(l *fleet.Lease) bool {
	return l.Faster && l.Job == r.Job && l.Live() && l.Requested.After(r.Ordered)
}

// Stoppable reports whether a plan may stop it: it resumes from a checkpoint that can be stored, and is not being
// stopped already.
func (r *Running) Stoppable() bool { return r.Outlook.Resumes && !r.Stopping && !r.Stays }

// Done returns the estimated units of work done by now: what was known at the outlook's
// time, extrapolated at its rate.
func (r *Running) Done(now time.Time) float64 {
	o := r.Outlook
	if r.Began.IsZero() || r.Rate <= 0 || o.Speed == nil {
		return o.Done
	}

	from := r.Began.Add(time.Duration(o.Speed.Start))
	if o.At.After(from) {
		from = o.At
	}

	if !now.After(from) {
		return o.Done
	}

	done := o.Done + r.Rate*now.Sub(from).Seconds()
	if o.Speed.Work <= 0 { // it is unknown how much there is to do
		return done
	}

	return min(done, max(o.Speed.Work, o.Done))
}

// RemainingWork returns the units of work that remain, and whether that is known.
func (r *Running) RemainingWork(now time.Time) (float64, bool) {
	o := r.Outlook
	if o.Speed == nil || o.Speed.Work <= 0 {
		return 0, false
	}

	return max(o.Speed.Work-r.Done(now), 0), true
}

// ExpectedEnd returns when it will end if it stays where it is, and whether that is known.
func (r *Running) ExpectedEnd(now time.Time) (time.Time, bool) {
	remaining, known := r.RemainingWork(now)
	if !known || r.Rate <= 0 {
		return time.Time{}, false
	}

	from := now
	if begin := r.starts(); begin.After(from) {
		from = begin
	}

	return from.Add(job.Seconds(remaining / r.Rate)), true
}

// starts returns when it does its first unit of work, at the earliest.
func (r *Running) starts() time.Time {
	at := r.Began
	if at.IsZero() {
		at = r.Ordered
	}

	_, start := r.Outlook.RestartCost()

	return at.Add(start)
}

// SlowForecasts is how many forecasts in a row must say that a job is too slow before something is done about it.
const SlowForecasts = 3

// slowMargin is how many times as long as expected, or as its deadline allows, a run takes that is too slow.
const slowMargin = 1.25

// TooSlow reports whether a run takes much longer than its owner expects of it there, or than is left until its
// deadline, also by the lower bound of a forecast.
func (r *Running) TooSlow(f *job.Forecast) bool {
	if r.Began.IsZero() || !f.Informed() || !f.At.After(r.Began) {
		return false
	}

	if d := r.Outlook.Deadline; !d.IsZero() && f.Remaining.Low > slowMargin*d.Sub(f.At).Seconds() {
		return true
	}

	if r.Takes == 0 || r.Spec == nil || r.Spec.Expect == 0 {
		return false
	}

	return f.At.Sub(r.Began).Seconds()+f.Remaining.Low > slowMargin*r.Takes.Seconds()
}

// Served returns the GPU-seconds that the job has had by now.
func (r *Running) Served(now time.Time) float64 {
	if r.Began.IsZero() || !now.After(r.Began) {
		return r.Outlook.Served
	}

	return r.Outlook.Served + now.Sub(r.Began).Seconds()*r.GPUCount()
}

// ServedAsked returns the GPU-seconds that the job would have needed by now on what it asks for: those of its
// present run count by how fast it is there.
func (r *Running) ServedAsked(now time.Time) float64 {
	if r.Began.IsZero() || !now.After(r.Began) || r.Pace <= 0 {
		return r.Served(now)
	}

	return r.Outlook.Served + now.Sub(r.Began).Seconds()*r.Pace*float64(asked(r.Item))
}

// GPUCount returns how many GPUs it holds; a share of one counts as a fraction.
func (r *Running) GPUCount() float64 {
	if len(r.Allocations) > 0 && r.Allocations[0].Share > 0 {
		return r.Allocations[0].Share
	}

	return float64(r.GPUs)
}

// CutOf returns what a job has of a GPU if it gets a part of it.
func CutOf(it *queue.Item, part float64) share.Cut {
	c := it.Shape.Need.Cut(part)
	c.Job, c.Owner, c.Kind = it.Job, it.User, it.Program.Key

	return c
}

// ExpectedRate returns the units of work per second that a job is expected to do on allocations:
// by its declared rates, or else by what was observed of it. 0 if that is unknown.
func ExpectedRate(o *job.Outlook, allocations []Allocation, node func(id.Node) *fleet.Node) float64 {
	if s := o.DeclaredSpeed(); s != nil || o.Learned == nil {
		return RateOn(s, allocations, node)
	}

	gpus := 0
	for _, a := range allocations {
		gpus += bits.OnesCount64(a.GPUs)
	}

	rate := 0.0

	for i, a := range allocations {
		g := firstGPU(a, node)
		if g == nil || a.Share > 0 {
			return 0
		}

		tflops, _ := g.TFLOPS()
		if r := o.Learned.Rate(g.Model, tflops, gpus, len(allocations)); i == 0 || r < rate {
			rate = r
		}
	}

	return rate
}

// RateOn returns the units of work per second that a job is expected to do on allocations, 0
// if that is unknown. On GPUs of different kinds the slowest decides.
func RateOn(s *job.Speed, allocations []Allocation, node func(id.Node) *fleet.Node) float64 {
	if s == nil {
		return 0
	}

	gpus := 0
	for _, a := range allocations {
		gpus += bits.OnesCount64(a.GPUs)
	}

	rate := 0.0

	for i, a := range allocations {
		n := node(a.Node)
		if n == nil {
			return 0
		}

		var model string

		var memory job.Bytes
		if a.GPUs != 0 {
			if g := n.Inventory.GPU(bits.TrailingZeros64(a.GPUs)); g != nil {
				model, memory = g.Model, g.Memory
			}
		}

		r := s.On(model, memory).Rate(gpus, len(allocations))
		if a.Share > 0 {
			r = s.On(model, memory).OnPart(a.Share)
		}

		if i == 0 || r < rate {
			rate = r
		}
	}

	return rate
}
