package yardview

import (
	"fmt"
	"math"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/queue"
	"trainyard/internal/sim"
)

// Basis says what the length of a job was taken from.
type Basis string

// What a length may be taken from, the best first.
const (
	BasisSpeed    Basis = "speed"        // its work and its speed
	BasisForecast Basis = "forecast"     // what the yard forecasts of it
	BasisExpect   Basis = "expect"       // what its owner expects
	BasisMost     Basis = "max_duration" // the longest it may run
	BasisOverdue  Basis = "overdue"      // it runs longer than was said: taken to be half done
	BasisAssumed  Basis = "assumed"      // what the caller assumes of jobs that say nothing
	BasisUnknown  Basis = "unknown"
)

// Lengths says how long the jobs of a view last, as far as that is known.
type Lengths struct {
	view   *View
	assume time.Duration // of jobs that say nothing; 0 for none
	basis  map[id.Job]Basis
}

// NewLengths looks at what each job declares.
func NewLengths(v *View, assume time.Duration) *Lengths {
	l := &Lengths{view: v, assume: assume, basis: map[id.Job]Basis{}}
	for i := range v.State.Jobs {
		j := &v.State.Jobs[i]
		_, l.basis[j.ID] = l.of(j)
	}

	return l
}

// Unknown lists the jobs of unknown run time.
func (l *Lengths) Unknown() []id.Job {
	var list []id.Job
	for i := range l.view.State.Jobs {
		if j := l.view.State.Jobs[i].ID; l.basis[j] == BasisUnknown {
			list = append(list, j)
		}
	}

	return list
}

// Basis says what the length of a job was taken from.
func (l *Lengths) Basis(j id.Job) Basis { return l.basis[j] }

// of returns how long a run of a job lasts in all on what it asks for, 0 if its speed says it.
func (l *Lengths) of(j *job.Job) (time.Duration, Basis) {
	s := j.Spec
	lasts, basis := l.assume, BasisAssumed
	left, forecast := l.remaining(j)
	switch {
	case s.Speed != nil && s.Speed.Work > 0 && len(s.Speed.Rates) > 0:
		return 0, BasisSpeed
	case forecast:
		return l.ran(j, true) + left, BasisForecast
	case s.Expect > 0:
		lasts, basis = time.Duration(s.Expect), BasisExpect
	case s.MaxDuration > 0:
		// Just less than what it would be stopped at.
		lasts, basis = time.Duration(s.MaxDuration)-time.Second, BasisMost
	case l.assume == 0:
		basis = BasisUnknown
	}

	if ran := l.ran(j, scales(basis)); ran > 0 && ran >= lasts && basis != BasisUnknown {
		return 2 * ran, BasisOverdue
	}

	return lasts, basis
}

// forecast returns the forecast of a job, nil if it has none.
func (l *Lengths) forecast(j *job.Job) *job.Forecast {
	d, ok := l.view.Jobs[j.ID]
	if !ok || d.Forecast == nil || d.Forecast.Basis == job.BasisNone || d.Forecast.Starting {
		return nil
	}

	return &d.Forecast.Forecast
}

// leastRemaining is what a job takes at least that has outlived its forecast.
const leastRemaining = time.Minute

// remaining returns how long a job still runs on what it asks for, by a forecast that is more than what its owner
// expects. It reports false if it has none.
func (l *Lengths) remaining(j *job.Job) (time.Duration, bool) {
	f := l.forecast(j)
	if f == nil || !f.Informed() {
		return 0, false
	}

	left := f.Remaining.Mid
	for i := range l.view.State.Runs {
		if r := &l.view.State.Runs[i]; r.Job == j.ID && !r.Started.IsZero() {
			left = (left - l.view.Now.Sub(f.At).Seconds()) * l.pace(j, r)
		}
	}

	return max(job.Seconds(left), leastRemaining), true
}

// deviationsOf80 is how many standard deviations an 80 % interval reaches from its middle.
const deviationsOf80 = 1.2816

// stretch is how many times as long as expected a job still runs, so many standard deviations from what is expected.
// Each side of the prediction interval is taken to be lognormal.
func (l *Lengths) stretch(j *job.Job, deviations float64) float64 {
	f := l.forecast(j)
	if f == nil || f.Remaining.Low <= 0 || f.Remaining.Mid <= 0 {
		return 1
	}

	side := f.Remaining.High
	if deviations < 0 {
		side = f.Remaining.Low
	}

	return math.Pow(side/f.Remaining.Mid, math.Abs(deviations)/deviationsOf80)
}

// scales reports whether a length is for what the job asks for, and another elsewhere. max_duration is the same
// everywhere.
func scales(b Basis) bool { return b == BasisForecast || b == BasisExpect || b == BasisAssumed }

// ran returns how long the live run of a job has run, as it would have on what the job asks for if asked is set.
func (l *Lengths) ran(j *job.Job, asked bool) time.Duration {
	for i := range l.view.State.Runs {
		r := &l.view.State.Runs[i]
		if r.Job != j.ID || r.Started.IsZero() {
			continue
		}

		ran := r.Worked(l.view.Now)
		if asked {
			ran = job.Seconds(ran.Seconds() * l.pace(j, r))
		}

		return ran
	}

	return 0
}

// pace returns how many seconds of its expected run time a run of a job gets done in a second.
func (l *Lengths) pace(j *job.Job, r *job.Run) float64 {
	it := queue.Item{
		Shape:   &queue.Shape{Need: fleet.NeedOf(j.Spec, job.Floor{}, nil)},
		Outlook: &job.Outlook{Reference: j.Reference},
	}

	var on []place.Allocation
	for i := range r.Ranks {
		on = append(on, place.Allocation{Node: r.Ranks[i].Node, GPUs: fleet.Mask(r.Ranks[i].GPUs)})
	}

	return place.Pace(&it, on, func(n id.Node) *fleet.Node {
		for i := range l.view.State.Nodes {
			if l.view.State.Nodes[i].ID == n {
				return &l.view.State.Nodes[i]
			}
		}

		return nil
	})
}

// Truth is what a job of the view is taken to be really like. How long it takes where it runs follows from its
// expected run time by the same rule that policies use.
func (l *Lengths) Truth(j job.Job) *sim.Job { return l.Drawn(j, 0) }

// Drawn is what a job would be like that takes so many standard deviations longer than its forecast says, by the
// prediction interval of that. One without a forecast has no interval.
func (l *Lengths) Drawn(j job.Job, deviations float64) *sim.Job {
	t := &sim.Job{Name: j.Spec.Name, At: j.Submitted.Sub(l.view.Now), Owner: j.Owner, Spec: j.Spec}

	lasts, basis := l.of(&j)
	ran := l.ran(&j, scales(basis))
	t.Duration = lasts
	if lasts > ran {
		t.Duration = ran + job.Seconds((lasts-ran).Seconds()*l.stretch(&j, deviations))
	}

	if scales(basis) || basis == BasisOverdue && (j.Spec.Expect > 0 || j.Spec.MaxDuration == 0) {
		t.Reference = &j.Reference
	}

	return t
}

// Label names a job of the view for people.
func (v *View) Label(j id.Job) string {
	if d, ok := v.Jobs[j]; ok && d.Name != "" {
		return fmt.Sprintf("%s (%s)", j, d.Name)
	}

	return string(j)
}

// Detail returns the API's answer about a job, and false for a job of another user.
func (v *View) Detail(j id.Job) (api.JobDetail, bool) {
	d, ok := v.Jobs[j]
	return d, ok
}
