package place

import (
	"math/bits"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/queue"
)

// Running is a job that holds nodes.
type Running struct {
	*queue.Item
	Run         id.Run
	Allocations []Allocation // in rank order
	GPUs        int          // of all seats
	Rate        float64      // units of work per second expected there, 0 if unknown
	Ordered     time.Time
	Began       time.Time // its processes run since; zero while it starts
	Stopping    bool      // it was told to stop: what it holds will be free soon
}

// Done returns the units of work it has done by now, as far as can be told: what
// was known at the outlook's time, and at its rate since.
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

	return min(o.Done+r.Rate*now.Sub(from).Seconds(), max(o.Speed.Work, o.Done))
}

// Left returns the units of work left by now, and whether that is known.
func (r *Running) Left(now time.Time) (float64, bool) {
	o := r.Outlook
	if o.Speed == nil || o.Speed.Work <= 0 {
		return 0, false
	}

	return max(o.Speed.Work-r.Done(now), 0), true
}

// Ends returns when it will have ended if it stays where it is, and false if that is not known.
func (r *Running) Ends(now time.Time) (time.Time, bool) {
	left, known := r.Left(now)
	if !known || r.Rate <= 0 {
		return time.Time{}, false
	}

	from := now
	if begin := r.starts(); begin.After(from) {
		from = begin
	}

	return from.Add(job.Seconds(left / r.Rate)), true
}

// starts returns when it does its first unit of work, at the earliest.
func (r *Running) starts() time.Time {
	at := r.Began
	if at.IsZero() {
		at = r.Ordered
	}

	if s := r.Outlook.Speed; s != nil {
		at = at.Add(time.Duration(s.Start))
	}

	return at
}

// Served returns the GPU-seconds that the job has had by now.
func (r *Running) Served(now time.Time) float64 {
	if r.Began.IsZero() || !now.After(r.Began) {
		return r.Outlook.Served
	}

	return r.Outlook.Served + now.Sub(r.Began).Seconds()*r.Whole()
}

// Whole returns the GPUs that it holds, a share counted as such.
func (r *Running) Whole() float64 {
	if len(r.Allocations) > 0 && r.Allocations[0].Share > 0 {
		return r.Allocations[0].Share
	}

	return float64(r.GPUs)
}

// RateOn returns the units per second that a job is expected to do on seats, 0 if
// that is not known. Seats on unlike GPUs go as fast as on the slowest kind.
func RateOn(s *job.Speed, seats []Allocation, node func(id.Node) *fleet.Node) float64 {
	if s == nil {
		return 0
	}

	gpus := 0
	for _, seat := range seats {
		gpus += bits.OnesCount64(seat.GPUs)
	}

	rate := 0.0

	for i, seat := range seats {
		n := node(seat.Node)
		if n == nil {
			return 0
		}

		var model string

		var memory job.Bytes
		if seat.GPUs != 0 {
			if g := n.Inventory.GPU(bits.TrailingZeros64(seat.GPUs)); g != nil {
				model, memory = g.Model, g.Memory
			}
		}

		r := s.On(model, memory).Rate(gpus, len(seats))
		if seat.Share > 0 {
			r = s.On(model, memory).OnPart(seat.Share)
		}

		if i == 0 || r < rate {
			rate = r
		}
	}

	return rate
}
