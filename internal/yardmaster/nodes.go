package yardmaster

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
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
	if m.Key != "" {
		for _, n := range y.nodes {
			if n.Key == m.Key && n.State != fleet.Removed {
				return n.Node, nil
			}
		}
	}
	t, err := y.useToken(m.Token)
	if err != nil {
		return nil, err
	}
	name := id.Node(m.Name)
	for n := 2; y.nodes[name] != nil; n++ {
		suffix := "-" + strconv.Itoa(n)
		name = id.Node(m.Name[:min(len(m.Name), id.MaxName-len(suffix))] + suffix)
	}
	if t.Lease != "" {
		if err := y.leases.Join(y.now, t.Lease, name); err != nil {
			return nil, err
		}
	}
	r := &nodeRecord{seen: y.now, heard: true, idle: y.now, runs: map[id.Run]int{}, ports: map[int]id.Run{}, Node: fleet.Node{
		ID: name, Class: fleet.Class(t.Class), Pool: t.Pool, State: fleet.Ready, Since: y.now, Joined: y.now,
		Reason: "joined", Key: m.Key, Lease: t.Lease, Inventory: m.Inventory,
	}}
	y.nodes[name] = r
	y.changedNode(r)
	y.watchSilence(name, y.now.Add(y.cfg.SuspectAfter))
	y.event(Event{Kind: "node.joined", Actor: "token/" + string(m.Token), Node: name, To: string(r.State),
		Reason: "joined as " + r.Class.Words()})
	y.idle(name)
	return r.Node, nil
}

// Heard is the answer to a report of a hired node.
type Heard struct {
	LeaseLeft time.Duration // until the node has to end itself if it hears nothing newer
}

// NodeReport is what a node's agent tells: that it lives, and how its runs fare.
// The answer is a Heard if the node is hired.
type NodeReport struct {
	Node      id.Node
	Inventory *fleet.Inventory // nil if it has not changed
	Foreign   []int            // GPUs used by processes outside the yard
	Ranks     []RankReport
	Data      []job.DataCopy // all that it has fetched and keeps
}

func (m NodeReport) handle(y *Yard) (any, error) {
	n, ok := y.nodes[m.Node]
	if !ok || n.State == fleet.Removed {
		return nil, fault.New(fault.Denied, "node_removed", "node %s was taken out of the yard", m.Node).
			WithRemedy("join again with a new join token")
	}
	n.seen, n.heard = y.now, true
	if n.State != fleet.Ready {
		y.moveNode(n, fleet.EventReport, "node/"+string(n.ID), "its agent reports again")
	}
	if foreign := fleet.Mask(m.Foreign); foreign != n.foreign {
		n.foreign = foreign
		y.changedNode(n)
	}
	if m.Inventory != nil {
		y.took(n, m.Inventory)
	}
	y.keeps(n, m.Data)
	for i := range m.Ranks {
		y.watch(m.Node, &m.Ranks[i])
	}
	if l, ok := y.leases.Get(n.Lease); ok {
		return Heard{LeaseLeft: l.Ends.Sub(y.now)}, nil
	}
	return nil, nil
}

// took writes down what a node's agent found, and tells of GPUs that broke or are
// well again. What its GPUs draw changes often and is no news.
func (y *Yard) took(n *nodeRecord, found *fleet.Inventory) {
	old := n.Inventory
	same := sameInventory(&old, found)
	if same && slices.Equal(old.Draw, found.Draw) {
		return
	}
	n.Inventory = *found
	y.changedNode(n)
	if same {
		return
	}
	told := false
	for i := range found.GPUs {
		g := &found.GPUs[i]
		e := Event{Kind: "gpu.error", Actor: "node/" + string(n.ID), Node: n.ID, To: g.UUID, Reason: fmt.Sprintf("GPU %d is not used any more: %s", g.Index, g.Error)}
		was := old.GPU(g.Index)
		switch {
		case was == nil || was.Error == g.Error:
			continue
		case g.Error == "":
			e.Kind, e.Reason = "gpu.well", fmt.Sprintf("GPU %d is used again, after: %s", g.Index, was.Error)
		}
		y.event(e)
		told = true
	}
	if !told {
		y.event(Event{Kind: "node.inventory", Actor: "node/" + string(n.ID), Node: n.ID, Reason: "its hardware or agent changed"})
	}
}

func sameInventory(a, b *fleet.Inventory) bool {
	x, z := *a, *b
	x.GPUs, z.GPUs = nil, nil
	x.Disk, z.Disk = 0, 0 // what is free on disk changes all the time and decides nothing
	return x.Address == z.Address && x.OS == z.OS && x.Kernel == z.Kernel && x.Arch == z.Arch && x.Version == z.Version &&
		x.CPUs == z.CPUs && x.Memory == z.Memory && x.Limits == z.Limits && slices.Equal(a.GPUs, b.GPUs)
}

// moveNode applies an event to a node and writes it down.
func (y *Yard) moveNode(n *nodeRecord, ev fleet.Event, actor, reason string) {
	to, err := n.State.After(ev)
	if err != nil {
		y.must(err)
		return
	}
	from := n.State
	n.State, n.Since, n.Reason = to, y.now, reason
	if to == fleet.Lost || to == fleet.Removed {
		y.keeps(n, nil)
		n.told = false
	}
	y.changedNode(n)
	y.event(Event{Kind: "node." + string(to), Actor: actor, Node: n.ID, From: string(from), To: string(to), Reason: reason})
}

// watchSilence looks at a node when it could have been silent for too long.
func (y *Yard) watchSilence(name id.Node, at time.Time) {
	if y.cfg.SuspectAfter == 0 {
		return
	}
	y.after(at, func(y *Yard) {
		n, ok := y.nodes[name]
		if !ok || n.State == fleet.Removed {
			return
		}
		silent := y.now.Sub(n.seen)
		switch {
		case n.State == fleet.Ready && silent >= y.cfg.SuspectAfter:
			y.moveNode(n, fleet.EventSilent, theYard,
				fmt.Sprintf("not heard for %s; its runs are left alone, nothing new is placed there", round(silent)))
		case n.State == fleet.Suspect && silent >= y.cfg.LostAfter:
			y.lose(n, silent)
		}
		next := n.seen.Add(y.cfg.SuspectAfter)
		switch n.State {
		case fleet.Suspect: // until then it may report and fall silent again
			next = n.seen.Add(min(y.cfg.LostAfter, silent+y.cfg.SuspectAfter))
		case fleet.Lost:
			next = y.now.Add(y.cfg.SuspectAfter)
		case fleet.Ready, fleet.Removed:
		}
		y.watchSilence(name, next)
	})
}

func round(d time.Duration) job.Duration {
	if d >= time.Second {
		d = d.Round(time.Second)
	}
	return job.Duration(d)
}

// lose gives up a node that was silent past the bound, and its runs with it.
// Its agent has stopped them by then, because their lease is shorter.
func (y *Yard) lose(n *nodeRecord, silent time.Duration) {
	y.moveNode(n, fleet.EventLose, theYard, fmt.Sprintf("not heard for %s; its runs are given up", round(silent)))
	y.giveUp(n, job.CauseNodeLost, fmt.Sprintf("node %s was not heard for %s and was given up", n.ID, round(silent)))
}

// Gone says that a node is known to be dead, by who would know: its provider, or
// the model of a simulation. Its runs are given up at once. The answer is the node.
type Gone struct {
	Node   id.Node
	By     string
	Reason string
}

func (m Gone) handle(y *Yard) (any, error) {
	n, err := y.findNode(m.Node)
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
func (y *Yard) giveUp(n *nodeRecord, cause job.Cause, reason string) {
	for _, runID := range sortedKeys(n.runs) {
		run := y.runs[runID]
		rank := &run.Ranks[n.runs[runID]]
		y.rankEnded(y.jobs[run.Job], run, rank, &RankReport{Cause: cause, Reason: reason, Ended: y.now})
	}
}

// Drain lets nothing new onto a node, or opens it again. With Stop what runs
// there is stopped and starts again elsewhere. The answer is the node.
type Drain struct {
	Node id.Node
	By   id.User
	On   bool
	Stop bool
}

func (m Drain) handle(y *Yard) (any, error) {
	n, err := y.findNode(m.Node)
	if err != nil {
		return nil, err
	}
	if n.Drained != m.On {
		n.Drained, n.Since = m.On, y.now
		y.changedNode(n)
		kind, reason := "node.drained", "drained by "+string(m.By)+": nothing new is placed there"
		if !m.On {
			kind, reason = "node.undrained", "opened again by "+string(m.By)
		}
		y.event(Event{Kind: kind, Actor: string(m.By), Node: n.ID, Reason: reason})
	}
	if m.On && m.Stop {
		for _, runID := range sortedKeys(n.runs) {
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
	n, err := y.findNode(m.Node)
	if err != nil {
		return nil, err
	}
	if _, live := y.leases.Get(n.Lease); live {
		return nil, fault.New(fault.Conflict, "node_hired", "node %s is hired and would be paid for without being used", n.ID).
			WithRemedy("give it back: trainyard return %s", n.Lease)
	}
	if len(n.runs) > 0 {
		return nil, fault.New(fault.Conflict, "node_busy", "node %s has %s on it", n.ID, count(len(n.runs), "run")).
			WithRemedy("drain it with --stop first, and remove it when nothing runs there")
	}
	y.moveNode(n, fleet.EventRemove, string(m.By), "removed by "+string(m.By))
	y.table.Remove(n.ID)
	return n.Node, nil
}

// sortedKeys lists the keys of a map in order.
func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

func (y *Yard) findNode(name id.Node) (*nodeRecord, error) {
	n, ok := y.nodes[name]
	if !ok || n.State == fleet.Removed {
		return nil, fault.New(fault.NotFound, "node_not_found", "there is no node %s", name)
	}
	return n, nil
}
