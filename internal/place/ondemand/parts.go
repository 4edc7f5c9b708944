package ondemand

import (
	"math/bits"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/place"
	"trainyard/internal/queue"
)

// Parts is what is left of the GPUs of nodes that are being provisioned for jobs that want a part of one. Whoever fits
// beside such a job waits for its node instead of having another one provisioned: that comes no later, and its price is
// divided. It is valid for one round.
type Parts struct {
	view  *place.View
	nodes []comingNode
}

// comingNode is a node as it will be once the jobs that wait for it have started.
type comingNode struct {
	of   id.Job // for which it is provisioned
	room fleet.Room
}

// NewParts returns an empty list.
func NewParts(v *place.View) *Parts { return &Parts{view: v} }

// Add adds a node of an offer that is being provisioned for a job. Jobs with whole GPUs need not be added.
func (p *Parts) Add(it *queue.Item, o *fleet.Offer) {
	if it.Shape.Need.Share == 0 || o.GPUs == 0 {
		return
	}

	n := o.Node()
	all := ^uint64(0) >> (fleet.MaxGPUs - min(o.GPUs, fleet.MaxGPUs))
	coming := comingNode{it.Job, fleet.Room{
		Node: n, Open: true, Kind: -1, CPUs: n.Inventory.CPUs, Memory: n.Inventory.Memory, Sound: all, Free: all,
	}}

	coming.take(it, 1)
	p.nodes = append(p.nodes, coming)
}

// take gives a job its part of a GPU of the node.
func (c *comingNode) take(it *queue.Item, gpu uint64) {
	need := &it.Shape.Need
	c.room.Cut(gpu, place.CutOf(it, need.Share))
	c.room.CPUs -= need.CPUs
	c.room.Memory -= need.Memory
}

// Fits reports whether a job can have a part of a GPU of a node that is being provisioned for another.
func (p *Parts) Fits(it *queue.Item) bool {
	_, gpu := p.find(it)

	return gpu != 0
}

// Take gives a job that waits its part of such a GPU, and returns for whom the node is provisioned, "" if it fits on
// none.
func (p *Parts) Take(it *queue.Item) id.Job {
	at, gpu := p.find(it)
	if gpu == 0 {
		return ""
	}

	p.nodes[at].take(it, gpu)

	return p.nodes[at].of
}

// find returns a GPU that a job can have a part of, and its node; no GPU if there is none.
func (p *Parts) find(it *queue.Item) (node int, gpu uint64) {
	need := it.Shape.Need
	if need.Share == 0 || len(p.nodes) == 0 {
		return 0, 0
	}

	need.Avoid, need.Except = "", "" // nobody has failed there yet, and the names are new
	match, cut := fleet.NewMatcher(need), place.CutOf(it, need.Share)

	for i := range p.nodes {
		r := &p.nodes[i].room

		shared, free, _ := match.FitsPart(r, &cut)
		for k := range r.Parts {
			if g := &r.Parts[k]; g.GPU&shared != 0 && p.view.Beside.PartedFrom(p.view.Now, cut.Kind, g.Cuts) == nil {
				return i, g.GPU
			}
		}

		if free != 0 {
			return i, 1 << bits.TrailingZeros64(free)
		}
	}

	return 0, 0
}

// WhyParts says that a job waits for the node of another.
func WhyParts(of id.Job) string {
	return "will share a GPU of the node that is being provisioned for " + string(of)
}
