package harvest

import (
	"fmt"
	"slices"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/place"
	"trainyard/internal/place/allocate"
)

// decide chooses the sizes. It uses the solver only if there are conditions across jobs. If the
// solver fails, the search decides and the reasons say so.
func (r *round) decide() (d Decision, note string, ok bool) {
	in := &Instance{Rows: r.sides()}
	r.instance = in
	for k := range r.kinds {
		in.Nodes = append(in.Nodes, r.kinds[k].units)
	}

	for j := range r.jobs {
		in.Jobs = append(in.Jobs, r.jobs[j].sizes)
	}

	if len(in.Rows) > 0 && len(in.Nodes) > 0 {
		s, err := r.policy.Solve(in.Model())
		if err == nil {
			return in.Read(s), "", true
		}

		note = fmt.Sprintf("the solver failed (%v); the sizes were found by search instead", err)
	}

	effort := r.policy.Effort
	if effort.Enough == nil {
		effort.Enough = r.enough
	}

	d, ok = in.Decide(effort)

	return d, note, ok
}

// change is the new allocation of a job.
type change struct {
	seats []place.Allocation // nil for none
	stays bool
}

// plan assigns seats to the decision and returns the plan.
func (r *round) plan(d Decision) place.Plan {
	changes := make([]change, len(r.jobs))
	r.decision, r.changes = d, changes
	for k := range r.kinds {
		if r.kinds[k].byNode {
			r.seatNodes(k, d, changes)
		}
	}

	var p place.Plan
	r.allocate(d, changes, &p)
	r.withdraw(changes)
	for _, run := range r.excluded {
		p.Stops = append(p.Stops, place.Stop{Running: run, Reason: r.outReason()})
	}

	for j := range r.jobs {
		b, c := &r.jobs[j], &changes[j]
		if c.stays {
			continue
		}

		if b.running != nil {
			p.Stops = append(p.Stops, place.Stop{Running: b.running, Reason: r.stopReason(j)})
		}

		if len(c.seats) > 0 {
			p.Starts = append(p.Starts, place.Start{Item: b.item, Allocations: c.seats, Reason: r.startReason(j)})
		}
	}

	p.Waits = r.waits()
	r.setWakeAt(changes, &p)

	return p
}

// allocate assigns seats to jobs on kinds whose unit is the GPU, and to jobs that ask for no GPUs.
func (r *round) allocate(d Decision, changes []change, p *place.Plan) {
	var wants []allocate.Request
	var who []int

	for j := range r.jobs {
		b := &r.jobs[j]
		k := d.Kind[j]
		switch {
		case k < 0:
			changes[j].stays = b.running == nil
		case r.kinds[k].byNode:
			continue
		}

		w := allocate.Request{Item: b.item, Running: b.running, GPUs: d.Count[j]}
		if k >= 0 {
			w.Kinds = []int32{r.kinds[k].id}
		}

		if b.running != nil && d.Count[j] > b.running.GPUs {
			w.Min = d.Count[j] // a restart with fewer GPUs may not pay
		}

		wants, who = append(wants, w), append(who, j)
	}

	for _, run := range r.excluded {
		wants, who = append(wants, allocate.Request{Item: run.Item, Running: run}), append(who, -1)
	}

	for _, it := range r.withoutGPUs {
		wants, who = append(wants, allocate.Request{Item: it, GPUs: it.Shape.Need.Nodes}), append(who, -1)
	}

	if len(wants) == 0 {
		return
	}

	for i, g := range allocate.Assign(r.view, wants, allocate.Options{}) {
		switch {
		case who[i] >= 0:
			changes[who[i]] = change{seats: g.Seats, stays: g.Unchanged || wants[i].Running == nil && len(g.Seats) == 0}
		case wants[i].Running == nil && len(g.Seats) > 0:
			p.Starts = append(p.Starts, place.Start{Item: wants[i].Item, Allocations: g.Seats,
				Reason: "fits (needs no GPU)"})
		}
	}
}

// withdraw drops changes that need GPUs of a job that stays. Kinds are seated apart, so a job that could not be
// seated on another kind keeps seats that a job of its old kind was given; that one stays where it is, or waits.
func (r *round) withdraw(changes []change) {
	for again := true; again; {
		again = false
		held := map[id.Node]uint64{}
		for j := range r.jobs {
			if b := &r.jobs[j]; changes[j].stays && b.running != nil {
				for _, a := range b.running.Allocations {
					held[a.Node] |= a.GPUs
				}
			}
		}

		for j := range changes {
			c := &changes[j]
			taken := func(a place.Allocation) bool { return held[a.Node]&a.GPUs != 0 }
			if !c.stays && slices.ContainsFunc(c.seats, taken) {
				*c, again = change{stays: true}, true
				if run := r.jobs[j].running; run != nil {
					c.seats = run.Allocations
				}
			}
		}
	}
}

// setWakeAt sets when to plan again: when a job without nodes runs out of patience, and when a
// job of unknown speed has been observed for long enough.
func (r *round) setWakeAt(changes []change, p *place.Plan) {
	ask := func(at time.Time) {
		if at.After(r.view.Now) && (p.WakeAt.IsZero() || at.Before(p.WakeAt)) {
			p.WakeAt = at
		}
	}

	for j := range r.jobs {
		b, c := &r.jobs[j], &changes[j]
		switch {
		case len(c.seats) == 0:
			ask(b.item.Outlook.Submitted.Add(r.policy.Patience))
		case b.guessedFrom > 0 && c.stays:
			ask(b.running.Ordered.Add(observe))
		case b.guessedFrom > 0:
			ask(r.view.Now.Add(observe))
		}
	}
}
