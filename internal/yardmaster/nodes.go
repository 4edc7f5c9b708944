package yardmaster

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/yardmaster/nodes"
)

// Join makes a machine a node. The answer is the node. Its token was checked
// by the server; here its use is counted.
type Join struct {
	Token     id.Token
	Name      string // wished name; a number is added if it is taken
	Key       string // names the machine's own key
	Inventory fleet.Inventory
}

func (m Join) handle(y *Yard) (any, error) {
	if !id.Name(m.Name) {
		return nil, fault.New(fault.Invalid, "node_name", "%q cannot name a node", m.Name).WithField("name").
			WithRemedy("use lower-case letters, digits, '-', '_' and '.', at most %d", id.MaxName)
	}

	// A machine whose first answer was lost joins again with the same key.
	if n := y.nodes.ByKey(m.Key); n != nil {
		return n.Node, nil
	}

	t, err := y.people.Use(y.now, m.Token)
	if err != nil {
		return nil, err
	}

	name := y.nodes.FreeName(m.Name)
	if t.Lease != "" {
		if err := y.leases.Join(y.now, t.Lease, name); err != nil {
			return nil, err
		}
	}

	n := y.nodes.Join(
		y.now,
		fleet.Node{ID: name, Class: fleet.Class(t.Class), Pool: t.Pool, Key: m.Key, Lease: t.Lease, Inventory: m.Inventory},
	)

	y.event(Event{Kind: "node.joined", Actor: "token/" + string(m.Token), Node: name, To: string(n.State),
		Reason: "joined as " + n.Class.Words()})
	y.checkIdle(name)

	return n.Node, nil
}

// Heard is the answer to a report of a provisioned node.
type LeaseRenewal struct {
	LeaseLeft time.Duration // until the node has to end itself if it hears nothing newer
}

// NodeReport is what a node's agent tells: that it lives, and how its runs fare.
// The answer is a Heard if the node is provisioned.
type NodeReport struct {
	Node      id.Node
	Inventory *fleet.Inventory // nil if it has not changed
	Foreign   []int            // GPUs used by processes outside the yard
	Ranks     []RankReport
	Data      []job.DataCopy // all that it has fetched and keeps
}

func (m NodeReport) handle(y *Yard) (any, error) {
	n, ok := y.nodes.Get(m.Node)
	if !ok || n.State == fleet.Removed {
		return nil, fault.New(fault.Denied, "node_removed", "node %s was taken out of the yard", m.Node).
			WithRemedy("join again with a new join token")
	}

	y.nodes.Report(y.now, n, m.Foreign, m.Inventory)

	y.round = y.data.Keeps(y.now, n.ID, m.Data) || y.round
	for i := range m.Ranks {
		y.watch(m.Node, &m.Ranks[i])
	}

	if l := y.Lease(n.Lease); l != nil {
		return LeaseRenewal{LeaseLeft: l.Ends.Sub(y.now)}, nil
	}

	return nil, nil
}

// moveNode applies an event to a node. What one keeps that is lost is not counted on.
func (y *Yard) moveNode(n *nodes.Node, ev fleet.Event, actor, reason string) {
	if to, err := n.State.After(ev); err == nil && (to == fleet.Lost || to == fleet.Removed) {
		y.round = y.data.Lost(y.now, n.ID) || y.round
	}

	y.nodes.Move(y.now, n, ev, actor, reason)
}

// lose gives up a node that was silent past the bound, and its runs with it.
// Its agent has stopped them by then, because their lease is shorter.
func (y *Yard) lose(n *nodes.Node, silent job.Duration) {
	y.moveNode(n, fleet.EventLose, theYard, fmt.Sprintf("not heard for %s; its runs are given up", silent))
	y.giveUp(n, job.CauseNodeLost, fmt.Sprintf("node %s was not heard for %s and was given up", n.ID, silent))
}

// Gone says that a node is known to be dead, by who would know: its provider, or
// the model of a simulation. Its runs are given up at once. The answer is the node.
type NodeGone struct {
	Node   id.Node
	By     string
	Reason string
}

func (m NodeGone) handle(y *Yard) (any, error) {
	n, err := y.nodes.Find(m.Node)
	if err != nil {
		return nil, err
	}

	if n.State != fleet.Lost {
		y.moveNode(n, fleet.EventGone, m.By, m.Reason)
		y.giveUp(n, job.CauseNodeLost, fmt.Sprintf("node %s is gone: %s", n.ID, m.Reason))
	}

	return n.Node, nil
}

// giveUp ends the ranks on a node without hearing from it.
func (y *Yard) giveUp(n *nodes.Node, cause job.Cause, reason string) {
	for _, runID := range sortedKeys(n.Runs) {
		run := y.runs[runID]
		rank := &run.Ranks[n.Runs[runID]]
		y.rankEnded(y.jobs[run.Job], run, rank, &RankReport{Cause: cause, Reason: reason, Ended: y.now})
	}
}

// Drain lets nothing new onto a node, or opens it again. With Stop what runs
// there is stopped and starts again elsewhere. The answer is the node.
type Cordon struct {
	Node id.Node
	By   id.User
	On   bool
	Stop bool
}

func (m Cordon) handle(y *Yard) (any, error) {
	n, err := y.nodes.Find(m.Node)
	if err != nil {
		return nil, err
	}

	y.nodes.SetCordon(y.now, n, m.On, m.By)

	if m.On && m.Stop {
		for _, runID := range sortedKeys(n.Runs) {
			y.stop(y.runs[runID], job.StopTerm, job.CausePreempted)
		}
	}

	return n.Node, nil
}

// RemoveNode takes a node out of the yard for good; its certificate is worth
// nothing from then on. Nothing may run there.
type RemoveNode struct {
	Node id.Node
	By   id.User
}

func (m RemoveNode) handle(y *Yard) (any, error) {
	n, err := y.nodes.Find(m.Node)
	if err != nil {
		return nil, err
	}

	if y.Lease(n.Lease) != nil {
		return nil, fault.New(fault.Conflict, "node_provisioned", "node %s is provisioned and would be paid for without being used", n.ID).
			WithRemedy("release it first: trainyard release %s", n.Lease)
	}

	if len(n.Runs) > 0 {
		return nil, fault.New(fault.Conflict, "node_busy", "node %s has %s on it", n.ID, humanize.Count(len(n.Runs), "run")).
			WithRemedy("drain it first: trainyard drain %s", n.ID)
	}

	y.moveNode(n, fleet.EventRemove, string(m.By), "removed by "+string(m.By))

	return n.Node, nil
}

// EventReleased is the kind of the event that tells of the release of a GPU, with its UUID in To.
const EventReleased = nodes.EventReleased

// ReleaseGPU writes down that a GPU which its agent keeps out of use may be used
// retry. The agent lets it go when it is told. The answer is the event.
type ClearGPUError struct {
	Node id.Node
	GPU  int
	By   id.User
}

func (m ClearGPUError) handle(y *Yard) (any, error) {
	return answer(y.nodes.Release(y.now, m.Node, m.GPU, m.By))
}

// sortedKeys lists the keys of a map in order.
func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
