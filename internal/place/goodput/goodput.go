// Package goodput is the yard's own policy for elastic jobs: jobs that say how
// fast they are on which GPUs, and may have more of them or fewer.
//
// Every GPU has a price in job-seconds: what one more second of it would save all jobs
// together. At these prices each job has a cheapest option until its end, which defines the
// value of a unit of its work; GPUs go where they produce the most value. Work of small jobs
// is worth more than that of large ones, because many jobs wait for them, yet a job that
// makes poor use of more GPUs does not get them. A restart is charged to the job, so that it
// is changed only when that pays.
//
// model.go lists the options of each job, price.go finds the prices for the shortest mean
// completion time, makespan.go those for the shortest makespan, fairness.go values work by how
// little its job has had, choose.go assigns GPUs, and plan.go turns the assignment into
// allocations and reasons. The policy counts GPUs; package allocate finds the nodes. A job of
// unknown speed gets what it requests.
//
// The policies are called goodput, goodput-makespan and goodput-fair. They keep nothing between
// two plans and know neither money nor deadlines: that is andreas.
package goodput

import (
	"slices"
	"time"

	"trainyard/internal/place"
)

// Policy is the policy. The zero value keeps the mean completion time low.
type Policy struct {
	Aim Aim
	// Gap is the minimum time between two changes of a job. 0 means that of the aim.
	Gap time.Duration
}

// Aim is what a policy tries to achieve.
type Aim uint8

// The aims.
const (
	// Completion is the shortest mean completion time.
	Completion Aim = iota
	// Makespan is the earliest end of the last job.
	Makespan
	// Fairness is the greatest throughput of the job that has least, each measured by what an equal
	// share of the yard would give it.
	Fairness
)

// Gap is the minimum time between two changes of a job if no other is chosen. It is longer where
// jobs take turns.
func (a Aim) Gap() time.Duration {
	switch a {
	case Completion:
		return 5 * time.Second
	case Makespan:
		return time.Minute
	case Fairness:
	}

	return 6 * time.Minute
}

var _ place.Searcher = Policy{}

// Name is what the policy is called in the configuration.
func (p Policy) Name() string {
	switch p.Aim {
	case Completion:
		return "goodput"
	case Makespan:
		return "goodput-makespan"
	case Fairness:
	}

	return "goodput-fair"
}

// Revises reports that it also changes what runs.
func (Policy) Revises() bool { return true }

// Plan decides how many GPUs of which kind each job gets.
func (p Policy) Plan(v *place.View) place.Plan { return p.Search(v, nil) }

// Slow reports that the server does not wait for it.
func (Policy) Slow() bool { return true }

// Search is Plan with a time limit.
func (p Policy) Search(v *place.View, enough func() bool) place.Plan {
	m := newMarket(v, p)
	m.enough = enough
	if len(m.withoutGPUs) == 0 && !slices.ContainsFunc(m.tasks, func(t task) bool { return !t.hasFastest() }) {
		return place.Plan{WakeAt: m.wakeAt()}
	}

	switch p.Aim {
	case Completion:
		m.valueByCompletion()
	case Makespan:
		m.valueByMakespan()
	case Fairness:
		m.valueByFairness()
	}

	return m.plan()
}

func (p Policy) gap() time.Duration {
	if p.Gap > 0 {
		return p.Gap
	}

	return p.Aim.Gap()
}
