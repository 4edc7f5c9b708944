// Package place decides what runs where.
//
// A policy is a function from a view of the yard to a plan. It does no I/O,
// starts no goroutine, reads no clock and changes nothing in the view: the
// time is in the view, and what it wants to try it tries on a copy. That is
// what lets the server and the simulator run the same code. Every plan passes
// Check before the yardmaster applies it, so a policy may be wrong about what
// is best but can never overbook a node.
package place

import (
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/queue"
)

// Policy turns a view into a plan. It cannot fail: with nothing to do it
// returns an empty plan.
type Policy interface {
	Name() string
	// Revises reports whether the policy also changes what runs. One that does is
	// asked whenever something changes, others only while a job waits.
	Revises() bool
	Plan(v *View) Plan
}

// Searcher is a policy that looks for a better plan as long as it has time.
type Searcher interface {
	Policy
	// Search is Plan with a limit on its time: once enough reports true it answers with
	// the best that it has. A nil enough sets no limit, which makes it Plan.
	Search(v *View, enough func() bool) Plan
	// Slow reports whether a search may take so long that nobody should wait for it.
	// The server then runs it beside its loop, on a Clone of the view. Such a policy
	// is asked for one plan at a time, and is no Adviser.
	Slow() bool
}

// Within asks a policy for a plan. Enough ends the search of a policy that searches;
// nil sets no limit.
func Within(p Policy, v *View, enough func() bool) Plan {
	if s, ok := p.(Searcher); ok {
		return s.Search(v, enough)
	}

	return p.Plan(v)
}

// Plan is what a policy wants. The stops come first: a start may use what they
// free, and a job that is stopped may be started again with other seats, which
// is how a job moves, grows and shrinks.
type Plan struct {
	Stops      []Stop
	Starts     []Start
	Provisions []Provision
	// Held is the first job in line that could not be started, and the nodes
	// that are kept for it. Nil if every job was started or none is held for.
	Reservation *Reservation
	// Again is when the policy wants to be asked again although nothing has
	// happened. Zero if it does not.
	WakeAt time.Time
}

// Stop takes a running job off its nodes. It saves itself and goes back into
// the line, unless the same plan starts it again.
type Stop struct {
	Running *Running
	Reason  string // why, in words a researcher understands
}

// Start puts a job onto nodes: a waiting one, or a running one that the same plan stops.
type Start struct {
	Item        *queue.Item
	Allocations []Allocation // in rank order
	Reason      string       // why here, in words a researcher understands
	// Saves is the money that this costs less than what the job would have had
	// instead, which Instead names. 0 if nothing else came into question.
	Saves   float64
	Instead string
}

// Provision asks for on-demand nodes for a waiting job. All of them, or none.
type Provision struct {
	Item   *queue.Item
	Offer  string // by its name
	Count  int
	Cost   float64 // expected, in money, until the job has ended
	Reason string
}

// Seat is one rank's place.
type Allocation struct {
	Node  id.Node
	GPUs  uint64
	Share float64 // of the one GPU, if the job can do with a share of it; 0 for whole GPUs
}

// Adviser is a policy that can tell, for one job, where it could run, what that
// would cost and when it would be done.
type Adviser interface {
	Options(v *View, it *queue.Item) []Option
}

// Option is one way to run a job. The first of a list is what the policy would do.
type Option struct {
	Class    fleet.Class
	Nodes    []id.Node // there, or that it would wait for
	Offer    string    // to be provisioned, "" if nothing is
	Count    int       // of nodes
	What     string    // what it would run on, in words: 2x A100 on n1
	Start    time.Time // zero if unknown
	Finish   time.Time // expected; zero if unknown
	Earliest time.Time // and the interval in which it lies, four times out of five
	Latest   time.Time
	Cost     float64 // expected, in money
	CostMost float64 // at the late end of the interval
	Basis    string  // what the times rest on: "your expect", "speed in the job file", "38 earlier jobs", "nothing is known"
	Verdict  string  // why it is taken, or why it is not
	Barred   string  // the limit that forbids it, "" if none does
}

// Reservation keeps nodes for a job that cannot start yet.
type Reservation struct {
	Job   id.Job
	Nodes []id.Node
	At    time.Time // expected start; zero if run times are unknown
}
