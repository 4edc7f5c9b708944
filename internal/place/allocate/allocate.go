// Package allocate assigns nodes and GPUs to jobs whose number of GPUs has been decided. The
// elastic policies and those that search use it: they decide how many GPUs each job gets,
// and this package decides which.
//
// A job that keeps its count keeps its seats. One that grows or shrinks is restarted anyway,
// so it keeps as many of them as it can only if it would not need fewer nodes elsewhere. New
// seats are on few nodes, the tightest that fit, of the cheapest class first. All seats of a
// job are on one kind of GPU, because a job on two kinds runs at the speed of the slower. The
// package decides no counts and knows no speeds, and it changes nothing in the view.
package allocate

import (
	"cmp"
	"slices"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/place"
	"trainyard/internal/queue"
)

// Request is the number of GPUs that one job is to have.
type Request struct {
	Item    *queue.Item
	Running *place.Running // what it holds; nil if it is queued
	// GPUs is how many GPUs the job is to have on all its nodes together, 0 for none. For a job
	// that asks for no GPUs it is the number of nodes.
	GPUs int
	// Min is the smallest useful count. A job that cannot have that many gets nothing. If it runs
	// and was to grow, it stays as it is, provided that its seats were not given to others. 0 means
	// the minimum of its need.
	Min int
	// Kinds are the kinds of rooms that the job may use, as in fleet.Room, the best first. Nil
	// means all that its need allows.
	Kinds []int32
}

// Allocation is what one job gets.
type Allocation struct {
	Seats     []place.Allocation // in rank order; nil for nothing
	GPUs      int                // total GPUs, or nodes for a job without GPUs; may be less than requested
	Unchanged bool               // it runs on exactly these seats and need not be stopped
}

// Options restricts what Assign may do.
type Options struct {
	// Move permits moving jobs to other nodes to make room for a larger one that would get less
	// than requested. Without it a job moves only when its count or kind changes.
	Move bool
}

// Movable reports whether a running job may be given other seats: it resumes from a
// checkpoint, is not being stopped already, and has whole GPUs. A job that shares one stays
// where it is.
func Movable(r *place.Running) bool {
	return r.Stoppable() && !slices.ContainsFunc(r.Allocations, func(s place.Allocation) bool { return s.Share != 0 })
}

// Assign assigns seats to the requests. Jobs that are not among them, or not movable, keep their
// seats. Requests are served by count, the largest first, because it is hardest to place, and then
// in the order of the list.
func Assign(v *place.View, requests []Request, o Options) []Allocation {
	al := newAllocator(v, requests)
	var order []int
	for i := range requests {
		if al.keep(i) {
			order = append(order, i)
		}
	}

	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(requests[b].GPUs, requests[a].GPUs) })
	for _, i := range order {
		al.serve(i)

		if o.Move && al.allocations[i].count < requests[i].GPUs {
			al.makeRoom(i)
		}
	}

	results := make([]Allocation, len(requests))
	for i := range requests {
		results[i] = al.result(i)
	}

	return results
}

// Plan returns the plan that carries out the allocations: jobs whose seats change are stopped and
// started again. why returns the reason for the change of a request; takers are the jobs that
// get GPUs which it holds now.
func Plan(requests []Request, results []Allocation, why func(i int, takers []id.Job) string) place.Plan {
	var p place.Plan
	takers := takersOf(requests, results)

	for i := range requests {
		w, g := &requests[i], &results[i]
		if g.Unchanged || w.Running == nil && len(g.Seats) == 0 {
			continue
		}

		var by []id.Job
		if w.Running != nil {
			by = takers.Of(w.Running)
		}

		reason := why(i, by)
		if w.Running != nil {
			p.Stops = append(p.Stops, place.Stop{Running: w.Running, Reason: reason})
		}

		if len(g.Seats) > 0 {
			p.Starts = append(p.Starts, place.Start{Item: w.Item, Allocations: g.Seats, Reason: reason})
		}
	}

	return p
}

// takersOf returns who gets GPUs by the allocations.
func takersOf(requests []Request, results []Allocation) place.Takers {
	var starts []place.Start
	for i := range requests {
		if g := &results[i]; !g.Unchanged && len(g.Seats) > 0 {
			starts = append(starts, place.Start{Item: requests[i].Item, Allocations: g.Seats})
		}
	}

	return place.TakersOf(starts)
}

// Kind is a kind of room: nodes with one kind of GPU.
type Kind struct {
	ID      int32      // as in fleet.Room: -1 for nodes without GPUs or with several kinds
	GPU     *fleet.GPU // an example, nil without GPUs
	GPUs    int        // that are free or held by movable jobs
	Nodes   int        // that have such GPUs, or that have none
	Largest int        // most such GPUs of one node
}

// Vacant returns the rooms as they would be without the movable jobs.
func Vacant(v *place.View) []fleet.Room {
	al := &allocator{view: v, rooms: slices.Clone(v.Rooms)}
	al.vacate(v.Running)
	return al.rooms
}

// Kinds returns what can be allocated if the movable jobs are taken off, by kind: first nodes without GPUs or with
// several kinds (-1), then the others in the order of their first nodes. Closed nodes do not count.
func Kinds(v *place.View) []Kind { return KindsOf(Vacant(v)) }

// KindsOf returns what can be allocated in vacant rooms. The order of the kinds is that of the rooms, which are by
// name: the numbers of kinds say which joined first, and that must not decide anything.
func KindsOf(vacant []fleet.Room) []Kind {
	var kinds []Kind

	for i := range vacant {
		r := &vacant[i]
		if !r.Open {
			continue
		}

		at := slices.IndexFunc(kinds, func(k Kind) bool { return k.ID == r.Kind })
		if at < 0 {
			at = len(kinds)
			if r.Kind < 0 {
				at = 0
			}

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
