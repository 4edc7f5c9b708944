// Package nodes keeps the yard's nodes: their hardware, their state, what runs on them,
// what is free, and how long they have been silent.
//
// It serves the steps place, launch and watch of a job's path. A late report is not a
// failure: a silent node becomes suspect first, and only after a bound is the yardmaster
// told that it is lost. What happens to its runs, and when an on-demand node is released,
// is decided there and not here.
package nodes

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"trainyard/internal/contact"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/yardmaster/batch"
	"trainyard/internal/yardmaster/timers"
)

// Node is a node with what need not be stored. What is stored, and what runs there, is
// changed by methods alone; Idle, IdleCheck and Reclaim belong to the yardmaster, which releases on-demand nodes.
type Node struct {
	fleet.Node
	batch.Mark
	Seen      time.Time          // last report, in this process
	Reported  bool               // has reported, in this process
	Foreign   uint64             // GPUs used by others
	Runs      map[id.Run]int     // live runs and the rank that is here
	Idle      time.Time          // since when nothing runs there
	IdleCheck *timers.Timer      // checks whether an on-demand node should be released
	Reclaim   time.Time          // when its provider takes the machine back; zero if no notice was given
	Agent     fleet.Agent        // that speaks for it; stored on its own, zero until one has said who it is
	Skew      time.Duration      // by how much its clock is ahead of the server's, if that is too much; otherwise 0
	uuids     []string           // of its GPUs, as they are in byGPU
	ports     map[int]id.Run     // on which rank 0 of some runs listens for the others
	refused   map[string]refusal // agents that were not admitted
	paid      time.Time          // until when its changes of inventory are paid for, see CheckPace
}

// Watcher is called when something happens to a node.
type Watcher struct {
	Changed func(id.Node)                      // its stored value or its free resources changed
	Lost    func(n *Node, silent job.Duration) // it has been silent for too long
}

// Nodes holds all nodes. It is not safe for concurrent use.
type Nodes struct {
	Rooms   *fleet.Table // what is free where, of nodes that were not removed
	Changes int          // how often a node was added or changed
	// TrustInventory accepts whatever nodes declare.
	TrustInventory bool

	byName   map[id.Node]*Node
	byGPU    map[string][]*Node // that declare the GPU with this UUID
	patience contact.Patience
	watcher  Watcher
	feed     *batch.Feed
	timers   *timers.Timers
	changed  batch.Set[*Node]
	agents   []fleet.Agent    // admitted since the last Take
	singles  map[id.Node]bool // that run jobs of one user at a time
	reserved map[id.Node]bool // that are reserved for a user now
	upcoming map[id.Node]bool // that will be soon
}

// New returns a yard without nodes. Events go to the feed.
func New(p contact.Patience, feed *batch.Feed, timers *timers.Timers, w Watcher) *Nodes {
	return &Nodes{
		Rooms:    fleet.NewTable(),
		byName:   map[id.Node]*Node{},
		byGPU:    map[string][]*Node{},
		patience: p,
		watcher:  w,
		feed:     feed,
		timers:   timers,
		singles:  map[id.Node]bool{},
		reserved: map[id.Node]bool{},
		upcoming: map[id.Node]bool{},
	}
}

// Load restores a stored node. It gets the full time to report before it becomes suspect,
// because no report could arrive while the server was down.
func (r *Nodes) Load(now time.Time, n fleet.Node) {
	if n.Identity.Accepted == nil { // joined before hardware had to be accepted
		hardware := n.Inventory.Hardware()
		n.Identity.Accepted = &hardware
	}

	loaded := &Node{Node: n, Seen: now, Idle: now, Runs: map[id.Run]int{}, ports: map[int]id.Run{}}
	r.byName[n.ID] = loaded
	r.index(loaded)

	if n.State != fleet.Removed {
		r.Changes++
		r.Rooms.Put(&n, 0)
		r.countSingle(&n)
		r.watch(n.ID, now.Add(r.patience.SuspectAfter))
	}
}

// countSingle keeps count of the nodes that run jobs of one user at a time, or are reserved for one.
func (r *Nodes) countSingle(n *fleet.Node) {
	if n.Inventory.SingleUser && n.State != fleet.Removed {
		r.singles[n.ID] = true
	} else {
		delete(r.singles, n.ID)
	}

	if n.Reserved != nil && n.State != fleet.Removed {
		r.reserved[n.ID] = true
	} else {
		delete(r.reserved, n.ID)
	}

	if n.Upcoming != nil && n.State != fleet.Removed {
		r.upcoming[n.ID] = true
	} else {
		delete(r.upcoming, n.ID)
	}
}

// AnyReserved reports whether some node is reserved for a user now.
func (r *Nodes) AnyReserved() bool { return len(r.reserved) > 0 }

// AnyUpcoming reports whether some node will be reserved for a user soon.
func (r *Nodes) AnyUpcoming() bool { return len(r.upcoming) > 0 }

// Announce sets the next reservation of a node that has not begun, nil if none begins soon.
func (r *Nodes) Announce(n *Node, next *fleet.Upcoming) {
	if n.Upcoming == next || n.Upcoming != nil && next != nil && *n.Upcoming == *next {
		return
	}

	n.Upcoming = next
	if n.State != fleet.Removed {
		r.change(n)
	}
}

// Reserve reserves a node, or ends that with nil.
func (r *Nodes) Reserve(n *Node, to *fleet.Reservation) {
	if n.Reserved == to {
		return
	}

	n.Reserved = to
	if n.State != fleet.Removed {
		r.change(n)
	}
}

// AnySingle reports whether some node runs jobs of one user at a time.
func (r *Nodes) AnySingle() bool { return len(r.singles) > 0 }

// LoadAgent restores which agent speaks for a node.
func (r *Nodes) LoadAgent(a fleet.Agent) {
	if n, ok := r.byName[a.Node]; ok {
		n.Agent = a
	}
}

// Take moves what has changed into a batch.
func (r *Nodes) Take(b *batch.Batch) {
	b.Nodes = batch.Take(&r.changed, b.Nodes, func(to *fleet.Node, n *Node) { *to = n.Node })
	b.Agents = append(b.Agents[:0], r.agents...)
	r.agents = r.agents[:0]
}

// Get returns a node, also one that was removed.
func (r *Nodes) Get(name id.Node) (*Node, bool) {
	n, ok := r.byName[name]
	return n, ok
}

// Find returns a node that was not removed.
func (r *Nodes) Find(name id.Node) (*Node, error) {
	n, ok := r.byName[name]
	if !ok || n.State == fleet.Removed {
		return nil, fault.New(fault.NotFound, "node_not_found", "there is no node %s", name)
	}

	return n, nil
}

// Of returns what is stored of a node, nil if there is none.
func (r *Nodes) Of(name id.Node) *fleet.Node {
	if n, ok := r.byName[name]; ok {
		return &n.Node
	}

	return nil
}

// All lists the nodes by name, with those that were removed.
func (r *Nodes) All() []*Node {
	list := make([]*Node, 0, len(r.byName))
	for _, name := range slices.Sorted(maps.Keys(r.byName)) {
		list = append(list, r.byName[name])
	}

	return list
}

// Eldest returns the node that joined first of those that a function accepts, nil if there is none.
func (r *Nodes) Eldest(accept func(*Node) bool) *Node {
	var eldest *Node

	for _, n := range r.byName {
		if !accept(n) {
			continue
		}

		if eldest == nil || n.Joined.Before(eldest.Joined) || n.Joined.Equal(eldest.Joined) && n.ID < eldest.ID {
			eldest = n
		}
	}

	return eldest
}

// Len counts the nodes, with those that were removed.
func (r *Nodes) Len() int { return len(r.byName) }

// Counts counts the nodes by state.
func (r *Nodes) Counts() map[fleet.State]int {
	counts := map[fleet.State]int{}
	for _, n := range r.byName {
		counts[n.State]++
	}

	return counts
}

// ByKey returns the node of the machine with this key, nil if there is none.
func (r *Nodes) ByKey(key string) *Node {
	if key == "" {
		return nil
	}

	for _, n := range r.byName {
		if (n.Key == key || n.Identity.NextKey == key) && n.State != fleet.Removed {
			return n
		}
	}

	return nil
}

// FreeName returns the name for a new node: the requested one, with a number appended if it
// is taken.
func (r *Nodes) FreeName(requested string) id.Node {
	name := id.Node(requested)
	for n := 2; r.byName[name] != nil; n++ {
		suffix := "-" + strconv.Itoa(n)
		name = id.Node(requested[:min(len(requested), id.MaxName-len(suffix))] + suffix)
	}

	return name
}

// Join adds a node.
func (r *Nodes) Join(now time.Time, stored fleet.Node) *Node {
	n := &Node{Node: stored, Seen: now, Reported: true, Idle: now, Runs: map[id.Run]int{}, ports: map[int]id.Run{}}
	hardware := n.Inventory.Hardware()
	n.Identity.Accepted = &hardware // whoever has a join token may declare it
	n.State = fleet.Ready
	n.Since = now
	n.Joined = now
	n.Reason = "joined"
	r.byName[n.ID] = n
	r.index(n)
	r.change(n)
	r.CheckTwins(now, n, false)
	r.watch(n.ID, now.Add(r.patience.SuspectAfter))

	return n
}

// change records that a node has changed, and updates its free resources.
func (r *Nodes) change(n *Node) {
	n.Seq++
	r.changed.Add(n)
	node := n.Node
	r.watcher.Changed(n.ID)
	r.Changes++
	r.Rooms.Put(&node, n.Foreign)
	r.countSingle(&node)
}

// Move applies an event to a node and adds it to the feed.
func (r *Nodes) Move(now time.Time, n *Node, ev fleet.Event, actor, reason string) {
	to, err := n.State.After(ev)
	if err != nil {
		r.feed.Bug(now, err)
		return
	}

	from := n.State
	n.State, n.Since, n.Reason = to, now, reason
	r.change(n)

	r.feed.Add(
		now,
		batch.Event{Kind: "node." + string(to), Actor: actor, Node: n.ID, From: string(from), To: string(to), Reason: reason},
	)

	if to == fleet.Removed {
		r.Rooms.Remove(n.ID)
		r.reindex(now, n)

		return
	}

	r.CheckTwins(now, n, from == fleet.Lost)
}

// SetCordon cordons a node, or uncordons it, on behalf of a user.
func (r *Nodes) SetCordon(now time.Time, n *Node, on bool, by id.User) {
	if n.Cordoned == on {
		return
	}

	n.Cordoned, n.Since = on, now
	r.change(n)

	kind, reason := "node.cordoned", "cordoned by "+string(by)
	if !on {
		kind, reason = "node.uncordoned", "uncordoned by "+string(by)
	}

	r.feed.Add(now, batch.Event{Kind: kind, Actor: string(by), Node: n.ID, Reason: reason})
}

// Cordon stops scheduling on a node that is being released, also if its agent reports
// again.
func (r *Nodes) Cordon(now time.Time, n *Node, reason string) {
	if !n.Cordoned {
		n.Cordoned, n.Since, n.Reason = true, now, reason
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

// Listen records the port on which rank 0 of a restored run listens.
func (n *Node) Listen(run id.Run, port int) { n.ports[port] = run }
