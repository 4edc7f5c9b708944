package nodes

import (
	"fmt"
	"slices"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/yardmaster/batch"
)

// Report records a report of a node: that it is alive, which of its GPUs are used by
// others, and its inventory if that changed.
func (r *Nodes) Report(now time.Time, n *Node, foreign []int, found *fleet.Inventory) {
	first := !n.Reported

	n.Seen, n.Reported = now, true
	if n.State != fleet.Ready {
		r.Move(now, n, fleet.EventReport, "node/"+string(n.ID), "its agent reports again")
	}

	if set := fleet.Mask(foreign); set != n.Foreign {
		n.Foreign = set
		r.change(n)
	}

	if found != nil {
		r.setInventory(now, n, found)
	}

	if first {
		r.CheckTwins(now, n, false) // of an earlier version, which did not look
	}
}

// Abilities is what a node's agent can do that those of earlier versions could not.
type Abilities struct {
	Restores bool // checkpoints that other nodes wrote
	Suspends bool // programs in place
	Secrets  bool // are passed on to programs
}

// SetAbilities records what a node's agent can do: it says so in every report, its inventory comes only after a change.
func (r *Nodes) SetAbilities(n *Node, can Abilities) {
	inv := &n.Inventory
	if (Abilities{inv.Restores, inv.Suspends, inv.Secrets}) != can {
		inv.Restores, inv.Suspends, inv.Secrets = can.Restores, can.Suspends, can.Secrets
		r.change(n)
	}
}

// setInventory records what a node's agent found, with an event for each GPU that broke or
// recovered. The power draw of GPUs and what the agent does change often and make no event.
func (r *Nodes) setInventory(now time.Time, n *Node, found *fleet.Inventory) {
	old := n.Inventory
	found = rememberShared(r.vet(n, found), &old)
	same := sameInventory(&old, found)
	if same && slices.Equal(old.Draw, found.Draw) && old.Activity == found.Activity {
		return
	}

	n.Inventory = *found
	n.pay(now)
	r.change(n)

	if same {
		return
	}

	defer r.reindex(now, n)

	hasEvent := r.noteProblem(now, n, old.Problem)
	hasEvent = r.noteShared(now, n, &old) || hasEvent

	for i := range found.GPUs {
		g := &found.GPUs[i]
		e := batch.Event{
			Kind:   "gpu.error",
			Actor:  "node/" + string(n.ID),
			Node:   n.ID,
			To:     g.UUID,
			Reason: fmt.Sprintf("GPU %d is out of service: %s", g.Index, g.Error),
		}

		was := old.GPU(g.Index)
		switch {
		case was == nil || was.Error == g.Error:
			continue
		case g.Error == "":
			e.Kind, e.Reason = "gpu.recovered", fmt.Sprintf("GPU %d is back in service; the error was: %s", g.Index, was.Error)
		}

		r.feed.Add(now, e)
		hasEvent = true
	}

	if !hasEvent {
		r.feed.Add(
			now,
			batch.Event{
				Kind:   "node.inventory",
				Actor:  "node/" + string(n.ID),
				Node:   n.ID,
				Reason: "its hardware or agent changed",
			},
		)
	}
}

func sameInventory(a, b *fleet.Inventory) bool {
	x, z := *a, *b
	x.GPUs, z.GPUs = nil, nil
	x.Disk, z.Disk = 0, 0 // free disk space changes all the time and no decision depends on it

	return x.Address == z.Address && slices.Equal(x.Addresses, z.Addresses) && x.Topology == z.Topology &&
		slices.Equal(x.Labels, z.Labels) && x.OS == z.OS && x.Kernel == z.Kernel && x.Arch == z.Arch &&
		x.Version == z.Version &&
		x.CPUs == z.CPUs && x.Memory == z.Memory && x.Limits == z.Limits && x.Shares == z.Shares && x.MPS == z.MPS &&
		slices.Equal(a.GPUs, b.GPUs) &&
		x.Isolation == z.Isolation && x.MixUsers == z.MixUsers && x.SingleUser == z.SingleUser && x.Metadata == z.Metadata &&
		x.Restores == z.Restores && x.Suspends == z.Suspends && x.Secrets == z.Secrets && same(x.Problem, z.Problem) &&
		slices.Equal(x.Shared, z.Shared) && same(x.Snapshots, z.Snapshots) &&
		same(x.Containers, z.Containers) && same(x.Environments, z.Environments)
}

// rememberShared returns an inventory that knows which shared file systems the node has ever found.
func rememberShared(found, old *fleet.Inventory) *fleet.Inventory {
	if len(found.Shared) == 0 {
		return found
	}

	inv := *found
	inv.Shared = slices.Clone(found.Shared)

	for i := range inv.Shared {
		s := &inv.Shared[i]
		s.Known = s.OK || old.SharedOf(s.Name).Known
	}

	return &inv
}

// noteShared adds an event for each shared file system that a node has found or lost. It reports whether it did.
func (r *Nodes) noteShared(now time.Time, n *Node, old *fleet.Inventory) bool {
	changed := false

	for _, is := range n.Inventory.Shared {
		was := old.SharedOf(is.Name)
		if was.Name != "" && was.OK == is.OK && was.Reason == is.Reason {
			continue
		}

		e := batch.Event{
			Kind: "node.shared_found", Actor: "node/" + string(n.ID), Node: n.ID, To: is.Name,
			Reason: fmt.Sprintf("shared file system %s is at %s; checkpoints of its jobs stay there", is.Name, is.Path),
		}
		if !is.OK {
			e.Kind = "node.shared_missing"
			e.Reason = fmt.Sprintf("shared file system %s is not used, checkpoints of its jobs are uploaded: %s",
				is.Name, is.Reason)
		}

		r.feed.Add(now, e)

		changed = true
	}

	return changed
}

// same reports whether two values are equal, or both absent.
func same[T comparable](a, b *T) bool {
	return a == b || a != nil && b != nil && *a == *b
}

// noteProblem adds an event if a node has got a problem that keeps new jobs off it, or has solved it. It reports
// whether it did.
func (r *Nodes) noteProblem(now time.Time, n *Node, was *fleet.Problem) bool {
	is := n.Inventory.Problem
	if same(was, is) {
		return false
	}

	e := batch.Event{Kind: "node.problem", Actor: "node/" + string(n.ID), Node: n.ID}
	if is != nil {
		e.To, e.Reason = is.Cause, "takes no new jobs: "+is.Reason
	} else {
		e.Kind, e.From, e.Reason = "node.recovered", was.Cause, "takes jobs again; the problem was: "+was.Reason
	}

	r.feed.Add(now, e)

	return true
}

// EventReleased is the kind of the event that a GPU error was cleared, with the GPU's UUID in To.
const EventReleased = "gpu.cleared"

// Release clears the error of a GPU that its agent has taken out of service. The agent uses
// it again when it receives the event, which is the answer.
func (r *Nodes) Release(now time.Time, name id.Node, gpu int, by id.User) (batch.Event, error) {
	n, err := r.Find(name)
	if err != nil {
		return batch.Event{}, err
	}

	g := n.Inventory.GPU(gpu)
	if g == nil {
		return batch.Event{}, fault.New(fault.NotFound, "gpu_not_found", "node %s has no GPU %d", n.ID, gpu).WithField("gpu")
	}
	if g.Error == "" {
		return batch.Event{}, fault.New(fault.Conflict, "gpu_in_order", "GPU %d of node %s has no error to clear", gpu, n.ID)
	}

	return r.feed.Add(now, batch.Event{Kind: EventReleased, Actor: string(by), Node: n.ID, To: g.UUID,
		Reason: fmt.Sprintf("error of GPU %d cleared by %s: %s", gpu, by, g.Error)}), nil
}

// round rounds a time of silence for people.
func round(d time.Duration) job.Duration {
	if d >= time.Second {
		d = d.Round(time.Second)
	}

	return job.Duration(d)
}

// watch checks at a time whether a node has been silent for too long.
func (r *Nodes) watch(name id.Node, at time.Time) {
	if r.patience.Ignored() {
		return
	}

	r.timers.After(at, func(now time.Time) {
		n, ok := r.byName[name]
		if !ok || n.State == fleet.Removed {
			return
		}

		silent := now.Sub(n.Seen)
		switch {
		case n.State == fleet.Ready && r.patience.Suspects(silent):
			r.Move(now, n, fleet.EventSilent, batch.Yard,
				fmt.Sprintf("no report for %s; its runs continue, nothing new is placed there", round(silent)))
		case n.State == fleet.Suspect && r.patience.GivesUp(silent):
			r.watcher.Lost(n, round(silent))
		}

		next := n.Seen.Add(r.patience.NextCheck(silent, n.State == fleet.Suspect))
		if n.State == fleet.Lost {
			next = now.Add(r.patience.SuspectAfter)
		}

		r.watch(name, next)
	})
}

// ResetSilence counts the silence of all nodes from now. It is called after the server itself
// was suspended: that no report arrived meanwhile says nothing about the nodes.
func (r *Nodes) ResetSilence(now time.Time) {
	for _, n := range r.byName {
		n.Seen = now
	}
}

// Hear records when a node was last heard, if that is news. One that is lost is not found again by it:
// its runs were given up, and only a report says what became of them.
func (r *Nodes) Hear(name id.Node, at time.Time) {
	n, ok := r.byName[name]
	if ok && (n.State == fleet.Ready || n.State == fleet.Suspect) && at.After(n.Seen) {
		n.Seen = at
	}
}

// RecentlySeen reports whether a node's agent has reported recently.
func (r *Nodes) RecentlySeen(name id.Node) bool {
	n, ok := r.byName[name]
	return ok && n.State == fleet.Ready && (n.Reported || r.patience.Ignored())
}
