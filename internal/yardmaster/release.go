package yardmaster

import (
	"fmt"

	"trainyard/internal/fault"
	"trainyard/internal/id"
)

// EventReleased is the kind of the event that tells of the release of a GPU, with its UUID in To.
const EventReleased = "gpu.released"

// ReleaseGPU writes down that a GPU which its agent keeps out of use may be used
// again. The agent lets it go when it is told. The answer is the event.
type ReleaseGPU struct {
	Node id.Node
	GPU  int
	By   id.User
}

func (m ReleaseGPU) handle(y *Yard) (any, error) {
	n, err := y.findNode(m.Node)
	if err != nil {
		return nil, err
	}
	g := n.Inventory.GPU(m.GPU)
	if g == nil {
		return nil, fault.New(fault.NotFound, "gpu_not_found", "node %s has no GPU %d", n.ID, m.GPU).WithField("gpu")
	}
	if g.Error == "" {
		return nil, fault.New(fault.Conflict, "gpu_in_order", "GPU %d of node %s is not kept out of use", m.GPU, n.ID)
	}
	y.event(Event{Kind: EventReleased, Actor: string(m.By), Node: n.ID, To: g.UUID,
		Reason: fmt.Sprintf("GPU %d may be used again, says %s; it was kept out of use: %s", m.GPU, m.By, g.Error)})
	return y.out.events[len(y.out.events)-1], nil
}
