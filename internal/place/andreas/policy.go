// Package andreas is the policy andreas: it plans by money, which is what nodes cost while
// they are used and what being late costs.
//
// It works on the problem of the ANDREAS papers (package problem) and takes into account what
// the published rule (package published) leaves out: the cost of restarts, nodes that must
// be switched on first, memory and place, jobs on several nodes, jobs that may end early
// and jobs that share a GPU. A plan takes four steps: price values each configuration of
// each job against waiting, greedy assigns GPUs by value, a search improves on that, and
// allocate chooses the nodes and empties those that are better switched off.
//
// The policy does not provision nodes. If no job has a deadline or a measured speed it
// does what fifo does.
package andreas

import (
	"trainyard/internal/place"
	"trainyard/internal/place/andreas/problem"
	"trainyard/internal/place/ordered"
)

// Search is how the policy looks for something better than its first solution.
type Search string

// The searches, each with what the ones before it find.
const (
	Greedy Search = "greedy" // the first answer
	Local  Search = "local"  // jobs push each other aside, from the first answer
	Random Search = "random" // the first answer again and again, with chance in the order
	Relink Search = "relink" // both, and then walks from the best answer towards the others
)

// Options are the parameters of the policy.
type Options struct {
	problem.Assumptions
	// Search improves on the first solution. Rounds is how many attempts it makes at
	// most; 0 means as many as its time allows, or a hundred if it has no limit.
	Search Search
	Rounds int
	Seed   uint64
	// Hedge is how much of its remaining time a job is kept ahead of its deadline
	// where that costs little: the chance that something comes in between.
	Hedge float64
	// Ahead is how far ahead it looks when it asks what waiting would cost, in times
	// of what it would take to do all work that is there.
	Ahead float64
	// Crowd is how soon the yard counts as full when it asks whether a job that
	// waits could have more GPUs later: 1 when each job has the GPUs that it uses
	// best, 2 when there are twice as many GPUs as that.
	Crowd float64
	// Dare is how much time to spare a job must have, in times of what is left of it,
	// to wait for GPUs that suit it better while others are free.
	Dare float64
	// Survival is the share of jobs that still run when they have done 1/n, 2/n, …
	// n/n of their work, falling. Nil means that all run to their end.
	Survival []float64
}

// Defaults are the parameters of the policy as it is registered.
func Defaults() Options {
	return Options{
		Assumptions: problem.Standard(),
		Search:      Local, Rounds: 10, Hedge: 0.03, Ahead: 0.3, Crowd: 2, Dare: 0.1,
	}
}

// Policy is the policy andreas.
type Policy struct{ o Options }

var _ place.Searcher = (*Policy)(nil)

// New returns the policy with these parameters.
func New(o Options) *Policy { return &Policy{o} }

// Name is what the policy is called in the configuration.
func (*Policy) Name() string { return "andreas" }

// Revises reports that it stops, moves and resizes what runs where that saves money.
func (*Policy) Revises() bool { return true }

// Plan finds the cheapest way to go on.
func (p *Policy) Plan(v *place.View) place.Plan { return p.Search(v, nil) }

// Slow reports that the server does not wait for it.
func (*Policy) Slow() bool { return true }

// Search finds the cheapest way to go on that it can find in its time.
func (p *Policy) Search(v *place.View, enough func() bool) place.Plan {
	y := newPlanner(v, &p.o)
	y.enough = enough
	if !y.HasEstimates {
		return ordered.FIFO{}.Plan(v)
	}

	y.ListCandidates()
	y.price()
	y.greedy()
	y.improve()
	y.allocate()
	plan := y.Plan(y.reason)
	plan.WakeAt = y.wakeAt()

	return plan
}

// planner is the yard with what the policy computes about it.
type planner struct {
	*problem.Yard
	o             *Options
	enough        func() bool // reports that the time is up; nil if there is no limit
	capacity      float64     // GPUs that may be given, in GPUs of the best kind
	relativeSpeed []float64   // of one GPU of each kind, compared with the best kind
	lookahead     float64     // how far it looks ahead, in seconds
	meanDuration  float64     // of the jobs where they use their GPUs best, in seconds
	occupancy     float64     // how full the yard is, 0 to 1
	heap          []step
}

// newPlanner returns a planner for what a view shows.
func newPlanner(v *place.View, o *Options) *planner {
	y := problem.NewYard(v, &o.Assumptions, false)
	return &planner{Yard: y, o: o, relativeSpeed: make([]float64, len(y.Kinds))}
}
