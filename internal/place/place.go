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

// View is what a policy sees.
type View struct {
	Now     time.Time
	Rooms   []fleet.Room // sorted by the nodes' names
	Bands   []fleet.Band // the rooms in the order in which they are to be filled; nil if nobody arranged them
	Line    *queue.Line
	Running []*Running            // jobs that hold nodes, by order of submission
	Usage   func(id.User) float64 // decayed use in GPU-seconds
	Tariff  *fleet.Tariff         // what nodes cost; nil if nobody told
	// Enough reports that a policy that searches has had its time and must
	// answer with the best it has. Nil means that it is not limited by time.
	Enough func() bool
}

// Policy turns a view into a plan. It cannot fail: with nothing to do it
// returns an empty plan.
type Policy interface {
	Name() string
	// Revises reports whether the policy also changes what runs. One that does is
	// asked whenever something changes, others only while a job waits.
	Revises() bool
	Plan(v *View) Plan
}

// Plan is what a policy wants. The stops come first: a start may use what they
// free, and a job that is stopped may be started again with other seats, which
// is how a job moves, grows and shrinks.
type Plan struct {
	Stops  []Stop
	Starts []Start
	// Held is the first job in line that could not be started, and the nodes
	// that are kept for it. Nil if every job was started or none is held for.
	Held *Reservation
	// Again is when the policy wants to be asked again although nothing has
	// happened. Zero if it does not.
	Again time.Time
}

// Stop takes a running job off its nodes. It saves itself and goes back into
// the line, unless the same plan starts it again.
type Stop struct {
	Running *Running
	Reason  string // why, in words a researcher understands
}

// Start puts a job onto nodes: a waiting one, or a running one that the same plan stops.
type Start struct {
	Item   *queue.Item
	Seats  []Seat // in rank order
	Reason string // why here, in words a researcher understands
}

// Seat is one rank's place.
type Seat struct {
	Node  id.Node
	GPUs  uint64
	Share float64 // of the one GPU, if the job can do with a share of it; 0 for whole GPUs
}

// Reservation keeps nodes for a job that cannot start yet.
type Reservation struct {
	Job   id.Job
	Nodes []id.Node
	At    time.Time // expected start; zero if run times are unknown
}
