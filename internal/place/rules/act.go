package rules

import (
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/money"
	"trainyard/internal/place"
	"trainyard/internal/place/ondemand"
)

// reserve keeps a job's nodes for it from the time at which they will be free.
func (e *engine) reserve(j *queuedJob, o *option) {
	e.keep(j, o)

	e.plan.Bookings = append(e.plan.Bookings, place.Booking{
		Item: j.item, Rooms: o.rooms, StartsIn: o.startsIn, Lasts: o.runs,
	})

	if j.patience.Share > 0 && !j.costSensitive {
		e.wakeAt(j.since.Add(j.patience.Most()))
	}

	if e.plan.Reservation == nil {
		e.plan.Reservation = &place.Reservation{Job: j.item.Job, Nodes: e.names(o.rooms), At: e.view.Now.Add(o.startsIn)}
	}
}

// letWait notes that a job waits for better nodes although it could start on others now, that
// a quota or budget forbids to provision nodes for it, that it will share a GPU of a node that is
// being provisioned for another, or that it is kept apart from a job on the GPU that it could share.
// o is what it waits for, nil if nothing is reserved for it.
func (e *engine) letWait(j *queuedJob, o *option, all []option) {
	coming := id.Job("")
	if a := e.allowance(j); len(j.leases) == 0 && a.HoldReason == "" && !a.NoProvisioning {
		coming = e.parts.Take(j.item)
	}

	if len(e.plan.Waits) == place.MaxWaits {
		return
	}

	barred := ""
	for i := range all {
		a := &all[i]
		switch {
		case a.barredBy != "":
			barred = "offer " + a.offer.Offer.Name + " is not provisioned: " + a.barredBy
		case o != nil && !a.provisions() && a.startsIn == 0:
			e.plan.Waits = append(e.plan.Waits, place.Wait{Job: j.item.Job, Reason: e.whyWait(j, o, a)})
			return
		}
	}

	reason := barred

	switch {
	case barred != "":
	case coming != "":
		reason = ondemand.WhyParts(coming)
	case e.apart != nil:
		reason = whyApart(e.apart)
	}

	if reason != "" {
		e.plan.Waits = append(e.plan.Waits, place.Wait{Job: j.item.Job, Reason: reason})
	}
}

// start starts a job on the nodes of an option. instead is what would have been done otherwise.
func (e *engine) start(j *queuedJob, o *option, all []option, instead *place.Counterfactual) {
	need := &j.item.Shape.Need
	match := e.shapeOf(j).Match

	s := place.Start{
		Item: j.item, Allocations: make([]place.Allocation, 0, len(o.rooms)), Counterfactual: instead,
	}

	for _, at := range o.rooms {
		if need.Share > 0 {
			s.Allocations = append(s.Allocations, e.startPart(j, o, at, match))
			continue
		}

		r := e.timeline.Room(at)
		gpus := fleet.LowestGPUs(match.MatchingGPUs(&r)&r.Free, o.gpus)
		s.Allocations = append(s.Allocations, place.Allocation{Node: r.Node.ID, GPUs: gpus})
		e.timeline.Start(at, gpus, need, o.runs)
	}

	e.claims.Start(j.item, o.gpus*len(o.rooms))
	s.Reason = e.whyHere(j, o, all)
	e.undedicate(j)
	e.plan.Starts = append(e.plan.Starts, s)
}

// provision requests nodes for a job.
func (e *engine) provision(j *queuedJob, o *option, instead *place.Counterfactual) {
	e.plan.Provisions = append(e.plan.Provisions, place.Provision{
		Item: j.item, Offer: o.offer.Offer.Name, Count: o.offer.Nodes, Cost: o.marginalCost,
		Reason: e.whyProvision(j, o), Counterfactual: instead,
	})
	e.claims.Provision(&e.plan.Provisions[len(e.plan.Provisions)-1])
	e.parts.Add(j.item, o.offer.Offer)
}

// stop preempts a running job.
func (e *engine) stop(j *queuedJob, at int32, v *victim, gain money.Amount) {
	e.timeline.Vacate(at, v.running.Job, v.gpus, &v.running.Shape.Need)
	e.freed++
	e.plan.Stops = append(e.plan.Stops, place.Stop{
		Running: v.running, Reason: e.whyStop(j, v, gain),
	})
}

func (e *engine) names(rooms []int32) []id.Node {
	list := make([]id.Node, len(rooms))
	for i, at := range rooms {
		list[i] = e.view.Rooms[at].Node.ID
	}

	return list
}
