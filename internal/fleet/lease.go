package fleet

import (
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/id"
)

// LeaseState is where a lease stands.
type LeaseState string

// The states of a lease.
const (
	LeaseAsked     LeaseState = "asked"     // written down; its provider is being asked for a machine
	LeaseBooting   LeaseState = "booting"   // the provider has given one; its agent has not joined yet
	LeaseActive    LeaseState = "active"    // its node is in the yard
	LeaseReturning LeaseState = "returning" // is being given back; nothing may use it any more
	LeaseEnded     LeaseState = "ended"     // the provider no longer has the machine
	LeaseRefused   LeaseState = "refused"   // the provider has none to give
)

// LeaseEvent is something that happens to a lease.
type LeaseEvent string

// The events of a lease.
const (
	LeaseGrant  LeaseEvent = "grant"  // the provider gave a machine
	LeaseRefuse LeaseEvent = "refuse" // the provider said no, for certain
	LeaseJoin   LeaseEvent = "join"   // the machine's agent joined
	LeaseReturn LeaseEvent = "return" // it is not wanted any more
	LeaseGone   LeaseEvent = "gone"   // the provider has no such machine, or has it no more
)

// The join of a machine may be heard of before the answer to the call that ordered it.
var leaseTransitions = map[LeaseState]map[LeaseEvent]LeaseState{
	LeaseAsked:     {LeaseGrant: LeaseBooting, LeaseRefuse: LeaseRefused, LeaseJoin: LeaseActive, LeaseReturn: LeaseReturning},
	LeaseBooting:   {LeaseJoin: LeaseActive, LeaseReturn: LeaseReturning, LeaseGone: LeaseEnded},
	LeaseActive:    {LeaseGrant: LeaseActive, LeaseReturn: LeaseReturning, LeaseGone: LeaseEnded},
	LeaseReturning: {LeaseGrant: LeaseReturning, LeaseRefuse: LeaseEnded, LeaseGone: LeaseEnded},
	LeaseEnded:     {},
	LeaseRefused:   {},
}

// LeaseStates lists every state of a lease.
func LeaseStates() []LeaseState {
	return []LeaseState{LeaseAsked, LeaseBooting, LeaseActive, LeaseReturning, LeaseEnded, LeaseRefused}
}

// LeaseEvents lists every event of a lease.
func LeaseEvents() []LeaseEvent {
	return []LeaseEvent{LeaseGrant, LeaseRefuse, LeaseJoin, LeaseReturn, LeaseGone}
}

// After returns the state after an event, or a conflict if it cannot happen.
func (s LeaseState) After(ev LeaseEvent) (LeaseState, error) {
	to, ok := leaseTransitions[s][ev]
	if !ok {
		return s, fault.New(fault.Conflict, "lease_state", "a lease that is %s cannot %s", s, ev)
	}
	return to, nil
}

// Final reports whether nothing can happen to the lease any more.
func (s LeaseState) Final() bool { return s == LeaseEnded || s == LeaseRefused }

// Lease is the yard's hold on a hired node. It is written before the provider is
// asked, and everything that was hired has one.
type Lease struct {
	ID      id.Lease
	Seq     uint64
	Offer   Offer // as it was when it was taken
	State   LeaseState
	Since   time.Time // in this state since
	Reason  string    // why it was hired, and then why it is in this state
	Job     id.Job    // it was hired for, "" if for none
	Owner   id.User   // who pays until a job uses it
	Project id.Project
	Gang    string // leases that are of use only together share this; "" for one of its own

	Asked    time.Time
	Granted  time.Time // the provider gave the machine
	Joined   time.Time
	Ends     time.Time // not renewed, the node shuts itself down then
	Returned time.Time // it was wanted no more
	Ended    time.Time

	Instance string // the provider's name for the machine, "" until it is known
	Node     id.Node
	Token    id.Token // with which the machine joins
	// Billed is what the provider said that it charged, where it says so; negative if it did not.
	Billed float64
	// Stray says that a machine was found that no lease knew of.
	Stray bool
}

// Live reports whether the lease holds a machine or may come to hold one, and is wanted.
func (l *Lease) Live() bool {
	return l.State == LeaseAsked || l.State == LeaseBooting || l.State == LeaseActive
}

// Kept returns how long the machine was paid for by now: since it was given, or
// asked for if that is not known.
func (l *Lease) Kept(now time.Time) time.Duration {
	from := l.Granted
	if from.IsZero() {
		return 0
	}
	if !l.Ended.IsZero() && l.Ended.Before(now) {
		now = l.Ended
	}
	return max(now.Sub(from), 0)
}
