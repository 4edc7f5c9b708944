// Package inbox holds the noun question: something about a job that a person may decide, with the options there are.
//
// The yardmaster asks questions and carries out the options that are accepted; the inbox of a person holds the open
// questions about their jobs. What the yard has done by itself is there too, as a notice: nothing waits for an answer
// to it. The package is pure and decides nothing.
package inbox

import (
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/money"
)

// Kind is what a question is about. A job has at most one open question of a kind.
type Kind string

// The kinds.
const (
	OutOfMemory Kind = "out_of_memory" // no node that the job may use has more memory
	RetriesOver Kind = "retries_over"  // it failed too often for a cause that a person can remove
	OverBudget  Kind = "over_budget"   // its own budget is used up
	TooSlow     Kind = "too_slow"      // it takes much longer than expected, or than its deadline allows
	MoreMemory  Kind = "more_memory"   // notice: it was restarted with more memory
	Preempted   Kind = "preempted"     // notice: it was stopped for other work and queued again
)

// Kinds lists every kind.
func Kinds() []Kind {
	return []Kind{OutOfMemory, RetriesOver, OverBudget, TooSlow, MoreMemory, Preempted}
}

// Notice reports whether it tells what the yard has done by itself, so that nothing waits for an answer.
func (k Kind) Notice() bool { return k == MoreMemory || k == Preempted }

// Holds reports whether the job waits for the answer: it is paused as long as the question is open.
func (k Kind) Holds() bool { return k == OutOfMemory || k == RetriesOver || k == OverBudget }

// Question is something that the owner of a job, or an admin, may decide.
type Question struct {
	ID       id.Question
	Seq      uint64 // number of the last change
	Kind     Kind
	Job      id.Job
	Owner    id.User // of the job
	State    State
	Sentence string   // what has happened
	Options  []Option // the recommended one first
	Asked    time.Time
	Since    time.Time // in this state since
	Expires  time.Time // when it ends without an answer; zero if it does not
	Unless   string    // what happens if nobody accepts an option, as a clause; "" if nothing does
	By       string    // who accepted or dismissed it
	Chosen   string    // option that was accepted
	Reason   string    // why it is not open any more
}

// Option is one answer to a question.
type Option struct {
	ID       string        `json:"id"` // within its question
	Sentence string        `json:"sentence"`
	Cost     *money.Amount `json:"cost,omitempty"`    // expected, from now to the end of the job; nil if unknown
	End      time.Time     `json:"end,omitzero"`      // expected end of the job; zero if unknown
	EndLow   time.Time     `json:"end_low,omitzero"`  // 80 % prediction interval
	EndHigh  time.Time     `json:"end_high,omitzero"` //
	Action   Action        `json:"action"`            // what is done if it is accepted
}

// Verb is what is done with a job.
type Verb string

// The verbs.
const (
	Requeue Verb = "requeue" // amend it and run it again, from its last checkpoint; a run is stopped for that
	Amend   Verb = "amend"   // change what it asks for; a run continues
	Move    Verb = "move"    // amend it and move it to other nodes, with its checkpoint
	Keep    Verb = "keep"    // leave it as it is
	Pause   Verb = "pause"
	Cancel  Verb = "cancel"
)

// Action is what the yardmaster does when an option is accepted.
type Action struct {
	Verb  Verb           `json:"verb"`
	Floor job.Floor      `json:"floor,omitzero"` // least memory that the next run gets
	Amend *job.Amendment `json:"amend,omitempty"`
	Where *Target        `json:"where,omitempty"` // it moves to
}

// Target is where a running job moves to: nodes of the yard, or nodes that are provisioned for it.
type Target struct {
	Nodes []id.Node `json:"nodes,omitempty"`
	Offer string    `json:"offer,omitempty"`
	Count int       `json:"count,omitempty"` // of nodes that are provisioned
	GPUs  int       `json:"gpus"`            // on each node
}

// Option returns an option by its id, nil if there is none.
func (q *Question) Option(name string) *Option {
	for i := range q.Options {
		if q.Options[i].ID == name {
			return &q.Options[i]
		}
	}

	return nil
}

// State is the state of a question. It changes only by the table below.
type State string

// The states.
const (
	Open      State = "open"
	Accepted  State = "accepted"  // someone chose an option, and it was carried out
	Dismissed State = "dismissed" // someone wants none of the options
	Expired   State = "expired"   // nobody answered in time
	Withdrawn State = "withdrawn" // it no longer matters: the situation has changed
)

// States lists every state.
func States() []State { return []State{Open, Accepted, Dismissed, Expired, Withdrawn} }

// Event is something that happens to a question.
type Event string

// The events.
const (
	Accept   Event = "accept"
	Dismiss  Event = "dismiss"
	Expire   Event = "expire"
	Withdraw Event = "withdraw"
)

// Events lists every event.
func Events() []Event { return []Event{Accept, Dismiss, Expire, Withdraw} }

// transitions is the life cycle of a question. Any other pair is an error.
var transitions = map[State]map[Event]State{
	Open:      {Accept: Accepted, Dismiss: Dismissed, Expire: Expired, Withdraw: Withdrawn},
	Accepted:  {},
	Dismissed: {},
	Expired:   {},
	Withdrawn: {},
}

// Final reports whether a question in this state can change no more.
func (s State) Final() bool { return len(transitions[s]) == 0 }

// After returns the state after an event, or a conflict that names the question if the event cannot happen.
func (q *Question) After(ev Event) (State, error) {
	to, ok := transitions[q.State][ev]
	if !ok {
		return q.State, q.Closed()
	}

	return to, nil
}

// Closed is the error for an answer to a question that is not open any more.
func (q *Question) Closed() error {
	err := fault.New(fault.Conflict, "question_state", "question %s is %s: %s", q.ID, q.State, q.Reason)
	return err.WithRemedy("trainyard inbox lists the open ones")
}
