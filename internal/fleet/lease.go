package fleet

import (
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/money"
)

// LeaseState is the state of a lease.
type LeaseState string

// The states of a lease.
const (
	LeaseRequested LeaseState = "requested" // stored; the provider is being called
	LeaseBooting   LeaseState = "booting"   // the provider has started a machine; its agent has not joined yet
	LeaseActive    LeaseState = "active"    // its node has joined
	LeaseReleasing LeaseState = "releasing" // being released; nothing may use it any more
	LeaseEnded     LeaseState = "ended"     // the machine no longer exists
	LeaseRefused   LeaseState = "refused"   // the provider refused, e.g. for lack of capacity
)

// LeaseEvent is something that happens to a lease.
type LeaseEvent string

// The events of a lease.
const (
	LeaseGrant   LeaseEvent = "grant"   // the provider started a machine
	LeaseRefuse  LeaseEvent = "refuse"  // the provider definitely refused
	LeaseJoin    LeaseEvent = "join"    // the machine's agent joined
	LeaseRelease LeaseEvent = "release" // it is no longer needed
	LeaseGone    LeaseEvent = "gone"    // the provider has no such machine, or no longer has it
)

// leaseTransitions is the life cycle of a lease. The join of a machine may arrive before
// the provider's answer to the call that requested it.
var leaseTransitions = map[LeaseState]map[LeaseEvent]LeaseState{
	LeaseRequested: {
		LeaseGrant:   LeaseBooting,
		LeaseRefuse:  LeaseRefused,
		LeaseJoin:    LeaseActive,
		LeaseRelease: LeaseReleasing,
	},
	LeaseBooting:   {LeaseJoin: LeaseActive, LeaseRelease: LeaseReleasing, LeaseGone: LeaseEnded},
	LeaseActive:    {LeaseGrant: LeaseActive, LeaseRelease: LeaseReleasing, LeaseGone: LeaseEnded},
	LeaseReleasing: {LeaseGrant: LeaseReleasing, LeaseRefuse: LeaseEnded, LeaseGone: LeaseEnded},
	LeaseEnded:     {},
	LeaseRefused:   {},
}

// LeaseStates lists every state of a lease.
func LeaseStates() []LeaseState {
	return []LeaseState{LeaseRequested, LeaseBooting, LeaseActive, LeaseReleasing, LeaseEnded, LeaseRefused}
}

// SpotReclaimed is the reason of a lease whose spot instance the provider took away. The Prometheus metrics tell such
// losses from others by it.
const SpotReclaimed = "spot instance reclaimed by the provider"

// LeaseEvents lists every event of a lease.
func LeaseEvents() []LeaseEvent {
	return []LeaseEvent{LeaseGrant, LeaseRefuse, LeaseJoin, LeaseRelease, LeaseGone}
}

// After returns the state after an event, or a conflict if it cannot happen.
func (s LeaseState) After(ev LeaseEvent) (LeaseState, error) {
	to, ok := leaseTransitions[s][ev]
	if !ok {
		return s, fault.New(fault.Conflict, "lease_state", "a lease in state %s cannot %s", s, ev)
	}

	return to, nil
}

// Final reports whether the lease has ended.
func (s LeaseState) Final() bool { return s == LeaseEnded || s == LeaseRefused }

// Lease is the claim on a provisioned node. It is stored before the provider is called,
// and every provisioned machine has one.
type Lease struct {
	ID      id.Lease
	Seq     uint64
	Offer   Offer // as it was when it was taken
	State   LeaseState
	Since   time.Time // in this state since
	Reason  string    // why it was provisioned, and then why it is in this state
	Job     id.Job    // it was provisioned for, "" if for none
	Owner   id.User   // who pays until a job uses it
	Project id.Project
	Gang    string // leases that are useful only together share this; "" for a single one
	// Faster says that it was provisioned for a job that was running and too slow where it was.
	Faster bool    `json:",omitempty"`
	By     id.User `json:",omitempty"` // who accepted that it is provisioned; "" if a plan decided it

	Requested time.Time
	Granted   time.Time // the provider started the machine
	Joined    time.Time
	Ends      time.Time // not renewed, the node shuts itself down then
	Released  time.Time // it was released
	Ended     time.Time

	Instance string // the provider's name for the machine, "" until it is known
	Node     id.Node
	Token    id.Token // with which the machine joins
	// Billed is what the provider reported to have charged; negative if it reports nothing.
	Billed money.Amount
	// Stray says that the machine was found without a lease.
	Stray bool
}

// Live reports whether the lease has or may get a machine, and is not being released.
func (l *Lease) Live() bool {
	return l.State == LeaseRequested || l.State == LeaseBooting || l.State == LeaseActive
}

// PaidTime returns how long the machine has been paid for by now: since the provider started it.
func (l *Lease) PaidTime(now time.Time) time.Duration {
	from := l.Granted
	if from.IsZero() {
		return 0
	}

	if !l.Ended.IsZero() && l.Ended.Before(now) {
		now = l.Ended
	}

	return max(now.Sub(from), 0)
}
