package nodes

import (
	"fmt"
	"maps"
	"time"

	"trainyard/internal/contact"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/yardmaster/batch"
)

// Admission is what is decided about an agent that presents itself for a node.
type Admission int

// The admissions. Those before AgentWaits let the agent speak for the node.
const (
	AgentKnown     Admission = iota // the process that was admitted before
	AgentFirst                      // the first of the node
	AgentRestarted                  // a later start in the same data directory
	AgentRebooted                   // after a reboot of the machine
	AgentMoved                      // from elsewhere, after the node was silent for so long that its runs were given up
	AgentWaits                      // perhaps after a reboot, but the earlier process was heard a moment ago
	AgentReplaced                   // an earlier start in a data directory in which a later one was admitted
	AgentCopied                     // from elsewhere while the node is in contact: a copy of its data directory
)

// Admitted reports whether the agent may speak for the node.
func (a Admission) Admitted() bool { return a < AgentWaits }

// Admit decides whether an agent may speak for a node. known is the one that was admitted last, zero if there is none,
// and silent the time since it was heard.
//
// The lock on a data directory lets one agent at a time work on it, so a later start in the same directory and boot
// proves that the earlier process is gone. So does a new boot of the same machine, unless the machine is cloned with
// its machine ID: then the earlier process is still heard. Nothing proves it for another machine or directory until
// the node is lost, by when an agent that was cut off has stopped its runs.
func Admit(known, agent *fleet.Agent, silent time.Duration, p contact.Patience) Admission {
	switch {
	case known.Process == "":
		return AgentFirst
	case known.Process == agent.Process:
		return AgentKnown
	case known.SamePlace(agent) && agent.Started > known.Started:
		return AgentRestarted
	case p.LostAfter > 0 && p.GivesUp(silent):
		return AgentMoved
	case known.SamePlace(agent):
		return AgentReplaced
	case known.Machine == agent.Machine && known.Boot != agent.Boot:
		if p.Suspects(silent) {
			return AgentRebooted
		}

		return AgentWaits
	}

	return AgentCopied
}

// refusal is what is remembered of an agent that was refused, in this process.
type refusal struct {
	first time.Time // when it was refused first
	shown time.Time // when the last event said so
}

// replacedGrace is how long a report of an agent that was replaced may have been on its way.
const replacedGrace = 10 * time.Second

// refusalMemory is for how long a refused agent is remembered: one that tries again and again makes one event in this
// time.
const refusalMemory = time.Hour

// AdmitAgent lets an agent speak for a node, or returns why it may not. An agent that does not say who it is, as
// those of earlier versions, is admitted unless the node has had one that did: whoever has a copy of its key could
// leave that out. It may take over a node that is lost. Events about it say from which address it reports.
func (r *Nodes) AdmitAgent(now time.Time, n *Node, agent *fleet.Agent, address string) error {
	if agent == nil {
		if n.Agent.Process == "" {
			return nil
		}

		agent = &fleet.Agent{}
	}

	silent := now.Sub(n.Seen)
	if n.State == fleet.Lost {
		silent = max(silent, r.patience.LostAfter) // also if the server has restarted since
	}

	admission := Admit(&n.Agent, agent, silent, r.patience)
	if admission == AgentKnown {
		return nil
	}

	r.feed.SetOrigin(batch.Origin{Actor: "node/" + string(n.ID), Address: address})
	defer r.feed.SetOrigin(batch.Origin{})

	if admission.Admitted() {
		r.setAgent(now, n, agent, admission)
		return nil
	}

	return r.refuseAgent(now, n, agent, admission, silent)
}

// setAgent records the agent that speaks for a node from now on.
func (r *Nodes) setAgent(now time.Time, n *Node, agent *fleet.Agent, admission Admission) {
	old := n.Agent
	n.Agent = *agent
	n.Agent.Node, n.Agent.Since = n.ID, now
	n.refused = nil
	r.agents = append(r.agents, n.Agent)

	if admission == AgentMoved {
		r.feed.Add(now, batch.Event{Kind: "node.moved", Actor: "node/" + string(n.ID), Node: n.ID,
			Reason: fmt.Sprintf("its agent now runs on %s; before it ran on %s", agent.Place(), old.Place())})
	}
}

// refuseAgent returns why an agent may not speak for a node, and adds an event the first time.
func (r *Nodes) refuseAgent(
	now time.Time,
	n *Node,
	agent *fleet.Agent,
	admission Admission,
	silent time.Duration,
) error {
	// The directory, not the process: one that is started again and again is refused as one.
	place := agent.Machine + "/" + agent.Boot + "/" + agent.Folder

	maps.DeleteFunc(n.refused, func(_ string, old refusal) bool { return now.Sub(old.first) >= refusalMemory })

	past, known := n.refused[place]
	if !known {
		past.first = now
	}

	// It has waited for longer than the silence that would have admitted it, so both are alive.
	if admission == AgentWaits && now.Sub(past.first) >= r.patience.SuspectAfter {
		admission = AgentCopied
	}

	// The lock on a data directory lets one process work on it at a time, so who was replaced there is gone, unless
	// one of the two only says that it is there.
	if admission == AgentReplaced && now.Sub(n.Agent.Since) >= replacedGrace {
		r.RaiseAlarm(now, n, fmt.Sprintf("two processes use its identity: one that started later was admitted %s ago, and "+
			"the earlier one still reports", round(now.Sub(n.Agent.Since))))
	}

	if admission == AgentCopied && past.shown.IsZero() {
		past.shown = now
		r.feed.Add(now, batch.Event{Kind: "node.copy_refused", Actor: "node/" + string(n.ID), Node: n.ID,
			Reason: fmt.Sprintf("a copy of its data directory was started on %s and refused; its agent runs on %s",
				agent.Place(), n.Agent.Place())})
	}

	if n.refused == nil {
		n.refused = map[string]refusal{}
	}

	n.refused[place] = past

	return r.refusalError(n, agent, admission, silent)
}

// refusalError says why an agent may not speak for a node and what to do about it.
func (r *Nodes) refusalError(n *Node, agent *fleet.Agent, admission Admission, silent time.Duration) error {
	if admission == AgentWaits {
		return fault.New(fault.Conflict, "agent_waits",
			"node %s was in contact %s ago from an earlier boot of this machine; this agent is admitted when that has been "+
				"silent for %s", n.ID, round(silent), round(r.patience.SuspectAfter))
	}

	if admission == AgentReplaced {
		return fault.New(fault.Conflict, "agent_replaced",
			"a later agent has taken over node %s in the same data directory, since %s", n.ID,
			n.Agent.Since.UTC().Format(time.RFC3339)).
			WithRemedy("end this process")
	}

	return fault.New(fault.Conflict, "agent_copied",
		"node %s already has an agent, on %s, last in contact %s ago; this one, on %s, works on a copy of its data "+
			"directory", n.ID, n.Agent.Place(), round(silent), agent.Place()).
		WithRemedy("to add a node, start the agent with an empty data directory and a join token; to move %s here, end its "+
			"other agent and start this one when the node has been silent for %s", n.ID, round(r.patience.LostAfter))
}
