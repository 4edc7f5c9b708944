package rules

import (
	"fmt"
	"slices"

	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/place"
	"trainyard/internal/share"
)

// separate moves running jobs away from neighbours that they do badly beside, if there is another GPU for them now. Of
// two that are to be parted one leaves, and only if it loses no work by that.
func (e *engine) separate() {
	if !e.view.Beside.AnyParted() {
		return
	}

	for _, r := range e.view.Running {
		if len(r.Allocations) != 1 || r.Allocations[0].Share == 0 || !r.Stoppable() || r.Began.IsZero() {
			continue
		}

		others := e.leaves(r)

		switch young := e.view.Now.Sub(r.Began) < minRun; {
		case others == nil:
		case young:
			e.wakeAt(r.Began.Add(minRun))
		default:
			e.moveAway(r, others)
		}
	}
}

// leaves returns beside whom a job stands on its GPU if it is the one to leave, nil if it stays.
func (e *engine) leaves(r *place.Running) []share.Cut {
	a := &r.Allocations[0]

	at, found := e.timeline.Find(a.Node)
	if !found {
		return nil
	}

	room := e.timeline.Room(at)
	i := room.PartOf(a.GPUs)
	if i < 0 {
		return nil
	}

	cuts := room.Parts[i].Cuts
	// Who has left by this plan is not parted again.
	cuts = slices.DeleteFunc(slices.Clone(cuts), func(c share.Cut) bool { return e.moved[c.Job] })

	if k := e.view.Beside.Leaving(e.view.Now, cuts); k < 0 || cuts[k].Job != r.Job {
		return nil
	}

	return slices.DeleteFunc(cuts, func(c share.Cut) bool { return c.Job == r.Job })
}

// moveAway moves a job to the GPU that suits it best, if there is one.
func (e *engine) moveAway(r *place.Running, others []share.Cut) {
	j := e.describeNew(r.Item)
	s := e.shapeOf(j)
	j.nowOnly = true

	options := e.options(j, s)
	if len(options) == 0 {
		return
	}

	best := e.choose(j, options)
	if best == nil || best.provisions() || best.startsIn > 0 {
		return
	}

	speed := humanize.Percent(e.view.Beside.Speed(e.view.Now, r.Program.Key, others))
	e.plan.Stops = append(e.plan.Stops, place.Stop{
		Running: r,
		Reason:  fmt.Sprintf("moved away from %s: beside it the job is at %s of its speed", share.Names(others), speed),
	})

	if e.moved == nil {
		e.moved = map[id.Job]bool{}
	}

	e.moved[r.Job] = true
	e.start(j, best, options, nil)
}
