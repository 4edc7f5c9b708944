// Package goodput is the yard's own policy for elastic jobs: jobs that say how
// fast they are on which GPUs, and may have more of them or fewer.
//
// It gives every GPU a price in job-seconds: what one more second of it would
// save all jobs together. At that price a job has a cheapest way to its end, and
// that is what a unit of its work is worth; the GPUs go where they do the most
// worth of work. Small jobs are worth more than large ones, because many wait for
// them, yet a job that makes poor use of more GPUs is not given them. What a job
// loses by being stopped and started again is charged, so that it is changed only
// when that pays.
//
// The prices come from the theory of shared speed-up (the rule of heSRPT for
// equal jobs) and are found by trial, so the policy has no constants to tune. It
// thinks in counts; package seats finds the nodes. A job that says nothing of its
// speed has what it asks for. The server, the simulator and the benchmarks use it
// by its names goodput and goodput-makespan. It learns nothing and keeps nothing
// between two plans.
package goodput

import (
	"time"

	"trainyard/internal/place"
)

// Policy is the policy. The zero value keeps the mean completion time low.
type Policy struct {
	// Makespan makes the last end as early as possible instead.
	Makespan bool
	// Gap is for how long a job is left alone that has just begun. 0 means five
	// seconds, or a minute where the last end counts.
	Gap time.Duration
}

func (p Policy) gap() time.Duration {
	switch {
	case p.Gap > 0:
		return p.Gap
	case p.Makespan:
		return time.Minute
	}
	return 5 * time.Second
}

var _ place.Policy = Policy{}

// Name is what the policy is called in the configuration.
func (p Policy) Name() string {
	if p.Makespan {
		return "goodput-makespan"
	}
	return "goodput"
}

// Revises reports that it also changes what runs.
func (Policy) Revises() bool { return true }

// Plan decides who has how much of what.
func (p Policy) Plan(v *place.View) place.Plan {
	m := newMarket(v, p)
	if len(m.tasks) == 0 {
		return place.Plan{}
	}
	if p.Makespan {
		m.hurry()
	} else {
		m.discover()
	}
	return m.plan()
}
