// Package seats finds the nodes and GPUs for jobs whose number of GPUs has been
// decided. The elastic policies and those that search use it: they think in
// counts, and the seats follow.
//
// A job that keeps its count keeps its seats. One that grows or shrinks keeps as
// much of them as it can, unless it can be had on fewer nodes: it starts again
// anyway. What is new goes onto few nodes, the tightest that will do, of the
// cheapest class first. All seats of a job are on one kind of GPU, because a job
// on two kinds goes as fast as on the slower. The package decides no counts and
// knows no speeds, and it changes nothing in the view.
package seats

import (
	"cmp"
	"slices"

	"trainyard/internal/fleet"
	"trainyard/internal/place"
	"trainyard/internal/queue"
)

// Want is how much one job shall have.
type Want struct {
	Item    *queue.Item
	Running *place.Running // what it holds; nil if it waits
	// GPUs is how many it shall have on all its nodes together, 0 for nothing. For a
	// job that asks for no GPUs it is the number of nodes.
	GPUs int
	// Least is with how few it is served. One that cannot have that many gets
	// nothing, or stays as it is if it runs, was to grow, and nobody else was given
	// its seats. 0 means the least that its need allows.
	Least int
	// Kinds are the kinds of rooms it may have, as in fleet.Room, the best first.
	// Nil means all that its need allows.
	Kinds []int32
}

// Given is what a job gets.
type Given struct {
	Seats []place.Seat // in rank order; nil for nothing
	GPUs  int          // in all, or nodes if it asks for no GPUs; less than was wanted if there is no more
	Stays bool         // it runs on just these seats and need not be stopped
}

// Options say how far a deal may go.
type Options struct {
	// Move lets jobs be moved to other nodes to make room for a greater one that
	// would get less than it is to have. Without it a job moves only when its count
	// or kind changes.
	Move bool
}

// Loose reports whether a running job may be given other seats: it goes on from
// where it was, is not being stopped already, and has whole GPUs. Who shares one
// stays where it is.
func Loose(r *place.Running) bool {
	return r.Outlook.Resumes && !r.Stopping && !slices.ContainsFunc(r.Seats, func(s place.Seat) bool { return s.Share != 0 })
}

// Deal gives each of the wants its seats. What jobs hold that are not among them,
// or not loose, stays theirs. The greatest count is served first, then the
// earlier in the list.
func Deal(v *place.View, wants []Want, o Options) []Given {
	d := newDealer(v, wants)
	var order []int
	for i := range wants {
		if d.keep(i) {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(wants[b].GPUs, wants[a].GPUs) })
	for _, i := range order {
		d.serve(i)
		if o.Move && d.dealt[i].count < wants[i].GPUs {
			d.makeRoom(i)
		}
	}
	given := make([]Given, len(wants))
	for i := range wants {
		given[i] = d.given(i)
	}
	return given
}

// Plan is the plan that gives the jobs what they were dealt: those that run on
// other seats than before are stopped and started again. why gives the reason for
// the change of one of the wants.
func Plan(wants []Want, given []Given, why func(i int) string) place.Plan {
	var p place.Plan
	for i := range wants {
		w, g := &wants[i], &given[i]
		if g.Stays || w.Running == nil && len(g.Seats) == 0 {
			continue
		}
		reason := why(i)
		if w.Running != nil {
			p.Stops = append(p.Stops, place.Stop{Running: w.Running, Reason: reason})
		}
		if len(g.Seats) > 0 {
			p.Starts = append(p.Starts, place.Start{Item: w.Item, Seats: g.Seats, Reason: reason})
		}
	}
	return p
}

// Kind is a kind of room: nodes with one kind of GPU.
type Kind struct {
	ID      int32      // as in fleet.Room: -1 for nodes without GPUs or with several kinds
	GPU     *fleet.GPU // one of them, nil without
	GPUs    int        // that are free or held by loose jobs
	Nodes   int        // with such GPUs, or without any
	Largest int        // most such GPUs of one node
}

// Vacant returns the rooms as they would be if every loose job gave back what it holds.
func Vacant(v *place.View) []fleet.Room {
	d := &dealer{view: v, rooms: slices.Clone(v.Rooms)}
	d.free(v.Running)
	return d.rooms
}

// Kinds tells what there is to be dealt out if every loose job gave back what it
// holds, by kind in the order of their IDs. Closed nodes do not count.
func Kinds(v *place.View) []Kind { return KindsOf(Vacant(v)) }

// KindsOf tells what there is to be dealt out of vacant rooms.
func KindsOf(vacant []fleet.Room) []Kind {
	var kinds []Kind
	for i := range vacant {
		r := &vacant[i]
		if !r.Open {
			continue
		}
		at, found := slices.BinarySearchFunc(kinds, r.Kind, func(k Kind, id int32) int { return cmp.Compare(k.ID, id) })
		if !found {
			kinds = slices.Insert(kinds, at, Kind{ID: r.Kind})
		}
		k, n := &kinds[at], count(r.Free)
		if k.GPU == nil && len(r.Node.Inventory.GPUs) > 0 {
			k.GPU = &r.Node.Inventory.GPUs[0]
		}
		if n > 0 || r.Sound == 0 {
			k.Nodes++
		}
		k.GPUs += n
		k.Largest = max(k.Largest, n)
	}
	return kinds
}
