package nodes

import (
	"fmt"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/yardmaster/batch"
)

// certificateOverlap is for how long certificates are still accepted after the node has shown a newer one: requests
// and uploads that began before end well.
const certificateOverlap = 5 * time.Minute

// Show records which certificate a node shows. The first use of a newer one is what ends the older ones: an answer to a
// renewal that was lost costs the node nothing.
func (r *Nodes) Show(now time.Time, n *Node, c *fleet.Certificate) {
	if c == nil || n.Identity.Certificate != "" && !c.Issued.After(n.Identity.Issued) {
		return
	}

	n.Identity.Certificate, n.Identity.Issued, n.Identity.NextKey = c.Fingerprint, c.Issued, ""
	n.Identity.Overlap = now.Add(certificateOverlap)
	n.Key = c.Key
	r.change(n)
}

// Renewed records that a node was given a new certificate in exchange for one.
func (r *Nodes) Renewed(now time.Time, n *Node, old, next *fleet.Certificate) {
	n.Identity.NextKey = next.Key
	r.change(n)

	reason := "its certificate was renewed for the same key"
	if old.Key != next.Key {
		reason = "its certificate was renewed for a new key, signed by the old one"
	}

	r.feed.Add(now, batch.Event{
		Kind: "node.renewed", Actor: "node/" + string(n.ID), Node: n.ID, From: short(old.Fingerprint),
		To: short(next.Fingerprint), Reason: reason,
	})
}

// short is enough of a fingerprint to tell it from others.
func short(fingerprint string) string { return fingerprint[:min(len(fingerprint), 16)] }

// RaiseAlarm keeps new jobs off a node whose identity somebody else may use, until an admin accepts it.
func (r *Nodes) RaiseAlarm(now time.Time, n *Node, reason string) {
	if n.Identity.Alarm != "" {
		return
	}

	if n.Identity.Problem(&n.Inventory) == nil {
		n.Identity.Reported = n.Inventory.Problem
	}

	n.Identity.Alarm = reason
	n.Inventory.Problem = n.Identity.Problem(&n.Inventory)
	r.change(n)

	r.feed.Add(now, batch.Event{
		Kind: "node.identity_alarm", Actor: "node/" + string(n.ID), Node: n.ID, Reason: reason + "; it takes no new jobs",
	})
}

// Accept accepts what a node declares and that its identity is its own. The answer is an error if nothing waits for
// that.
func (r *Nodes) Accept(now time.Time, n *Node, by id.User) error {
	if n.Identity.Unaccepted(&n.Inventory) == nil {
		return fault.New(fault.Conflict, "node_accepted", "nothing of node %s waits to be accepted", n.ID)
	}

	before, after := "", n.Inventory.Hardware()
	if n.Identity.Accepted != nil {
		before = n.Identity.Accepted.String()
	}

	reason := fmt.Sprintf("accepted by %s", by)
	if n.Identity.Alarm != "" {
		reason += ", after: " + n.Identity.Alarm
	}

	n.Identity.Accepted, n.Identity.Alarm = &after, ""
	n.Inventory.Problem = n.Identity.Problem(&n.Inventory)
	if n.Inventory.Problem == nil {
		n.Inventory.Problem, n.Identity.Reported = n.Identity.Reported, nil
	}

	n.refused = nil
	r.change(n)
	r.feed.Add(now, batch.Event{
		Kind: "node.accepted", Actor: string(by), Node: n.ID, From: before, To: after.String(), Reason: reason,
	})

	return nil
}

// vet returns what a node's agent found, with the problem that it declares more than was accepted, or that its identity
// may be used by somebody else, in place of its own.
func (r *Nodes) vet(n *Node, found *fleet.Inventory) *fleet.Inventory {
	if r.TrustInventory {
		hardware := found.Hardware()
		n.Identity.Accepted = &hardware
	}

	problem := n.Identity.Problem(found)
	if problem == nil {
		n.Identity.Reported = nil
		return found
	}

	inv := *found
	n.Identity.Reported, inv.Problem = found.Problem, problem

	return &inv
}

// A node may declare something else once in changeEvery, and changeBurst of these at once: each is stored, and most are
// entries of the feed.
const (
	changeEvery = time.Second
	changeBurst = 60
)

// CheckPace refuses the inventory of a node that has declared something else too often.
func (r *Nodes) CheckPace(now time.Time, n *Node) error {
	if n.paid.Sub(now) < changeBurst*changeEvery {
		return nil
	}

	return fault.New(fault.OverLimit, "too_often", "node %s declares other hardware too often", n.ID).
		WithRemedy("report it again in a few seconds")
}

func (n *Node) pay(now time.Time) {
	if n.paid.Before(now) {
		n.paid = now
	}

	n.paid = n.paid.Add(changeEvery)
}
