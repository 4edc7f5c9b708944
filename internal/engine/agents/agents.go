// Package agents is the engine of our own node agents.
//
// It keeps for each node the set of open orders: what the node must run. An
// agent that is connected is handed the whole set whenever it changes, with a
// generation number, so a lost message does not matter. It never calls an
// agent: agents dial in through server, which asks Desired and waits on it.
package agents

import (
	"slices"
	"strings"
	"sync"

	"trainyard/internal/engine"
	"trainyard/internal/id"
	"trainyard/internal/yardmaster"
)

// Hub holds what each node must run. It is safe for concurrent use.
type Hub struct {
	mu    sync.Mutex
	nodes map[id.Node]*desired
	where map[string]id.Node // node of each open order
}

type desired struct {
	generation uint64
	orders     map[string]yardmaster.Order
	changed    chan struct{} // closed at the next change
}

var _ engine.Engine = (*Hub)(nil)

// New returns a hub that knows these open orders.
func New(open []yardmaster.Order) *Hub {
	h := &Hub{nodes: map[id.Node]*desired{}, where: map[string]id.Node{}}
	h.Carry(open, nil)
	return h
}

// Carry takes orders that were opened or changed and drops closed ones.
func (h *Hub) Carry(orders []yardmaster.Order, closed []string) {
	h.mu.Lock()
	defer h.mu.Unlock()

	touched := map[*desired]bool{}

	for i := range orders {
		key := orders[i].Key()
		d := h.node(orders[i].Node)
		d.orders[key] = orders[i]
		h.where[key] = orders[i].Node
		touched[d] = true
	}

	for _, key := range closed {
		node, ok := h.where[key]
		if !ok {
			continue
		}

		delete(h.where, key)
		d := h.node(node)
		delete(d.orders, key)
		touched[d] = true
	}

	for d := range touched {
		d.generation++
		close(d.changed)
		d.changed = make(chan struct{})
	}
}

func (h *Hub) node(n id.Node) *desired {
	d, ok := h.nodes[n]
	if !ok {
		d = &desired{generation: 1, orders: map[string]yardmaster.Order{}, changed: make(chan struct{})}
		h.nodes[n] = d
	}

	return d
}

// Desired returns all that a node must run, in a fixed order, the generation
// of that, and a channel that is closed when it changes.
func (h *Hub) Desired(n id.Node) (orders []yardmaster.Order, generation uint64, changed <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()

	d := h.node(n)
	for _, o := range d.orders {
		orders = append(orders, o)
	}

	slices.SortFunc(orders, func(a, b yardmaster.Order) int { return strings.Compare(a.Key(), b.Key()) })

	return orders, d.generation, d.changed
}

// Generation returns the generation of what a node must run.
func (h *Hub) Generation(n id.Node) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.node(n).generation
}
