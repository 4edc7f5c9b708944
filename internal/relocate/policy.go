// Package relocate decides when a running job moves to other nodes, under whatever policy places
// the jobs.
//
// A job on provisioned nodes comes home when nodes of the yard idle and no queued job waits for
// them (home.go): of the jobs that may run there the one goes first whose move saves most. What a
// move costs is counted (cost.go): the job stands still while its checkpoint is saved, carried over
// and restored, and its time is worth what its objective says. It moves only if that pays by a
// margin, if enough of it is left by the lower bound of its forecast, and if it has stayed where it
// is for a while. A job without checkpoints would lose its work and never moves.
//
// A job that is too slow by several forecasts in a row moves to faster or more idle GPUs of the yard
// if the time that this saves is worth more than the move costs (slow.go). If none of them helps and
// the time is worth the price, nodes are provisioned for it while it runs (provision.go).
//
// A queued job that needs many GPUs starts on nodes that other jobs leave for it, if enough GPUs are free but scattered
// over nodes, and if the waiting time that this saves is worth more than the moves cost (defrag.go).
//
// A policy is wrapped (Wrap): it plans as it always does, and the moves are added to what its plan
// leaves alone. The same code decides in the server and in the simulator.
package relocate

import (
	"time"

	"trainyard/internal/place"
	"trainyard/internal/place/timeline"
)

// Policy is a policy that also moves running jobs. What it keeps from round to round makes the
// next one faster and changes no plan.
type Policy struct {
	inner    place.Policy
	terms    Terms
	timeline timeline.Timeline
}

// adviser is a Policy around an Adviser.
type adviser struct {
	*Policy
	place.Adviser
}

var (
	_ place.Searcher  = (*Policy)(nil)
	_ place.Refuser   = (*Policy)(nil)
	_ place.Rehearser = (*Policy)(nil)
	_ place.Relocator = (*Policy)(nil)
	_ place.Adviser   = adviser{}
)

// Wrap returns a policy that places jobs as p does and moves running ones.
func Wrap(p place.Policy, t Terms) place.Policy {
	w := &Policy{inner: p, terms: t}
	if a, ok := p.(place.Adviser); ok {
		return adviser{w, a}
	}

	return w
}

// Unwrap returns the policy that places the jobs.
func (p *Policy) Unwrap() place.Policy { return p.inner }

// Rehearsal returns the same around a rehearsal of the policy that places the jobs.
func (p *Policy) Rehearsal() place.Policy { return Wrap(place.Rehearsal(p.inner), p.terms) }

// Name is that of the policy that places the jobs.
func (p *Policy) Name() string { return p.inner.Name() }

// Revises reports whether the policy that places the jobs stops or moves running ones.
func (p *Policy) Revises() bool { return p.inner.Revises() }

// Relocates reports that running jobs are also moved while none is queued.
func (p *Policy) Relocates() bool { return true }

// Slow reports whether the policy that places the jobs must plan outside the server's loop.
func (p *Policy) Slow() bool { return place.IsSlow(p.inner) }

// Refuses says with what the policy that places the jobs cannot work.
func (p *Policy) Refuses(f place.Feature) string {
	if r, ok := p.inner.(place.Refuser); ok {
		return r.Refuses(f)
	}

	return ""
}

// KeepsAlike reports whether the policy that places the jobs runs those with same_gpu as they ask for.
func (p *Policy) KeepsAlike() bool { return place.KeepsAlike(p.inner) }

// Shares reports whether the policy that places the jobs lets them share GPUs.
func (p *Policy) Shares() bool { return place.Shares(p.inner) }

// Plan is the plan of the policy that places the jobs, with moves.
func (p *Policy) Plan(v *place.View) place.Plan { return p.Search(v, nil) }

// Search is Plan with a time limit.
func (p *Policy) Search(v *place.View, stop func() bool) place.Plan {
	var plan place.Plan
	// A policy that shares parts jobs that do badly beside each other, also while none is queued.
	if v.Queue.Len() > 0 || p.inner.Revises() || v.Beside.AnyParted() {
		plan = place.Within(p.inner, v, stop)
	}

	if stop == nil || !stop() {
		p.defragment(v, &plan)
		p.bringHome(v, &plan)
		p.hurry(v, &plan)
	}

	return plan
}

// wake sets when a plan is made again to a time in the future, unless it is sooner anyway.
func wake(plan *place.Plan, now, at time.Time) {
	if at.After(now) && (plan.WakeAt.IsZero() || at.Before(plan.WakeAt)) {
		plan.WakeAt = at
	}
}
