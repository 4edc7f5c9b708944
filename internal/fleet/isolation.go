package fleet

import (
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// Isolation is what separates the jobs of different users on a node.
type Isolation string

// The kinds of isolation.
const (
	IsolationUsers Isolation = "users" // each user's jobs run under a user id of their own
	IsolationNone  Isolation = "none"  // all jobs run under the agent's user id
)

// Isolations lists every kind of isolation.
func Isolations() []Isolation { return []Isolation{IsolationUsers, IsolationNone} }

// RequiresSingleUser reports whether the node may run jobs of one user at a time only: nothing separates jobs
// there, and its operator has not allowed to mix users. An agent of an earlier version does not say, and isolates
// nothing.
func (inv *Inventory) RequiresSingleUser() bool {
	return inv.Isolation != IsolationUsers && !inv.MixUsers
}

// Tenant returns the user to whom a node that runs jobs of one user at a time is dedicated, "" if it is empty, or if it
// may run jobs of several users.
func (r *Room) Tenant() id.User {
	if len(r.Holds) == 0 || !r.Node.Inventory.SingleUser {
		return ""
	}

	return r.Holds[0].Owner
}

// DedicatedToOther reports whether the node is reserved for another user, or runs jobs of one user at a time and
// has one of another user. A node that came to have jobs of several users, before the rule applied to it, is
// nobody's until only one user is left.
func (r *Room) DedicatedToOther(owner id.User) bool {
	if r.ReservedForOther(owner) {
		return true
	}

	if !r.Node.Inventory.SingleUser {
		return false
	}

	for i := range r.Holds {
		if r.Holds[i].Owner != owner {
			return true
		}
	}

	return false
}

// ClosesBefore reports whether the node is reserved for another user before a run of a length would have ended.
func (r *Room) ClosesBefore(length job.Duration, owner id.User) bool {
	u := r.Node.Upcoming
	return u != nil && u.Reservation.User != owner && length > u.Longest
}

// ReservedForOther reports whether the node is reserved for another user.
func (r *Room) ReservedForOther(owner id.User) bool {
	return r.Node.Reserved != nil && r.Node.Reserved.User != owner
}
