package yardmaster_test

import (
	"fmt"
	"maps"
	"slices"

	"trainyard/internal/id"
	"trainyard/internal/yardmaster"
)

// ordersOf returns what a node shall run, by key: what is stored, with what only the yard knows of it.
func (d *driver) ordersOf(n id.Node) map[string]yardmaster.Order {
	mine := d.store.ordersOf(n)
	for _, o := range d.yard.Orders() {
		if stored, ok := mine[o.Key()]; ok {
			stored.Adopt = o.Adopt
			mine[o.Key()] = stored
		}
	}

	return mine
}

// backUpOrRestore copies the store, or puts an older copy back as the server does that recognises it.
func (d *driver) backUpOrRestore() error {
	switch {
	case d.calm:
		return nil
	case d.backup == nil || d.chance(2):
		d.backup = d.store.clone()
		return nil
	case d.chance(2):
		return nil
	}

	lost := d.store
	d.restores++
	d.pending = nil
	d.store = d.backup.clone()

	found := yardmaster.Numbers{Job: lost.lastJob, Event: lost.lastEvent}
	i := d.store.incarnation.After(d.wall(), lost.incarnation.Number, found, "the test restored a backup")
	i.Mark = id.UID(fmt.Sprint("mark ", d.restores))
	d.store.incarnation, d.store.lastJob, d.store.lastEvent = i, i.Last.Job, i.Last.Event
	maps.Copy(d.store.events, lost.events) // what was seen was seen

	d.keyed = slices.DeleteFunc(d.keyed, func(s submission) bool {
		_, known := d.store.jobs[s.jobs[0]]
		return !known
	})

	return d.restart()
}
