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
// model.go says what each job could have, price.go finds the prices, makespan.go
// does so where the last end counts, choose.go gives out the GPUs, plan.go finds
// the seats and the words. The policy thinks in counts; package seats finds the
// nodes. A job that says nothing of its speed has what it asks for. The server,
// the simulator and the benchmarks use it by its names goodput and
// goodput-makespan. It learns nothing, keeps nothing between two plans, and knows
// neither money nor deadlines: that is andreas.
package goodput

import (
	"slices"
	"time"

	"trainyard/internal/place"
)

// Policy is the policy. The zero value keeps the mean completion time low.
type Policy struct {
	// Makespan makes the last end as early as possible instead.
	Makespan bool
	// Gap is for how long a job that has just begun is not given less or more. 0
	// means five seconds, or a minute where the last end counts: there jobs take
	// turns.
	Gap time.Duration
}

var _ place.Searcher = Policy{}

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
func (p Policy) Plan(v *place.View) place.Plan { return p.Search(v, nil) }

// Slow reports that the server does not wait for it.
func (Policy) Slow() bool { return true }

// Search decides who has how much of what, in the time it has.
func (p Policy) Search(v *place.View, enough func() bool) place.Plan {
	m := newMarket(v, p)
	m.enough = enough
	if len(m.plain) == 0 && !slices.ContainsFunc(m.tasks, func(t task) bool { return !t.content() }) {
		return place.Plan{}
	}

	if p.Makespan {
		m.hurry()
	} else {
		m.discover()
	}

	return m.plan()
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
