package agentapi

import (
	"sync"

	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/yardmaster"
)

// roster holds the committed state of each node. A certificate is valid until it
// expires; the roster is what refuses a node that was removed before that. Every call of an agent
// checks it, so it must not wait for the loop.
type roster struct {
	mu      sync.Mutex
	states  map[id.Node]fleet.State
	removed chan struct{} // closed when a node is removed
	lost    chan struct{} // closed when a node is removed or lost
}

// newRoster returns the roster of a yard with these nodes.
func newRoster(nodes []yardmaster.NodeInfo) *roster {
	r := &roster{states: map[id.Node]fleet.State{}, removed: make(chan struct{}), lost: make(chan struct{})}
	for _, n := range nodes {
		r.states[n.ID] = n.State
	}

	return r
}

// Follow keeps up with a committed batch. The loop must call it before any other
// listener, so that whoever is woken by a batch finds it in the roster.
func (s *Server) Follow(b *yardmaster.Batch) { s.roster.update(b) }

func (r *roster) update(b *yardmaster.Batch) {
	r.mu.Lock()
	defer r.mu.Unlock()

	for i := range b.Nodes {
		n := &b.Nodes[i]
		r.states[n.ID] = n.State

		if n.State == fleet.Removed {
			delete(r.states, n.ID)
			close(r.removed)
			r.removed = make(chan struct{})
		}

		if n.State == fleet.Removed || n.State == fleet.Lost {
			close(r.lost)
			r.lost = make(chan struct{})
		}
	}
}

// admit refuses a node that was removed from the yard. The channel is closed
// when a node is removed, and the caller must check again.
func (r *roster) admit(n id.Node) (<-chan struct{}, error) {
	r.mu.Lock()
	defer r.mu.Unlock()

	if _, ok := r.states[n]; !ok {
		return nil, fault.New(fault.Denied, "node_removed", "node %s has been removed from the yard", n).
			WithRemedy("join again with a new join token")
	}

	return r.removed, nil
}

// Gone reports whether a node was removed or is lost, so that no more reports are expected.
func (s *Server) Gone(n id.Node) bool {
	r := s.roster
	r.mu.Lock()
	defer r.mu.Unlock()

	state, ok := r.states[n]

	return !ok || state == fleet.Lost
}

// WaitLost returns a channel that is closed when a node is lost or removed.
func (s *Server) WaitLost() <-chan struct{} {
	r := s.roster
	r.mu.Lock()
	defer r.mu.Unlock()

	return r.lost
}
