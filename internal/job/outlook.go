package job

import (
	"time"

	"trainyard/internal/money"
	"trainyard/internal/scaling"
)

// Outlook is what is known of the future of a job: its remaining work, its speed, its deadline
// and what stopping it costs.
type Outlook struct {
	Submitted time.Time
	Deadline  time.Time       // zero if it has none
	LateCost  money.PerSecond // after the deadline
	Speed     *Speed          // nil if unknown
	Reference Reference       // GPU that its expected run time is for
	Done      float64         // units of work done at At
	At        time.Time
	Served    float64       // GPU-seconds of its runs that have ended
	Every     time.Duration // between checkpoints; 0 if it saves one only when it is stopped
	Resumes   bool          // it can be stopped and resumes from a checkpoint
	Stops     int           // how often a plan has stopped it
	Ran       int           // GPUs of its last run, 0 before the first
	Forecast  *Forecast     // nil if there is none yet; never changed, only replaced
	// Learned is how fast it was observed to be on the GPUs that it had; nil before the first
	// observation. It stands in where no rates were declared.
	Learned *scaling.Model `json:",omitempty"`
	// Startup is the observed time from the start of its processes to the first unit of work, 0
	// if that was not observed.
	Startup time.Duration `json:",omitempty"`
	// Slow is how many forecasts in a row say that its run takes much longer than expected, or than its deadline
	// allows; negative is how many in a row say that it does not.
	Slow int `json:",omitempty"`
	// Saved is its newest checkpoint in the catalogue; zero if it has none.
	Saved Saved `json:",omitzero"`
}

// Saved is what a run of a job on another node would continue from. A job that neither travels nor stays has saved
// nothing yet.
type Saved struct {
	Size    Bytes     `json:",omitempty"`
	At      time.Time `json:",omitzero"`  // when the program wrote it
	Step    int64     `json:",omitempty"` // -1 if unknown
	Work    float64   `json:",omitempty"` // units of work that it has
	Travels bool      `json:",omitempty"` // it is restored on whatever node the job runs next
	// Shared is the shared file system on which it is: it travels to nodes that see it, and nothing is transferred.
	Shared string `json:",omitempty"`
	// Stays says that what the job saves stays on the nodes of its last run: on any other it begins anew.
	Stays bool `json:",omitempty"`
}

// DeclaredSpeed returns the speed of a job whose rates were declared, nil for any other job.
func (o *Outlook) DeclaredSpeed() *Speed {
	if o.Speed == nil || len(o.Speed.Rates) == 0 {
		return nil
	}

	return o.Speed
}

// HasRates reports whether it is known how fast the job is on some GPUs.
func (o *Outlook) HasRates() bool { return o.DeclaredSpeed() != nil || o.Learned != nil }

// RestartCost returns how long a stop and a start take, as declared or else as observed.
func (o *Outlook) RestartCost() (save, start time.Duration) {
	if o.Speed != nil {
		save, start = time.Duration(o.Speed.Save), time.Duration(o.Speed.Start)
	}

	if start == 0 {
		start = o.Startup
	}

	return save, start
}

// RemainingWork returns the units of work that remained at At, and whether that is known.
func (o *Outlook) RemainingWork() (float64, bool) {
	if o.Speed == nil || o.Speed.Work <= 0 {
		return 0, false
	}

	return max(o.Speed.Work-o.Done, 0), true
}

// RemainingTime returns how long the remaining work takes at a rate, start-up included, and
// whether that is known.
func (o *Outlook) RemainingTime(rate float64) (time.Duration, bool) {
	remaining, known := o.RemainingWork()
	if !known || rate <= 0 {
		return 0, false
	}

	return time.Duration(o.Speed.Start) + Seconds(remaining/rate), true
}

// Declare replaces a job's speed by what its program reports.
func (o *Outlook) Declare(p *Progress) {
	next := Speed{Work: p.Work, Rates: p.Rates}

	if old := o.Speed; old != nil {
		next.Start, next.Save = old.Start, old.Save
		if next.Work == 0 {
			next.Work = old.Work
		}

		if len(next.Rates) == 0 {
			next.Rates = old.Rates
		}
	}

	o.Speed = NewSpeed(next.Work, time.Duration(next.Start), time.Duration(next.Save), next.Rates...)
}

// Seconds converts seconds to a duration, at most the longest there is.
func Seconds(s float64) time.Duration {
	const longest = float64(1<<63 - 1)
	s *= float64(time.Second)
	if s < longest {
		return time.Duration(s)
	}

	return 1<<63 - 1
}

// NewOutlook returns the outlook of a job when it is submitted or loaded.
func NewOutlook(j *Job) *Outlook {
	o := &Outlook{
		Submitted: j.Submitted, LateCost: j.Spec.LateCost.PerHour().PerSecond(), Speed: j.Spec.Speed,
		Reference: j.Reference, Done: j.Done, Served: j.Served, Stops: j.Stops,
	}

	if d := j.Spec.Deadline; d != nil {
		o.Deadline = *d
	}

	if c := j.Spec.Checkpoint; c != nil {
		o.Resumes, o.Every = true, time.Duration(c.Every)
	}

	return o
}

// Duration returns how long a job will run with so many GPUs on so many nodes: how long the rest of its
// work takes at its speed, or else as its owner declared for its reference, or as it is forecast to take.
// 0 if that is unknown.
func (o *Outlook) Duration(s *Spec, gpus, nodes int) time.Duration {
	if d := o.slowest(gpus, nodes); d > 0 {
		return s.Capped(d)
	}
	if d := s.DeclaredDuration(); d > 0 {
		return d
	}

	if f := o.Forecast; o.Speed == nil && f != nil && f.Informed() {
		return Seconds(f.Remaining.Mid)
	}

	return 0
}

// slowest returns how long the rest of the work takes on the kind of GPU on which the job is slowest,
// 0 if that is unknown.
func (o *Outlook) slowest(gpus, nodes int) time.Duration {
	if o.Speed == nil {
		return 0
	}

	var longest time.Duration

	for _, kind := range o.Speed.Kinds() {
		c := o.Speed.On(kind, 0)

		if d, known := o.RemainingTime(c.Rate(max(gpus, c.MinGPUs()), nodes)); known {
			longest = max(longest, d)
		}
	}

	return longest
}
