package batch

import (
	"maps"
	"slices"

	"trainyard/internal/id"
	"trainyard/internal/job"
)

// Orders are the orders that are open.
type Orders struct {
	open    map[string]*entry
	changed []*entry
	closed  []string
}

// entry is an order that is open, or was when it changed last.
type entry struct {
	Order
	dirty bool
}

// NewOrders returns an empty set.
func NewOrders() *Orders { return &Orders{open: map[string]*entry{}} }

// Load restores the open orders. With adopt nodes must not start what they do not have yet.
func (o *Orders) Load(stored []Order, adopt bool) {
	for i := range stored {
		e := &entry{Order: stored[i]}
		e.Adopt = adopt
		o.open[e.Key()] = e
	}
}

// Len returns how many there are.
func (o *Orders) Len() int { return len(o.open) }

// All lists them by key.
func (o *Orders) All() []Order {
	list := make([]Order, 0, len(o.open))
	for _, key := range slices.Sorted(maps.Keys(o.open)) {
		list = append(list, o.open[key].Order)
	}

	return list
}

// Get returns the order of a rank, nil if none is open. It must not be changed.
func (o *Orders) Get(run id.Run, rank int) *Order {
	if e, ok := o.open[keyOf(run, rank)]; ok {
		return &e.Order
	}

	return nil
}

// Open orders that a rank be run.
func (o *Orders) Open(order *Order) {
	e := &entry{Order: *order}
	o.open[e.Key()] = e
	o.change(e)
}

// Stop orders that a rank be stopped, with dump after a snapshot. One without an open order has ended.
func (o *Orders) Stop(run id.Run, rank int, mode job.StopMode, dump bool) {
	if e, ok := o.open[keyOf(run, rank)]; ok {
		e.Stop, e.Dump = mode, dump
		o.change(e)
	}
}

// RequestSave orders that the program of a rank be asked to save a checkpoint once more.
func (o *Orders) RequestSave(run id.Run, rank int) {
	if e, ok := o.open[keyOf(run, rank)]; ok {
		e.Save++
		o.change(e)
	}
}

// Suspend orders that the program of a rank be suspended in place for a job, or with a zero order that it continue.
func (o *Orders) Suspend(run id.Run, rank int, order job.SuspendOrder) {
	if e, ok := o.open[keyOf(run, rank)]; ok {
		order.Number = e.Suspend.Number + 1
		e.Suspend = order
		o.change(e)
	}
}

// Introduce orders that the agent of a rank probe the other ranks of the run, whose agents answer at these ports.
func (o *Orders) Introduce(run id.Run, rank int, ports []int) {
	if e, ok := o.open[keyOf(run, rank)]; ok && !slices.Equal(e.Peers, ports) {
		e.Peers = ports
		o.change(e)
	}
}

// StartGang orders that the program of a rank of a run on several nodes be started.
func (o *Orders) StartGang(run id.Run, rank int, start *job.GangStart) {
	if e, ok := o.open[keyOf(run, rank)]; ok {
		e.Start = start
		o.change(e)
	}
}

// SetMove records in the order of a run's first rank to where its job is about to move, "" if it is not.
func (o *Orders) SetMove(run id.Run, to string) {
	if e, ok := o.open[keyOf(run, 0)]; ok && e.Move != to {
		e.Move = to
		o.change(e)
	}
}

func (o *Orders) change(e *entry) {
	if !e.dirty {
		e.dirty = true
		o.changed = append(o.changed, e)
	}
}

// Close ends the order of a rank.
func (o *Orders) Close(run id.Run, rank int) {
	key := keyOf(run, rank)
	e, ok := o.open[key]
	if !ok {
		return
	}

	delete(o.open, key)
	e.dirty = false
	o.closed = append(o.closed, key)
}

// Grow makes room for n more changes.
func (o *Orders) Grow(n int) { o.changed = slices.Grow(o.changed, n) }

// Take moves what has changed into a batch.
func (o *Orders) Take(b *Batch) {
	b.Closed, o.closed = o.closed, b.Closed[:0]
	b.Orders = slices.Grow(b.Orders[:0], len(o.changed))
	for _, e := range o.changed {
		if e.dirty { // otherwise it was closed meanwhile
			b.Orders = append(b.Orders, e.Order)
			e.dirty = false
		}
	}

	clear(o.changed)
	o.changed = o.changed[:0]
}
