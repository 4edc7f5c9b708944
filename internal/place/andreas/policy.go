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
// A job may also have a configuration on an offer: nodes that are provisioned for it, which it
// has after their boot and for their rent. It is taken if that and being late cost less than
// any node of the yard, now or when one will be free.
//
// If no job has a deadline or a measured speed the policy does what fifo does.
package andreas

import (
	"trainyard/internal/place"
	"trainyard/internal/place/andreas/problem"
	"trainyard/internal/place/ordered"
)

// Search selects how the policy improves on its first solution.
type Search string

// The searches; each includes what the ones before it find.
const (
	Greedy Search = "greedy" // the first solution
	Local  Search = "local"  // tasks displace each other, starting from the first solution
	Random Search = "random" // the first solution repeatedly, with a random order
	Relink Search = "relink" // both, and then paths from the best solution to the others
)

// Options are the parameters of the policy.
type Options struct {
	problem.Assumptions
	// Search improves on the first solution. Rounds is how many attempts it makes at
	// most; 0 means as many as its time allows, or a hundred if it has no limit.
	Search Search
	Rounds int
	Seed   uint64
	// Hedge is the fraction of its remaining time by which a job is kept ahead of its deadline
	// where that costs little, as a reserve against delays.
	Hedge float64
	// Ahead is the look-ahead for the cost of waiting, as a multiple of the time that all present
	// work would take.
	Ahead float64
	// Crowd says when the yard counts as full, for the question whether a waiting job could have
	// more GPUs later: at 1 when each job has its most efficient number of GPUs, at 2 when there
	// are still twice as many GPUs as that.
	Crowd float64
	// Dare is how much spare time a job must have, as a multiple of its remaining time, to wait for
	// GPUs that suit it better while others are free.
	Dare float64
	// Survival is the fraction of jobs that still run after 1/n, 2/n, … n/n of their work; it does
	// not rise. Nil means that all jobs run to their end.
	Survival []float64
}

// Defaults returns the parameters with which the policy is registered.
func Defaults() Options {
	return Options{
		Assumptions: problem.Standard(),
		Search:      Local, Rounds: 10, Hedge: 0.03, Ahead: 0.3, Crowd: 2, Dare: 0.1,
	}
}

// Policy is the policy andreas.
type Policy struct{ o Options }

var (
	_ place.Searcher    = (*Policy)(nil)
	_ place.Provisioner = (*Policy)(nil)
)

// New returns the policy with these parameters.
func New(o Options) *Policy { return &Policy{o} }

// Name returns the name of the policy in the configuration.
func (*Policy) Name() string { return "andreas" }

// Revises reports that the policy stops, moves and resizes running jobs where that saves money.
func (*Policy) Revises() bool { return true }

// Shares reports that jobs share GPUs: those that ask for a part of one, and those that were measured on one.
func (*Policy) Shares() bool { return true }

// Plan returns the cheapest plan that the search finds.
func (p *Policy) Plan(v *place.View) place.Plan { return p.Search(v, nil) }

// Slow reports that the server plans in the background instead of waiting for the policy.
func (*Policy) Slow() bool { return true }

// Provisions reports that the policy decides itself what to provision, unless it does what fifo does.
func (p *Policy) Provisions(v *place.View) bool {
	return problem.HasEstimates(v, &p.o.Assumptions)
}

// Search is Plan with a time limit: it returns the cheapest plan found until enough is true.
func (p *Policy) Search(v *place.View, enough func() bool) place.Plan {
	y := newPlanner(v, &p.o)
	y.enough = enough
	if !y.HasEstimates {
		return ordered.FIFO{}.Plan(v)
	}

	y.ListCandidates()
	y.price()
	y.ListOffers()
	y.greedy()
	y.improve()
	y.leaveOwn()
	y.allocate()
	plan := y.Plan(y.reason)
	plan.Waits = y.waits()
	plan.WakeAt = y.wakeAt()
	f, claims := newFreeing(y), y.claimsOf(&plan)
	y.addCounterfactuals(&plan, f, claims)
	y.provision(&plan, f, claims)

	return plan
}

// planner is the yard with the values that the policy computes for it.
type planner struct {
	*problem.Yard
	o             *Options
	enough        func() bool // reports that the time is up; nil if there is no limit
	capacity      float64     // GPUs that may be assigned, in GPUs of the best kind
	relativeSpeed []float64   // of one GPU of each kind, compared with the best kind
	lookahead     float64     // in seconds
	meanDuration  float64     // of the jobs where they use their GPUs best, in seconds
	occupancy     float64     // how full the yard is, 0 to 1
	heap          []step
}

// newPlanner returns a planner for a view.
func newPlanner(v *place.View, o *Options) *planner {
	y := problem.NewYard(v, &o.Assumptions, false)
	return &planner{Yard: y, o: o, relativeSpeed: make([]float64, len(y.Kinds))}
}
