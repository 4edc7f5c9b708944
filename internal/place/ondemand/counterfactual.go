package ondemand

import (
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/place"
	"trainyard/internal/provision"
	"trainyard/internal/queue"
	"trainyard/internal/tenant"
)

// nobody is whom a room is dedicated to while it is looked up what would be done without it.
const nobody = id.Job("nobody")

// deferral records the decision that a job waits for nodes of the yard although nodes could be
// provisioned for it. Without the nodes that it waits for it might wait for others: then nothing
// would be provisioned either way.
func (d *decider) deferral(w *waiting, a *tenant.Allowance, taken *choice, offer *provision.Option) {
	if w.item.Deferred {
		return
	}

	visits := d.timeline.Visits()

	for _, at := range taken.own.rooms {
		d.timeline.Dedicate(at, nobody)
	}

	other := d.choose(w, a, offer, true)

	for _, at := range taken.own.rooms {
		d.timeline.Undedicate(at)
	}

	d.uncounted += d.timeline.Visits() - visits

	l := place.Deferral{Item: w.item}
	if other.offer != nil {
		l.Counterfactual = Instead(place.Waiting, d.view, w.item, taken.own.runs, other.offer)
	}

	d.plan.Deferrals = append(d.plan.Deferrals, l)
}

// insteadOfProvisioning is what would be done if an offer did not exist: provision another, or wait
// for nodes of the yard. Nil if the job could not run then, or if it is not known when.
func (d *decider) insteadOfProvisioning(w *waiting, a *tenant.Allowance, taken *choice) *place.Counterfactual {
	rest := slices.DeleteFunc(slices.Clone(d.view.Offers), func(o fleet.Offer) bool {
		return o.Name == taken.offer.Offer.Name
	})

	without := *w
	visits := d.timeline.Visits()
	offer, offered := d.offer(&without, a, func(n *fleet.Need, q *provision.Query) (provision.Option, bool) {
		return NewCatalogue(rest).Fit(n).Best(*q)
	})
	other := d.choose(&without, a, &offer, offered)
	d.uncounted += d.timeline.Visits() - visits

	runs := taken.offer.Finish.Sub(taken.offer.Start)

	switch {
	case other.offer != nil:
		return Instead(place.Placement, d.view, w.item, runs, other.offer)
	case other.found && other.own.startsIn > 0:
		return d.insteadOnOwn(place.Placement, w, runs, &other.own)
	}

	return nil // of nodes that are free and that the policy does not use nobody knows when it would
}

// insteadOnOwn is the counterfactual of a job that would have waited for nodes of the yard. runs is how
// long it runs where it is placed.
func (d *decider) insteadOnOwn(
	kind place.DecisionKind, w *waiting, runs time.Duration, o *option,
) *place.Counterfactual {
	c := &place.Counterfactual{
		Kind: kind, What: "wait for " + d.describe(w, o), StartsIn: o.startsIn, ReadyIn: o.readyIn, Runs: o.runs,
	}
	c.Compare(w.item, runs)

	for _, at := range o.rooms {
		r := &d.view.Rooms[at]
		gpus := fleet.LowestGPUs(w.shape.Match.MatchingGPUs(r), w.item.Shape.Need.GPUs)
		c.Allocations = append(c.Allocations, place.Allocation{Node: r.Node.ID, GPUs: gpus})
	}

	return c
}

// describe names the nodes of the yard for which a job waits.
func (d *decider) describe(w *waiting, o *option) string {
	n := d.view.Rooms[o.rooms[0]].Node
	text := "node " + string(n.ID)

	if more := len(o.rooms) - 1; more > 0 {
		text += " and " + humanize.Count(more, "other node")
	}

	gpus := w.item.Shape.Need.GPUs
	if g := n.Inventory.GPUs; gpus > 0 && len(g) > 0 {
		text += " (" + humanize.GPUs(gpus, g[0].Model, g[0].Memory) + ")"
	}

	return text
}

// Instead is the counterfactual of a job for which nodes of an offer would have been provisioned. runs
// is how long it runs where it is placed.
func Instead(
	kind place.DecisionKind, v *place.View, it *queue.Item, runs time.Duration, o *provision.Option,
) *place.Counterfactual {
	c := &place.Counterfactual{
		Kind: kind, What: "provision " + Describe(o), Offer: o.Offer.Name, Count: o.Nodes,
		ReadyIn: o.Start.Sub(v.Now), Runs: o.Finish.Sub(o.Start),
	}
	c.Compare(it, runs)

	return c
}
