package job

import (
	"time"

	"trainyard/internal/id"
	"trainyard/internal/scaling"
)

// Observed is what was learned of a job while it ran, as it is stored until the job has ended: what its outlook has
// beyond what is stored with the job itself.
type Observed struct {
	Job     id.Job
	Speed   *Speed                `json:",omitempty"` // as reported or observed; nil if it is as the spec declares
	Seen    []scaling.Observation `json:",omitempty"` // from which its speed is learned
	Startup time.Duration         `json:",omitempty"`
	Ran     int                   `json:",omitempty"` // GPUs of its last run that has ended
	// Done is the units of work done at At, which is zero if its present run has reported none yet. They are those
	// of the report that taught the rest; an agent sends the newest one again when the server was restarted.
	Done float64   `json:",omitempty"`
	At   time.Time `json:",omitzero"`
}

// Observed returns what was learned of a job, to be stored.
func (o *Outlook) Observed(j *Job) Observed {
	seen := Observed{Job: j.ID, Startup: o.Startup, Ran: o.Ran}

	if !o.Speed.Equal(j.Spec.Speed) {
		seen.Speed = o.Speed
	}

	if o.Learned != nil {
		seen.Seen = o.Learned.Seen
	}

	if !o.At.IsZero() {
		seen.Done, seen.At = o.Done, o.At
	}

	return seen
}

// Restore adds what was stored of a job to its outlook.
func (o *Outlook) Restore(seen *Observed) {
	if seen.Speed != nil {
		o.Speed = seen.Speed
	}

	o.Learned = scaling.NewModel(seen.Seen)
	o.Startup, o.Ran = seen.Startup, seen.Ran

	if !seen.At.IsZero() {
		o.Done, o.At = seen.Done, seen.At
	}
}

// SameLessons reports whether both outlooks of a job have learned the same of it, apart from its progress.
func (o *Outlook) SameLessons(other *Outlook) bool {
	return o.Learned == other.Learned && o.Startup == other.Startup && o.Ran == other.Ran && o.Speed.Equal(other.Speed)
}
