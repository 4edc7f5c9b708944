package yardview

import (
	"fmt"
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

// of returns how long a run of a job lasts in all on what it asks for, 0 if its speed says it.
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

	if ran := l.ran(j, scales(basis)); ran > 0 && ran >= lasts && basis != BasisUnknown {
		return 2 * ran, BasisOverdue
	}

	return lasts, basis
}

// scales reports whether a length is for what the job asks for, and another elsewhere. max_duration is the same
// everywhere.
func scales(b Basis) bool { return b == BasisExpect || b == BasisAssumed }

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
func (l *Lengths) Truth(j job.Job) *sim.Job {
	t := &sim.Job{Name: j.Spec.Name, At: j.Submitted.Sub(l.view.Now), Owner: j.Owner, Spec: j.Spec}

	lasts, basis := l.of(&j)
	t.Duration = lasts
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
