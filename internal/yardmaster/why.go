package yardmaster

import (
	"fmt"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/provision"
	"trainyard/internal/queue"
	"trainyard/internal/tenant"
)

// WhyReport is why a job is queued, with its position in the queue.
type WhyReport struct {
	place.Why
	Position int // from 1; 0 if it is not in the queue or further back than maxPosition
}

// maxPosition bounds how far the queue is walked to find a job's position.
const maxPosition = 10_000

// Why says why a job does not run. It returns false for a job that is neither queued nor
// paused.
func (y *Yard) Why(now time.Time, j id.Job) (WhyReport, bool) {
	v := y.basicView(now)
	r, ok := y.jobs[j]
	if !ok {
		return WhyReport{}, false
	}

	why, waits := y.explain(v, r)
	if !waits {
		return WhyReport{}, false
	}

	w := WhyReport{Why: why}
	if r.item == nil {
		return w, true
	}

	w.Position = y.position(j)
	if w.Position > 1 {
		w.Sentence += fmt.Sprintf("; %s ahead of it in the queue", humanize.Count(w.Position-1, "job"))
	}

	return w, true
}

// explain says why a job does not run; false if it runs or has ended. Everything that tells
// people why a job waits, or when it starts, has it from here: the job itself, lists, forecasts
// and simulations. What would become of a job that has not been submitted is said by the same
// parts, in Rehearsal.
func (y *Yard) explain(v *place.View, r *jobRecord) (place.Why, bool) {
	switch {
	case r.State == job.Paused:
		return place.Why{Blocker: place.BlockPaused, Sentence: r.Reason, Remedies: pausedRemedies(r)}, true
	case !r.State.Waiting():
		return place.Why{}, false
	case len(r.pendingNeeds) > 0:
		return y.explainNeeds(r), true
	case r.promise != nil:
		return y.explainPromise(r.promise), true
	case r.NotBefore.After(y.now):
		return place.Why{Blocker: place.BlockBackoff, Sentence: r.Reason, NotBefore: r.NotBefore}, true
	case r.hold.reason != "":
		return y.explainHold(r), true
	}

	if sentence, at := y.leases.Arriving(r.ID); sentence != "" {
		return provisioning(sentence, at, y.now), true
	}

	queued := place.QueuedJob{Job: r.ID, Need: y.need(r), Lasts: r.Spec.DeclaredDuration(), Rule: y.data.Rule(&r.Job)}
	w := place.Explain(v, queued, place.Verdict{
		Policy:      y.cfg.Policy.Name(),
		Reservation: y.reservation,
		Reason:      y.waits[r.ID],
		Due:         y.planDue || y.planning,
	})
	if len(y.cfg.Offers) > 0 {
		_, exhausted := y.leases.Offers(y.now)
		considerOffers(&w, queued.Need, without(y.cfg.Offers, exhausted), exhausted, y.cfg.Policy.Name(), y.now)
	}

	if w.Blocker == place.BlockPolicy && (y.planDue || y.planning) {
		w.Blocker, w.Sentence = place.BlockNone, w.Sentence+"; considered in the next scheduling round"
	}

	if !y.planDue && !y.planning {
		addReasons(&w, y.waits[r.ID], y.unprovided[r.ID])
	}

	addReasons(&w, y.memoryNote(r))

	return w, true
}

// pausedRemedies says how a paused job goes on.
func pausedRemedies(r *jobRecord) []place.Remedy {
	var list []place.Remedy
	for _, q := range r.questions {
		if q.Kind.Holds() {
			list = append(list, place.Remedy{Text: "trainyard accept " + string(q.ID) + " " + q.Options[0].ID})
		}
	}

	return append(list, place.Remedy{Text: "trainyard resume " + string(r.ID)})
}

// addReasons adds what the last plan says of a job, unless that is the whole answer already.
func addReasons(w *place.Why, reasons ...string) {
	for _, reason := range reasons {
		if reason != "" && w.Sentence != reason {
			w.Sentence += "; " + reason
		}
	}
}

// explainNeeds says for which jobs a job waits.
func (y *Yard) explainNeeds(r *jobRecord) place.Why {
	w := place.Why{Blocker: place.BlockNeeds, Sentence: needsReason(r.pendingNeeds)}
	for _, n := range r.pendingNeeds[:min(len(r.pendingNeeds), 5)] {
		if d, ok := y.jobs[n]; ok && d.State == job.Paused {
			w.Remedies = append(w.Remedies, place.Remedy{Text: "trainyard resume " + string(n)})
		}
	}

	return w
}

// explainPromise says for which runs a job waits whose GPUs are booked for it already.
func (y *Yard) explainPromise(p *promise) place.Why {
	w := place.Why{
		Blocker:  place.BlockResources,
		Sentence: "starts on " + startNodes(&p.start) + " as soon as the runs that are being stopped there have ended",
	}

	for _, a := range p.start.Allocations {
		room, ok := y.nodes.Rooms.Get(a.Node)
		if !ok {
			continue
		}

		for _, h := range room.Holds {
			if h.Run != p.run && h.GPUs&a.GPUs != 0 {
				w.Holders = append(w.Holders, h)
				w.Nodes = append(w.Nodes, a.Node)
			}
		}
	}

	return w
}

// startNodes names the nodes of a start.
func startNodes(s *place.Start) string {
	first := string(s.Allocations[0].Node)
	if more := len(s.Allocations) - 1; more > 0 {
		return fmt.Sprintf("%s and %s", first, humanize.Count(more, "other node"))
	}

	return first
}

// why says what holds a job.
func (h *hold) why() place.Why {
	blocker := place.BlockLimit
	if h.kind == tenant.HoldSecret {
		blocker = place.BlockSecret
	}

	return place.Why{Blocker: blocker, Sentence: h.reason, NotBefore: h.until}
}

// provisioning says that a job waits for nodes that are being provisioned, and when they are
// expected.
func provisioning(sentence string, ready, now time.Time) place.Why {
	w := place.Why{Blocker: place.BlockProvisioning, Sentence: sentence}
	if ready.After(now) {
		w.Start = ready
		w.Sentence += ", expected at " + humanize.Time(ready, now.UTC())
	}

	return w
}

// without returns the offers that are not among others. Those that a provider refused lately
// are still offers: they come back.
func without(offers, others []fleet.Offer) []fleet.Offer {
	return slices.DeleteFunc(slices.Clone(offers), func(o fleet.Offer) bool {
		return slices.ContainsFunc(others, func(other fleet.Offer) bool { return other.Name == o.Name })
	})
}

// considerOffers corrects an answer that looked only at nodes: what no node of the yard could
// run may be run by one that can be provisioned.
func considerOffers(w *place.Why, need fleet.Need, open, exhausted []fleet.Offer, policy string, now time.Time) {
	if !fleet.OnDemand.Allows(need.Place) {
		return
	}

	unfit := w.Blocker == place.BlockNoFit || w.Blocker == place.BlockNoNode
	options := provision.Options(open, need, provision.Query{Now: now})
	if len(options) == 0 {
		options = provision.Options(exhausted, need, provision.Query{Now: now})
		if len(options) == 0 || !unfit && w.Blocker != place.BlockResources && w.Blocker != place.BlockReserved {
			return
		}

		o := options[0].Offer
		w.Sentence += fmt.Sprintf("; offer %s is not provisioned: its limit of %s (max_nodes) is reached", o.Name,
			humanize.Count(o.MaxNodes, "node"))
		if unfit {
			w.Blocker = place.BlockResources // it may start when one of them is released
		}

		return
	}

	if !unfit {
		return
	}

	w.Blocker = place.BlockPolicy
	w.Sentence += fmt.Sprintf("; offer %s could run it, but policy %s has not provisioned it",
		options[0].Offer.Name, policy)
}

// position returns a job's position in the queue, from 1, or 0 if it is too far back.
func (y *Yard) position(j id.Job) int {
	walk := y.queue.Walk(y.usage)
	all := func(*queue.Shape) bool { return true }
	for n := 1; n <= maxPosition; n++ {
		it := walk.Next(all)
		if it == nil {
			return 0
		}
		if it.Job == j {
			return n
		}
	}

	return 0
}
