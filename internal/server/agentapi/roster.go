package agentapi

import (
	"sync"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/yardmaster"
)

// roster holds the committed state of each node and the agent that speaks for it. A certificate is valid until it
// expires; the roster is what refuses a node that was removed before that, and a copy of a node's data directory.
// Every call of an agent checks it, so it must not wait for the loop.
type roster struct {
	mu    sync.Mutex
	nodes map[id.Node]*rosterEntry // without those that were removed
	lost  chan struct{}            // closed when a node is removed or lost
}

// rosterEntry is one node.
type rosterEntry struct {
	state   fleet.State
	process string        // of the agent that was admitted last, "" if it does not say
	issued  time.Time     // of the newest certificate that the node has shown
	overlap time.Time     // until when older ones are accepted
	alarmed time.Time     // the certificate because of which somebody was told that an older one is still used
	changed chan struct{} // closed when the node is removed or another agent admitted
}

// newRoster returns the roster of a yard with these nodes.
func newRoster(nodes []yardmaster.NodeInfo) *roster {
	r := &roster{nodes: map[id.Node]*rosterEntry{}, lost: make(chan struct{})}
	for i := range nodes {
		e := r.entry(nodes[i].ID)
		e.state, e.process = nodes[i].State, nodes[i].Agent.Process
		e.issued, e.overlap = nodes[i].Identity.Issued, nodes[i].Identity.Overlap
	}

	return r
}

// entry returns that of a node, which it adds if it is new.
func (r *roster) entry(n id.Node) *rosterEntry {
	e, ok := r.nodes[n]
	if !ok {
		e = &rosterEntry{changed: make(chan struct{})}
		r.nodes[n] = e
	}

	return e
}

// Follow keeps up with a committed batch. The loop must call it before any other
// listener, so that whoever is woken by a batch finds it in the roster.
func (s *Server) Follow(b *yardmaster.Batch) {
	s.roster.update(b)

	for i := range b.Incarnations {
		s.setIncarnation(&b.Incarnations[i])
	}
}

func (r *roster) update(b *yardmaster.Batch) {
	r.mu.Lock()
	defer r.mu.Unlock()

	for i := range b.Agents {
		e := r.entry(b.Agents[i].Node)
		e.process = b.Agents[i].Process
		close(e.changed)
		e.changed = make(chan struct{})
	}

	for i := range b.Nodes {
		n := &b.Nodes[i]
		e := r.entry(n.ID)
		e.state = n.State
		e.issued, e.overlap = n.Identity.Issued, n.Identity.Overlap

		if n.State == fleet.Removed {
			delete(r.nodes, n.ID)
			close(e.changed)
		}

		if n.State == fleet.Removed || n.State == fleet.Lost {
			close(r.lost)
			r.lost = make(chan struct{})
		}
	}
}

// known refuses a node that was removed from the yard, or never was one.
func (r *roster) known(n id.Node) error {
	r.mu.Lock()
	defer r.mu.Unlock()

	_, err := r.find(n)

	return err
}

func (r *roster) find(n id.Node) (*rosterEntry, error) {
	e, ok := r.nodes[n]
	if !ok {
		return nil, fault.New(fault.Denied, "node_removed", "node %s has been removed from the yard", n).
			WithRemedy("join again with a new join token")
	}

	return e, nil
}

// accepts refuses a certificate that is older than the newest one that a node has shown. strange says, once for each
// of its certificates, that a process shows it which does not speak for the node.
func (r *roster) accepts(n id.Node, c *fleet.Certificate, process string, now time.Time) (strange bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()

	e, err := r.find(n)
	if err != nil {
		return false, err
	}

	if c.Issued.Before(e.issued) && now.After(e.overlap) {
		strange = process != e.process && !e.alarmed.Equal(e.issued)
		if strange {
			e.alarmed = e.issued
		}

		return strange, fault.New(fault.Denied, "certificate_replaced",
			"node %s has a newer certificate, of %s, and this one is not accepted any more", n, e.issued.Format(time.RFC3339)).
			WithRemedy("if the newer one was lost with the machine's disk, join again with a join token; " +
				"otherwise somebody else uses the identity of the node")
	}

	return false, nil
}

// admit refuses a node that was removed from the yard, and a process of an agent that does not speak for it; "" is
// one that does not say who it is. When the channel is closed the caller must check again.
func (r *roster) admit(n id.Node, process string) (<-chan struct{}, error) {
	r.mu.Lock()
	defer r.mu.Unlock()

	e, err := r.find(n)
	if err != nil {
		return nil, err
	}

	if e.process != "" && process != e.process {
		return nil, fault.New(fault.Conflict, api.CodeAgentNotAdmitted, "another agent speaks for node %s", n).
			WithRemedy("an agent that has just started is admitted with its first report")
	}

	return e.changed, nil
}

// Gone reports whether a node was removed or is lost, so that no more reports are expected.
func (s *Server) Gone(n id.Node) bool {
	r := s.roster
	r.mu.Lock()
	defer r.mu.Unlock()

	e, ok := r.nodes[n]

	return !ok || e.state == fleet.Lost
}

// WaitLost returns a channel that is closed when a node is lost or removed.
func (s *Server) WaitLost() <-chan struct{} {
	r := s.roster
	r.mu.Lock()
	defer r.mu.Unlock()

	return r.lost
}
