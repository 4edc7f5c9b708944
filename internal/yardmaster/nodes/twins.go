package nodes

import (
	"fmt"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
)

// A machine can join twice: its agent is started with an empty data directory after a reinstallation, or a second agent
// is started beside the first. Each has a key of its own, so they are two nodes, and the GPUs of the machine would be
// given out twice. GPUs are known by their UUIDs. The node that joined first keeps them until it is lost; the other one
// takes no jobs until then. If the first one comes back while the other has jobs, it waits for their end.

// CauseSameMachine is the cause of the warning that two nodes without common GPUs are on one machine.
const CauseSameMachine = "same_machine"

// index enters the GPUs of a node, and takes those out that it had before.
func (r *Nodes) index(n *Node) {
	for _, uuid := range n.uuids {
		r.byGPU[uuid] = slices.DeleteFunc(r.byGPU[uuid], func(other *Node) bool { return other == n })
		if len(r.byGPU[uuid]) == 0 {
			delete(r.byGPU, uuid)
		}
	}

	n.uuids = n.uuids[:0]
	if n.State == fleet.Removed {
		return
	}

	for i := range n.Inventory.GPUs {
		if g := &n.Inventory.GPUs[i]; g.UUID != "" && !g.Fake {
			n.uuids = append(n.uuids, g.UUID)
			r.byGPU[g.UUID] = append(r.byGPU[g.UUID], n)
		}
	}
}

// reindex enters the GPUs of a node that has others than before, and decides anew about those who have some of them.
func (r *Nodes) reindex(now time.Time, n *Node) {
	before, _ := r.twins(n)
	r.index(n)
	r.CheckTwins(now, n, false)

	for _, other := range before {
		r.checkTwin(now, other, false)
	}
}

// twins lists the other nodes that have a GPU of a node, by name, with one GPU of each.
func (r *Nodes) twins(n *Node) (list []*Node, gpus map[id.Node]string) {
	for _, uuid := range n.uuids {
		for _, other := range r.byGPU[uuid] {
			if other != n && gpus[other.ID] == "" {
				if gpus == nil {
					gpus = map[id.Node]string{}
				}

				gpus[other.ID] = uuid
				list = append(list, other)
			}
		}
	}

	slices.SortFunc(list, func(a, b *Node) int {
		if a.ID < b.ID {
			return -1
		}

		return 1
	})

	return list, gpus
}

// CheckTwins decides anew which of the nodes that have GPUs in common with a node take jobs, and whether it does
// itself. It is called when the node has other GPUs, another state or one run less. back says that it was lost until
// now.
func (r *Nodes) CheckTwins(now time.Time, n *Node, back bool) {
	if len(n.uuids) == 0 && n.Identity.Twin == "" {
		return // most nodes, and all whose GPUs are declared
	}

	list, _ := r.twins(n)

	r.checkTwin(now, n, back)

	for _, other := range list {
		r.checkTwin(now, other, false)
	}
}

func (r *Nodes) checkTwin(now time.Time, n *Node, back bool) {
	reason := r.twinOf(n, back || n.Identity.Twin != "")
	if reason == n.Identity.Twin || n.State == fleet.Removed {
		return
	}

	if n.Identity.Problem(&n.Inventory) == nil {
		n.Identity.Reported = n.Inventory.Problem
	}

	was := n.Inventory.Problem
	n.Identity.Twin = reason

	n.Inventory.Problem = n.Identity.Problem(&n.Inventory)
	if n.Inventory.Problem == nil {
		n.Inventory.Problem, n.Identity.Reported = n.Identity.Reported, nil
	}

	r.noteProblem(now, n, was)
	r.change(n)
}

// twinOf says why the GPUs of a node may be in use by another one, "" if they are its own. waits says that jobs of
// nodes that joined later count, too: they can have some from when this one was lost, and otherwise must not be able to
// close it.
func (r *Nodes) twinOf(n *Node, waits bool) string {
	list, gpus := r.twins(n)

	for _, other := range list {
		elder := other.Joined.Before(n.Joined) || other.Joined.Equal(n.Joined) && other.ID < n.ID

		switch {
		case elder && (other.State == fleet.Ready || other.State == fleet.Suspect):
			return fmt.Sprintf("its GPU %s is also that of node %s, which joined before: one machine has joined twice; remove "+
				"one of the two nodes (trainyard nodes remove)", gpus[other.ID], other.ID)
		case (elder || waits) && len(other.Runs) > 0:
			return fmt.Sprintf("its GPU %s is also that of node %s, which still has jobs: one machine has joined twice; remove "+
				"one of the two nodes (trainyard nodes remove)", gpus[other.ID], other.ID)
		}
	}

	return ""
}

// SameMachine returns the other nodes in contact that are on the machine of an agent, by name. An agent with declared
// GPUs is for trying things out and shares its machine as its operator wants.
func (r *Nodes) SameMachine(name id.Node, at *fleet.Agent) []*Node {
	if at.Machine == "" {
		return nil
	}

	var list []*Node

	for _, n := range r.byName {
		if n.ID != name && n.State != fleet.Removed && n.Agent.Machine == at.Machine && !n.declared() {
			list = append(list, n)
		}
	}

	slices.SortFunc(list, func(a, b *Node) int { return a.Joined.Compare(b.Joined) })

	return list
}

// declared reports whether the GPUs of a node are declared, not real.
func (n *Node) declared() bool {
	return slices.ContainsFunc(n.Inventory.GPUs, func(g fleet.GPU) bool { return g.Fake })
}

// Warnings lists what is wrong with a node although it takes jobs.
func (r *Nodes) Warnings(n *Node) []fleet.Problem {
	var list []fleet.Problem

	if n.Skew != 0 {
		list = append(list, fleet.Problem{Cause: CauseSkew, Reason: n.skewed()})
	}

	if n.declared() || n.State != fleet.Ready {
		return list
	}

	for _, other := range r.SameMachine(n.ID, &n.Agent) {
		if other.State == fleet.Ready && other.Agent.Boot == n.Agent.Boot {
			list = append(list, fleet.Problem{Cause: CauseSameMachine, Reason: fmt.Sprintf(
				"node %s is on the same machine, so its CPUs and memory are given out twice", other.ID)})
		}
	}

	return list
}

// Known says what the operator of a machine should know that has joined as a node with a new key, although it is, or
// was, another one: its data directory was lost or another one was given, or it was renamed. It is "" if nothing is
// known of the machine.
func (r *Nodes) Known(n *Node, agent *fleet.Agent) string {
	if agent == nil || n.declared() {
		return ""
	}

	same := r.SameMachine(n.ID, agent)
	if len(same) == 0 {
		return ""
	}

	other := same[len(same)-1] // that joined last

	if other.State == fleet.Ready || other.State == fleet.Suspect {
		return fmt.Sprintf("this machine is also node %s, whose agent works in %s; if that was not meant, stop one of the "+
			"two agents and remove its node (trainyard nodes remove)", other.ID, other.Agent.Path)
	}

	return fmt.Sprintf("this machine was node %s before; to be it again, also under another host name, start the agent "+
		"with its data directory %s; otherwise remove it: trainyard nodes remove %s", other.ID, other.Agent.Path, other.ID)
}
