package ondemand

import (
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/place"
)

// addGains says of the queued jobs for which a plan stops others what would have become of them
// otherwise: they would have waited, or nodes would have been provisioned for them. Without that
// the loss of those that are stopped would be booked, and not what it is for.
func (p *Policy) addGains(v *place.View, plan *place.Plan, jobs map[id.Job]*leased) {
	freed := freedBy(plan)
	if len(freed) == 0 {
		return
	}

	var gains []*place.Start
	for i := range plan.Starts {
		s := &plan.Starts[i]
		if s.Counterfactual != nil || freed[s.Item.Job] != "" || jobs[s.Item.Job] != nil || takesFrom(v, s, freed) == "" {
			continue
		}

		gains = append(gains, s)
	}

	if len(gains) == 0 {
		return
	}

	known := p.patiences // nothing is decided here that a later plan may depend on
	p.patiences = known.Clone()
	d := newDecider(p, v, plan, jobs)

	for i := range plan.Starts {
		if s := &plan.Starts[i]; freed[s.Item.Job] == "" && takesFrom(v, s, freed) == "" {
			d.enterStart(s)
		}
	}

	for _, s := range gains {
		if d.timeline.Visits() > maxVisits {
			break // nobody knows how long it would have waited
		}

		s.Counterfactual = d.withoutStops(s, takesFrom(v, s, freed))
	}

	p.timeline.Forget()
	p.patiences = known
}

// freedBy returns the jobs that a plan stops, with the kind of each decision.
func freedBy(plan *place.Plan) map[id.Job]place.DecisionKind {
	if len(plan.Stops) == 0 {
		return nil
	}

	freed := make(map[id.Job]place.DecisionKind, len(plan.Stops))
	for i := range plan.Stops {
		freed[plan.Stops[i].Running.Job] = place.Preemption
	}

	for i := range plan.Starts {
		if j := plan.Starts[i].Item.Job; freed[j] != "" {
			freed[j] = place.Move
		}
	}

	return freed
}

// takesFrom returns the kind of the decision that frees GPUs for a start, "" if it takes none that
// others hold.
func takesFrom(v *place.View, s *place.Start, freed map[id.Job]place.DecisionKind) place.DecisionKind {
	var kind place.DecisionKind
	for _, a := range s.Allocations {
		at, ok := find(v, a.Node)
		if !ok {
			continue
		}

		for i := range v.Rooms[at].Holds {
			h := &v.Rooms[at].Holds[i]
			if k := freed[h.Job]; k != "" && h.GPUs&a.GPUs != 0 && kind != place.Preemption {
				kind = k
			}
		}
	}

	return kind
}

// withoutStops is what would have been done with a queued job if nothing had been stopped for it. A
// policy that provisions by a rule of its own would have let it wait.
func (d *decider) withoutStops(s *place.Start, kind place.DecisionKind) *place.Counterfactual {
	a := d.claims.Allow(s.Item)
	w := d.waitingFor(s.Item)

	offer, offered := d.offer(w, &a, d.catalogue.First)
	c := d.choose(w, &a, &offer, offered && !d.decidesItself(d.view))
	runs := d.takes(s)

	switch {
	case c.offer != nil:
		return Instead(kind, d.view, s.Item, runs, c.offer)
	case !c.found || c.own.startsIn == 0:
		return nil // nobody knows when it would have started
	}

	for _, at := range c.own.rooms {
		d.timeline.Reserve(at, c.own.startsIn, w.shape.Takes, c.own.runs)
	}

	return d.insteadOnOwn(kind, w, runs, &c.own)
}

// takes returns how long a job runs where a plan starts it.
func (d *decider) takes(s *place.Start) time.Duration {
	node := func(n id.Node) *fleet.Node {
		at, ok := find(d.view, n)
		if !ok {
			return nil
		}

		return d.view.Rooms[at].Node
	}

	if takes := place.RunTimeOn(s.Item, s.Allocations, node); takes > 0 {
		return takes
	}

	return d.lasts(s.Item)
}
