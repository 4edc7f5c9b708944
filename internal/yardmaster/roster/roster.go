// Package roster is what the yard knows of its nodes: what they have, how they are,
// what is on them and what is free, and for how long they have been silent.
//
// A late report is not a death: a node that is silent is suspected first, and after a
// bound the yardmaster is told to give it up. What becomes of its runs, and when a hired
// node goes back, is decided there.
package roster

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/yardmaster/agenda"
	"trainyard/internal/yardmaster/batch"
)

// Node is a node with what need not be stored. What is stored, and what runs there, is
// changed by methods alone; when a hired node was last of use is up to who hires.
type Node struct {
	fleet.Node
	batch.Mark
	Seen    time.Time      // last report, in this process
	Heard   bool           // has reported, in this process
	Foreign uint64         // GPUs used by others
	Runs    map[id.Run]int // live runs and the rank that is here
	Idle    time.Time      // nothing runs there since
	Look    *agenda.Entry  // when to look whether a hired node is to be given back
	ports   map[int]id.Run // on which rank 0 of some runs listens for the others
}

// Patience is how long a node may be silent.
type Patience struct {
	SuspectAfter time.Duration // until nothing new goes there; 0 if silence means nothing
	LostAfter    time.Duration // until its runs are given up
}

// Watcher is told of what happens to nodes.
type Watcher struct {
	Changed func(id.Node)                      // what is stored or what is free there
	Lost    func(n *Node, silent job.Duration) // it has been silent for too long
}

// Roster is all nodes. It is not safe for concurrent use.
type Roster struct {
	Rooms    *fleet.Table // what is free where, of nodes that were not removed
	nodes    map[id.Node]*Node
	patience Patience
	watcher  Watcher
	feed     *batch.Feed
	timers   *agenda.Agenda
	changed  batch.Set[*Node]
}

// New returns an empty roster. What happens is told to the feed.
func New(p Patience, feed *batch.Feed, timers *agenda.Agenda, w Watcher) *Roster {
	return &Roster{Rooms: fleet.NewTable(), nodes: map[id.Node]*Node{}, patience: p, watcher: w, feed: feed, timers: timers}
}

// Load takes up a node that was stored. It gets the full time to report before it is
// suspected: the yard was not listening.
func (r *Roster) Load(now time.Time, n fleet.Node) {
	r.nodes[n.ID] = &Node{Node: n, Seen: now, Idle: now, Runs: map[id.Run]int{}, ports: map[int]id.Run{}}
	if n.State != fleet.Removed {
		r.Rooms.Put(&n, 0)
		r.watch(n.ID, now.Add(r.patience.SuspectAfter))
	}
}

// Take moves what has changed into a batch.
func (r *Roster) Take(b *batch.Batch) {
	b.Nodes = batch.Take(&r.changed, b.Nodes, func(to *fleet.Node, n *Node) { *to = n.Node })
}

// Get returns a node, also one that was removed.
func (r *Roster) Get(name id.Node) (*Node, bool) {
	n, ok := r.nodes[name]
	return n, ok
}

// Find returns a node that was not removed.
func (r *Roster) Find(name id.Node) (*Node, error) {
	n, ok := r.nodes[name]
	if !ok || n.State == fleet.Removed {
		return nil, fault.New(fault.NotFound, "node_not_found", "there is no node %s", name)
	}
	return n, nil
}

// Of returns what is stored of a node, nil if there is none.
func (r *Roster) Of(name id.Node) *fleet.Node {
	if n, ok := r.nodes[name]; ok {
		return &n.Node
	}
	return nil
}

// All lists the nodes by name, with those that were removed.
func (r *Roster) All() []*Node {
	list := make([]*Node, 0, len(r.nodes))
	for _, name := range slices.Sorted(maps.Keys(r.nodes)) {
		list = append(list, r.nodes[name])
	}
	return list
}

// Len counts the nodes, with those that were removed.
func (r *Roster) Len() int { return len(r.nodes) }

// Counts counts the nodes by state.
func (r *Roster) Counts() map[fleet.State]int {
	counts := map[fleet.State]int{}
	for _, n := range r.nodes {
		counts[n.State]++
	}
	return counts
}

// Keyed returns the node of a machine that has this key, nil if there is none.
func (r *Roster) Keyed(key string) *Node {
	if key == "" {
		return nil
	}
	for _, n := range r.nodes {
		if n.Key == key && n.State != fleet.Removed {
			return n
		}
	}
	return nil
}

// Free returns the name that a machine gets that wishes for one: that, with a number if
// it is taken.
func (r *Roster) Free(wish string) id.Node {
	name := id.Node(wish)
	for n := 2; r.nodes[name] != nil; n++ {
		suffix := "-" + strconv.Itoa(n)
		name = id.Node(wish[:min(len(wish), id.MaxName-len(suffix))] + suffix)
	}
	return name
}

// Join adds a node.
func (r *Roster) Join(now time.Time, stored fleet.Node) *Node {
	n := &Node{Node: stored, Seen: now, Heard: true, Idle: now, Runs: map[id.Run]int{}, ports: map[int]id.Run{}}
	n.State, n.Since, n.Joined, n.Reason = fleet.Ready, now, now, "joined"
	r.nodes[n.ID] = n
	r.change(n)
	r.watch(n.ID, now.Add(r.patience.SuspectAfter))
	return n
}

// change enters a node among those that have changed, and what is free there.
func (r *Roster) change(n *Node) {
	n.Seq++
	r.changed.Add(n)
	node := n.Node
	r.watcher.Changed(n.ID)
	r.Rooms.Put(&node, n.Foreign)
}

// Move applies an event to a node and writes it down.
func (r *Roster) Move(now time.Time, n *Node, ev fleet.Event, actor, reason string) {
	to, err := n.State.After(ev)
	if err != nil {
		r.feed.Bug(now, err)
		return
	}
	from := n.State
	n.State, n.Since, n.Reason = to, now, reason
	r.change(n)
	r.feed.Tell(now, batch.Event{Kind: "node." + string(to), Actor: actor, Node: n.ID, From: string(from), To: string(to), Reason: reason})
	if to == fleet.Removed {
		r.Rooms.Remove(n.ID)
	}
}

// Drain lets nothing new onto a node, or opens it again, because someone says so.
func (r *Roster) Drain(now time.Time, n *Node, on bool, by id.User) {
	if n.Drained == on {
		return
	}
	n.Drained, n.Since = on, now
	r.change(n)
	kind, reason := "node.drained", "drained by "+string(by)+": nothing new is placed there"
	if !on {
		kind, reason = "node.undrained", "opened again by "+string(by)
	}
	r.feed.Tell(now, batch.Event{Kind: kind, Actor: string(by), Node: n.ID, Reason: reason})
}

// Shut lets nothing new onto a node that is being given back, also if its agent is
// heard again.
func (r *Roster) Shut(now time.Time, n *Node, reason string) {
	if !n.Drained {
		n.Drained, n.Since, n.Reason = true, now, reason
		r.change(n)
	}
}

// Enter puts a rank of a run on a node.
func (n *Node) Enter(run id.Run, rank int) { n.Runs[run] = rank }

// Leave takes a run off a node, with the port on which its rank 0 listened there.
func (n *Node) Leave(run id.Run, port int) {
	delete(n.Runs, run)
	if n.ports[port] == run {
		delete(n.ports, port)
	}
}

// firstPort is the first of the ports on which rank 0 of a run listens for the
// others. Runs get different ones, because two may share a node.
const firstPort, ports = 29500, 3000

// Port chooses a port on which no other run's rank 0 listens on a node.
func (n *Node) Port(run id.Run, number uint64) int {
	port := firstPort + int(number%ports)
	for range ports {
		if _, used := n.ports[port]; !used {
			n.ports[port] = run
			break
		}
		port = firstPort + (port-firstPort+1)%ports
	}
	return port
}

// Listen says that a run's rank 0 listens on a port of a node already.
func (n *Node) Listen(run id.Run, port int) { n.ports[port] = run }
