package metrics

import (
	"math/bits"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/ledger"
)

// node is a node, or a machine that was provisioned and has not become one yet. What it
// points to is never changed: who looks has the same.
type node struct {
	name  id.Node
	info  *fleet.Node   // nil if it has not joined, or was taken out
	meter *ledger.State // nil if it has none
	dirty bool          // among those that have changed
}

// at returns a node, made if there is none, as one that changes.
func (b *Collector) at(name id.Node) *node {
	n, ok := b.nodes[name]
	if !ok {
		n = &node{name: name}
		b.nodes[name] = n
	}

	if !n.dirty {
		n.dirty = true
		b.changed = append(b.changed, n)
	}

	return n
}

// node takes a node that is new or has changed.
func (b *Collector) node(stored *fleet.Node) {
	n := b.at(stored.ID)
	n.info = nil
	if stored.State != fleet.Removed {
		info := *stored
		n.info = &info
	}
}

// meter takes how a node's meter stands.
func (b *Collector) meter(s *ledger.State) {
	state := *s
	b.at(s.Node).meter = &state
}

// run takes a run that is new or has changed: on which class of nodes it is.
func (b *Collector) run(r *job.Run) {
	var class fleet.Class
	if len(r.Ranks) > 0 {
		if n, ok := b.nodes[r.Ranks[0].Node]; ok && n.info != nil {
			class = n.info.Class
		}
	}

	b.runs[r.ID] = class
}

// reading is what one node shows: who has how much of it by the hour, and what its
// GPUs do. It stays until the node changes.
type reading struct {
	class   fleet.Class
	state   fleet.State // "" of a machine that has not joined
	drained bool
	since   time.Time // posted until then
	hourly  []portion // how an hour of this would be posted
	devices []device  // alike ones together
}

// device is GPUs of one model that do the same.
type device struct {
	model  string
	state  fleet.GPUState
	count  int
	tflops float64
}

// States of a GPU that only the books tell apart: the node is there for nobody.
const (
	gpuCordoned  fleet.GPUState = "cordoned"
	gpuBoot      fleet.GPUState = "boot"
	gpuReleasing fleet.GPUState = "releasing"
)

// read works out what a node shows.
func (n *node) read() *reading {
	r := &reading{}

	if n.info != nil {
		r.class = n.info.Class
		r.state = n.info.State
		r.drained = n.info.Cordoned
	}

	if n.meter == nil {
		if n.info != nil {
			r.devices = n.devices(&ledger.State{Status: ledger.StatusOf(n.info, 0, nil)})
		}

		return r
	}

	r.class, r.devices = n.meter.Class, n.devices(n.meter)

	m, err := ledger.LoadMeter(*n.meter)
	if err != nil {
		return r // the yard itself refuses to start with such a meter
	}

	r.since = m.Since()
	postings := m.Peek(nil, r.since.Add(time.Hour))
	r.hourly = make([]portion, len(postings))
	for i := range postings {
		r.hourly[i] = portionOf(&postings[i])
	}

	return r
}

// devices says what each GPU does.
func (n *node) devices(s *ledger.State) []device {
	rest := atRest(s.Status.Rest)
	if n.info == nil { // all that is known is what was asked for
		if s.GPUs == 0 {
			return nil
		}

		return []device{{model: s.GPU, state: rest, count: bits.OnesCount64(s.GPUs)}}
	}

	var allocated uint64
	for i := range s.Holders {
		allocated |= s.Holders[i].GPUs
	}

	var list []device

	for i := range n.info.Inventory.GPUs {
		g := &n.info.Inventory.GPUs[i]
		bit := uint64(0)
		if g.Index >= 0 && g.Index < fleet.MaxGPUs {
			bit = 1 << g.Index
		}

		state := rest
		switch {
		case allocated&bit != 0:
			state = fleet.GPURunning
		case s.Status.Error&bit != 0 || g.Error != "":
			state = fleet.GPUError
		case s.Status.Foreign&bit != 0:
			state = fleet.GPUForeign
		}

		list = addDevice(list, g, state)
	}

	return list
}

// atRest is what a GPU does that nobody uses.
func atRest(a ledger.Account) fleet.GPUState {
	switch a {
	case ledger.Error:
		return fleet.GPUError
	case ledger.Cordoned:
		return gpuCordoned
	case ledger.Boot:
		return gpuBoot
	case ledger.Releasing:
		return gpuReleasing
	case ledger.Use, ledger.Idle, ledger.Foreign, ledger.Waste:
	}

	return fleet.GPUIdle
}

// addDevice counts a GPU with those that are like it.
func addDevice(list []device, g *fleet.GPU, state fleet.GPUState) []device {
	speed, _ := g.TFLOPS()
	for i := range list {
		if d := &list[i]; d.model == g.Model && d.state == state {
			d.count++
			d.tflops += speed
			return list
		}
	}

	return append(list, device{model: g.Model, state: state, count: 1, tflops: speed})
}
