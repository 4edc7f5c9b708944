package rules

import (
	"trainyard/internal/fleet"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/money"
	"trainyard/internal/place"
	"trainyard/internal/place/timeline"
)

// reserve keeps a job's nodes for it from the time at which they will be free.
func (e *engine) reserve(j *queuedJob, o *option) {
	n := timeline.SizeOf(&j.item.Shape.Need)
	for _, at := range o.rooms {
		e.timeline.Reserve(at, o.startsIn, n, o.runs)
	}

	if j.patience.Share > 0 && !j.costSensitive {
		e.wakeAt(j.since.Add(j.patience.Most(e.cfg.Ageing)))
	}

	if e.plan.Reservation == nil {
		e.plan.Reservation = &place.Reservation{Job: j.item.Job, Nodes: e.names(o.rooms), At: e.view.Now.Add(o.startsIn)}
	}
}

// start starts a job on the nodes of an option.
func (e *engine) start(j *queuedJob, o *option, all []option) {
	need := &j.item.Shape.Need
	match := e.shapeOf(j).Match

	s := place.Start{Item: j.item, Allocations: make([]place.Allocation, 0, len(o.rooms))}
	for _, at := range o.rooms {
		r := e.timeline.Room(at)
		gpus := fleet.LowestGPUs(match.MatchingGPUs(&r)&r.Free, o.gpus)
		s.Allocations = append(s.Allocations, place.Allocation{Node: r.Node.ID, GPUs: gpus})
		e.timeline.Start(at, gpus, need, o.runs)
	}

	e.claims.Start(j.item, o.gpus*len(o.rooms))
	s.Reason = e.whyHere(j, o, all)
	e.undedicate(j)
	s.Saves, s.Instead = e.saves(o, all)
	e.plan.Starts = append(e.plan.Starts, s)
}

// saves returns what a start costs less than provisioning would have.
func (e *engine) saves(o *option, all []option) (money.Amount, string) {
	for i := range all {
		if h := &all[i]; h.provisions() && !o.provisions() && !e.rented(o) &&
			h.ledgerCost > o.ledgerCost {
			return h.ledgerCost - o.ledgerCost,
				"instead of provisioning " + h.offer.Offer.Name + " for " + humanize.Dollars(h.ledgerCost)
		}
	}

	return 0, ""
}

// provision requests nodes for a job.
func (e *engine) provision(j *queuedJob, o *option) {
	e.plan.Provisions = append(e.plan.Provisions, place.Provision{
		Item: j.item, Offer: o.offer.Offer.Name, Count: o.offer.Nodes, Cost: o.marginalCost,
		Reason: e.whyProvision(j, o),
	})
	e.claims.Provision(&e.plan.Provisions[len(e.plan.Provisions)-1])
}

// stop preempts a running job.
func (e *engine) stop(j *queuedJob, at int32, v *victim, gain money.Amount) {
	e.timeline.Vacate(at, v.running.Job, v.gpus, &v.running.Shape.Need)
	e.freed++
	e.plan.Stops = append(e.plan.Stops, place.Stop{Running: v.running, Reason: e.whyStop(j, v, gain)})
}

func (e *engine) names(rooms []int32) []id.Node {
	list := make([]id.Node, len(rooms))
	for i, at := range rooms {
		list[i] = e.view.Rooms[at].Node.ID
	}

	return list
}
