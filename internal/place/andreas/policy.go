// Package andreas plans by money: what nodes cost while they are used, and what
// being late costs.
//
// It holds the policy andreas, which the server and the simulator ask by that
// name, and the published rules that it is measured against: andreas-published,
// andreas-fifo, andreas-edf and andreas-ps. All take the model of the ANDREAS line
// of papers: every job may run on several kinds and numbers of GPUs, each with a
// price and a time; a node's price depends on how many of its GPUs are in use; a
// job past its deadline costs money for every second. What the published model
// leaves out is taken into account by andreas alone: what stopping and starting again
// costs, nodes that must be switched on first, memory and place, jobs on several
// nodes, jobs that may end early and jobs that share a GPU.
//
// A job that was measured on a share of a GPU may get that too, and shares the GPU with
// others. The policy does not provision nodes. Where nothing is known of the jobs (no
// deadline, no measured speed) it does what fifo does.
//
// The files fall into three groups. The model, which all rules use: yard.go, task.go,
// index.go (free GPUs by node), allocate.go and relabel.go (which GPUs), plan.go. Ours:
// policy.go, cost.go, survival.go, greedy.go, search.go, relink.go, consolidate.go,
// reason.go. The published rules: published.go and published_orders.go.
package andreas

import (
	"time"

	"trainyard/internal/place"
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
	// Margin is by how much what is won by stopping a job must exceed what it costs
	// to start it again.
	Margin float64
	// Dare is how much time to spare a job must have, in times of what is left of it,
	// to wait for GPUs that suit it better while others are free.
	Dare float64
	// Restart is what stopping a job and starting it again takes at least, whatever
	// is known of it.
	Restart time.Duration
	// Rest is how long a job is left alone after it was started, in times of what
	// starting it again takes.
	Rest float64
	// Late is what being late costs a job with a deadline and no price for missing
	// it, in prices of its GPUs. Wait is the same for one without a deadline, from
	// the moment of its submission; it doubles with every Patience.
	Late, Wait float64
	Patience   time.Duration
	// Survival is the share of jobs that still run when they have done 1/n, 2/n, …
	// n/n of their work, falling. Nil means that all run to their end.
	Survival []float64
}

// Defaults are the parameters of the policy as it is registered.
func Defaults() Options {
	return Options{
		Search: Local, Rounds: 10, Hedge: 0.03, Ahead: 0.3, Crowd: 2, Dare: 0.1, Margin: 1.25,
		Restart: 30 * time.Second, Rest: 2,
		Late: 10, Wait: 1, Patience: 12 * time.Hour,
	}
}

// Policy is the policy andreas.
type Policy struct{ o Options }

var _, _ place.Searcher = (*Policy)(nil), (*Published)(nil)

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
	y := newYard(v, &p.o, false)
	y.enough = enough
	if !y.hasEstimates {
		return ordered.FIFO{}.Plan(v)
	}

	y.listCandidates()
	y.price()
	y.greedy()
	y.improve()
	y.allocate()
	plan := y.plan(y.reason)
	plan.WakeAt = y.wakeAt()

	return plan
}
