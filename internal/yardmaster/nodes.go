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

// Join adds a machine as a node. The answer is the node. The server has checked its token;
// here its use is counted.
type Join struct {
	Token     id.Token
	Name      string // requested name; a number is added if it is taken
	Key       string // identifies the machine's own key
	Inventory fleet.Inventory
	Agent     *fleet.Agent // who joins; nil if it does not say
}

func (m Join) handle(y *Yard) (any, error) {
	if !id.Name(m.Name) {
		return nil, fault.New(fault.Invalid, "node_name", "invalid node name %q", m.Name).WithField("name").
			WithRemedy("use at most %d lower-case letters, digits, '-', '_' and '.'", id.MaxName)
	}

	// A machine whose first answer was lost, or whose certificate has expired, joins again with the same key.
	if n := y.nodes.ByKey(m.Key); n != nil {
		y.event(Event{Kind: "node.rejoined", Actor: "token/" + string(m.Token), Node: n.ID,
			Reason: "joined again with its own key and has a new certificate"})

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

	reason := "joined as " + n.Class.Words()
	if string(name) != m.Name {
		reason += fmt.Sprintf("; the name %s belongs to a machine with another key", m.Name)
	}

	if l := y.leases.Of(t.Lease); l != nil && l.Offer.Shares != "" && n.Inventory.Shares == "" {
		y.leases.Market.Undivided(&l.Offer)
		reason += "; it does not divide its GPUs among jobs, so none is provisioned for a part of one at " + l.Offer.Provider
	}

	if notice := y.nodes.Known(n, m.Agent); notice != "" {
		reason += "; " + notice
	}

	y.event(Event{Kind: "node.joined", Actor: "token/" + string(m.Token), Node: name, To: string(n.State), Reason: reason})
	y.checkIdle(name)

	return n.Node, nil
}

// LeaseRenewal is the answer to a report of an on-demand node.
type LeaseRenewal struct {
	LeaseLeft time.Duration // until the node shuts itself down unless it is renewed again
}

// NodesHeard says which nodes have reported while the loop could not take their reports. It counts as
// a sign of life and as nothing else.
type NodesHeard struct{ Nodes []NodeHeard }

// NodeHeard is when a node was heard.
type NodeHeard struct {
	Node id.Node
	At   time.Time
}

func (m NodesHeard) handle(y *Yard) (any, error) { //nolint:unparam // the form of Message
	for _, h := range m.Nodes {
		y.nodes.Hear(h.Node, h.At)
		y.touchNode(h.Node)
	}

	return nil, nil
}

// NodeReport is a report of a node's agent: that it is alive, and the state of its runs.
// The answer is a LeaseRenewal if the node is an on-demand node.
type NodeReport struct {
	Node      id.Node
	Agent     *fleet.Agent     // who reports; nil if it does not say
	Inventory *fleet.Inventory // nil if it has not changed
	Foreign   []int            // GPUs used by processes outside the yard
	Ranks     []RankReport
	Data      []job.DataCopy     // all datasets that it has fetched and still has
	Marks     bool               // its agent knows the UIDs of runs
	Restores  bool               // its agent restores checkpoints that other nodes wrote
	Suspends  bool               // its agent suspends programs in place
	Secrets   bool               // its agent passes secrets on to programs
	Clock     *fleet.ClockOffset // of the node from the server; nil if it was not measured
	Seen      Seen               // of the yard's history
	SetAside  []SetAsideRun      // since its last report
	Reclaim   *time.Duration     // until its provider takes the machine back; nil if no notice was given

	Certificate *fleet.Certificate // that it shows; nil if that is not known
	Address     string             // from which it comes
}

func (m NodeReport) handle(y *Yard) (any, error) {
	n, ok := y.nodes.Get(m.Node)
	if !ok || n.State == fleet.Removed {
		return nil, fault.New(fault.Denied, "node_removed", "node %s has been removed from the yard", m.Node).
			WithRemedy("join again with a new join token")
	}

	if err := y.nodes.AdmitAgent(y.now, n, m.Agent, m.Address); err != nil {
		return nil, err // before anything of the report counts
	}

	if m.Inventory != nil {
		if err := y.nodes.CheckPace(y.now, n); err != nil {
			return nil, err
		}
	}

	y.nodes.Show(y.now, n, m.Certificate)
	y.nodes.Report(y.now, n, m.Foreign, m.Inventory)
	y.nodes.SetClock(y.now, n, m.Clock)
	y.nodes.SetAbilities(n, nodes.Abilities{Restores: m.Restores, Suspends: m.Suspends, Secrets: m.Secrets})

	y.checkHistory(&m)

	y.planDue = y.data.SetCopies(y.now, n.ID, m.Data) || y.planDue
	for i := range m.Ranks {
		y.watch(m.Node, &m.Ranks[i], m.Marks)
	}

	y.noteReclaim(n, m.Reclaim)

	if l := y.Lease(n.Lease); l != nil {
		return LeaseRenewal{LeaseLeft: l.Ends.Sub(y.now)}, nil
	}

	return nil, nil
}

// moveNode applies an event to a node. The datasets on a node that is lost are forgotten.
func (y *Yard) moveNode(n *nodes.Node, ev fleet.Event, actor, reason string) {
	if to, err := n.State.After(ev); err == nil && (to == fleet.Lost || to == fleet.Removed) {
		y.planDue = y.data.ForgetCopies(y.now, n.ID) || y.planDue
	}

	y.nodes.Move(y.now, n, ev, actor, reason)
}

// lose declares a node lost that has been silent for LostAfter, and its runs with it. Its
// agent has stopped them by then, because the contact lease is shorter.
func (y *Yard) lose(n *nodes.Node, silent job.Duration) {
	y.moveNode(n, fleet.EventLose, theYard, fmt.Sprintf("no report for %s; its runs are declared lost", silent))
	y.giveUp(n, job.CauseNodeLost, fmt.Sprintf("node %s has not reported for %s and was declared lost", n.ID, silent))
}

// NodeGone says that a node is known to be dead, because its provider or the model of a
// simulation says so. Its runs are declared lost at once. The answer is the node.
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

// giveUp ends the ranks on a node without a report of its agent.
func (y *Yard) giveUp(n *nodes.Node, cause job.Cause, reason string) {
	for _, runID := range sortedKeys(n.Runs) {
		run := y.runs[runID]
		rank := &run.Ranks[n.Runs[runID]]
		y.rankEnded(y.jobs[run.Job], run, rank, &RankReport{Cause: cause, Reason: reason, Ended: y.now})
	}
}

// Cordon cordons a node, or uncordons it. With Stop it drains the node: its runs are stopped
// and their jobs requeued. The answer is the node.
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
			y.evict(y.runs[runID], n.ID, string(m.By), fmt.Sprintf("node %s was drained by %s", n.ID, m.By))
		}
	}

	return n.Node, nil
}

// evict stops a run because a node of it is needed no longer, or for something else. Its job saves a checkpoint and is
// requeued.
func (y *Yard) evict(run *runRecord, n id.Node, actor, reason string) {
	if run.Stop != job.StopNone {
		return
	}

	run.stopReason = reason
	y.stop(run, job.StopTerm, job.CausePreempted)
	y.event(Event{
		Kind:   "run.stopping",
		Actor:  actor,
		Owner:  y.jobs[run.Job].Owner,
		Job:    run.Job,
		Run:    run.ID,
		Node:   n,
		Reason: reason,
	})
}

// RenewNode records that a node was given a new certificate for an old one.
type RenewNode struct {
	Node id.Node
	Old  fleet.Certificate
	New  fleet.Certificate
}

func (m RenewNode) handle(y *Yard) (any, error) {
	n, err := y.nodes.Find(m.Node)
	if err != nil {
		return nil, err
	}

	y.nodes.Renewed(y.now, n, &m.Old, &m.New)

	return n.Node, nil
}

// NodeAlarm says that somebody else may use the identity of a node. It takes no new jobs until an admin accepts it.
type NodeAlarm struct {
	Node   id.Node
	Reason string
}

func (m NodeAlarm) handle(y *Yard) (any, error) {
	n, err := y.nodes.Find(m.Node)
	if err != nil {
		return nil, err
	}

	y.nodes.RaiseAlarm(y.now, n, m.Reason)

	return n.Node, nil
}

// AcceptNode accepts what a node declares, or that its identity is its own. The answer is the node.
type AcceptNode struct {
	Node id.Node
	By   id.User
}

func (m AcceptNode) handle(y *Yard) (any, error) {
	n, err := y.nodes.Find(m.Node)
	if err != nil {
		return nil, err
	}
	if err := y.nodes.Accept(y.now, n, m.By); err != nil {
		return nil, err
	}

	return n.Node, nil
}

// RemoveNode removes a node for good; its certificate is not accepted from then on. Nothing
// may run there, unless Force is set: then its runs are declared lost.
type RemoveNode struct {
	Node  id.Node
	By    id.User
	Force bool
}

func (m RemoveNode) handle(y *Yard) (any, error) {
	n, err := y.nodes.Find(m.Node)
	if err != nil {
		return nil, err
	}

	if y.Lease(n.Lease) != nil {
		return nil, fault.New(fault.Conflict, "node_provisioned",
			"node %s is an on-demand node and would still be billed", n.ID).
			WithRemedy("release it first: trainyard release %s", n.Lease)
	}

	if len(n.Runs) > 0 && !m.Force {
		return nil, fault.New(fault.Conflict, "node_busy", "node %s still has %s", n.ID, humanize.Count(len(n.Runs), "run")).
			WithRemedy("drain it first (trainyard drain %s), or end it at once: trainyard nodes remove --force %s", n.ID, n.ID)
	}

	// Nobody is left to report the end of its runs. Its agent stops them when its contact lease expires, so their jobs
	// start elsewhere when that has surely happened.
	for runID := range n.Runs {
		y.runs[runID].fence = n.Seen.Add(y.cfg.LostAfter)
	}

	y.giveUp(n, job.CauseNodeLost, fmt.Sprintf("node %s was removed by %s", n.ID, m.By))
	y.moveNode(n, fleet.EventRemove, string(m.By), "removed by "+string(m.By))

	return n.Node, nil
}

// EventReleased is the kind of the event that a GPU error was cleared, with the GPU's UUID in To.
const EventReleased = nodes.EventReleased

// ClearGPUError clears the error of a GPU that its agent has taken out of service. The agent
// uses it again when it receives the event, which is the answer.
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
