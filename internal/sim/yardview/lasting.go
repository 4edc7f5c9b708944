package yardview

import (
	"fmt"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/sim"
)

// Basis says what the length of a job was taken from.
type Basis string

// What a length may be taken from, the best first.
const (
	BasisSpeed   Basis = "speed"        // its work and its speed
	BasisExpect  Basis = "expect"       // what its owner expects
	BasisMost    Basis = "max_duration" // the longest it may run
	BasisOverdue Basis = "overdue"      // it runs longer than was said: taken to be half done
	BasisAssumed Basis = "assumed"      // what the caller assumes of jobs that say nothing
	BasisUnknown Basis = "unknown"
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

// of returns how long a run of a job lasts in all, 0 if its speed says it.
func (l *Lengths) of(j *job.Job) (time.Duration, Basis) {
	s := j.Spec
	lasts, basis := l.assume, BasisAssumed
	switch {
	case s.Speed != nil && s.Speed.Work > 0 && len(s.Speed.Rates) > 0:
		return 0, BasisSpeed
	case s.Expect > 0:
		lasts, basis = time.Duration(s.Expect), BasisExpect
	case s.MaxDuration > 0:
		// Just less than what it would be stopped at.
		lasts, basis = time.Duration(s.MaxDuration)-time.Second, BasisMost
	case l.assume == 0:
		basis = BasisUnknown
	}

	if ran := l.ran(j.ID); ran > 0 && ran >= lasts && basis != BasisUnknown {
		return 2 * ran, BasisOverdue
	}

	return lasts, basis
}

// ran returns how long the live run of a job has run.
func (l *Lengths) ran(j id.Job) time.Duration {
	for i := range l.view.State.Runs {
		if r := &l.view.State.Runs[i]; r.Job == j && !r.Started.IsZero() {
			return l.view.Now.Sub(r.Started)
		}
	}

	return 0
}

// Truth is what a job of the view is taken to be really like.
func (l *Lengths) Truth(j job.Job) *sim.Job {
	t := &sim.Job{Name: j.Spec.Name, At: j.Submitted.Sub(l.view.Now), Owner: j.Owner, Spec: j.Spec}
	t.Duration, _ = l.of(&j)
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
