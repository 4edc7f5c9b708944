// Package ondemand decides when on-demand nodes are provisioned, under whatever policy places
// the jobs.
//
// The decision is one of money: nodes are provisioned for a job that no node of the yard can
// run, and for one that would wait so long that the wait costs more than the rent. What an
// hour of a job's time is worth follows from its objective, and missing its deadline costs
// extra (price.go); a cost-sensitive job waits for a node that is paid for anyway as long as
// its patience lasts (patience.go); the offers are compared in a catalogue that remembers what
// was best for jobs that are alike (catalogue.go).
//
// The policy rules makes that decision together with its placement and shares these parts.
// Every other policy is wrapped (Wrap): it plans as if there were no clouds, and what its plan
// leaves in the queue is decided about here (decide.go). Nodes that were provisioned for a
// queued job are kept for it until it starts (keep.go). A policy with an opinion of its own is
// a place.Provisioner, and only the keeping is done for it.
package ondemand

import (
	"slices"
	"time"

	"trainyard/internal/place"
	"trainyard/internal/place/timeline"
	"trainyard/internal/queue"
)

// Policy is a policy that provisions nodes for the jobs that another policy leaves in the
// queue. What it keeps from round to round makes the next one faster; apart from the
// patiences it changes no plan.
type Policy struct {
	inner     place.Policy
	terms     Terms
	catalogue *Catalogue
	patiences Patiences
	timeline  timeline.Timeline
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
	_ place.Adviser   = adviser{}
)

// Wrap returns a policy that places jobs as p does and provisions nodes by the common rule.
func Wrap(p place.Policy, t Terms) place.Policy {
	w := &Policy{inner: p, terms: t}
	if a, ok := p.(place.Adviser); ok {
		return adviser{w, a}
	}

	return w
}

// HasOwnTerms reports whether a policy was wrapped with other terms than the standard ones.
func HasOwnTerms(p place.Policy) bool {
	if o, wrapped := p.(interface{ Unwrap() place.Policy }); wrapped {
		p = o.Unwrap()
	}

	w, ok := p.(interface{ ownTerms() bool })

	return ok && w.ownTerms()
}

func (p *Policy) ownTerms() bool { return !p.terms.equal(Standard()) }

// Rehearsal returns a policy that knows what this one knows of earlier jobs. This one must not be
// planning meanwhile.
func (p *Policy) Rehearsal() place.Policy {
	w := Wrap(place.Rehearsal(p.inner), p.terms)

	known := p.patiences.Clone()
	switch w := w.(type) {
	case *Policy:
		w.patiences = known
	case adviser:
		w.Policy.patiences = known
	}

	return w
}

// Name is that of the policy that places the jobs.
func (p *Policy) Name() string { return p.inner.Name() }

// Revises reports whether the policy that places the jobs stops or moves running ones.
func (p *Policy) Revises() bool { return p.inner.Revises() }

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

// Plan is the plan of the policy that places the jobs, and what is provisioned beside it.
func (p *Policy) Plan(v *place.View) place.Plan { return p.Search(v, nil) }

// Search is Plan with a time limit.
func (p *Policy) Search(v *place.View, stop func() bool) place.Plan {
	leased := leasedJobs(v)
	kept := keep(v, leased)

	plan := kept.plan(v, func(v *place.View) place.Plan { return place.Within(p.inner, v, stop) })
	plan.Provisions = withoutStarted(&plan)
	p.addGains(v, &plan, leased)

	if len(v.Offers) == 0 || p.decidesItself(v) {
		return plan
	}

	d := newDecider(p, v, &plan, leased)
	defer p.timeline.Forget()

	d.enter()
	d.decide(stop)

	return plan
}

// withoutStarted returns what a plan provisions, without what it provisions for jobs that something
// around the policy has started.
func withoutStarted(plan *place.Plan) []place.Provision {
	if len(plan.Provisions) == 0 {
		return nil
	}

	starts := map[*queue.Item]bool{}
	for i := range plan.Starts {
		starts[plan.Starts[i].Item] = true
	}

	return slices.DeleteFunc(plan.Provisions, func(p place.Provision) bool { return starts[p.Item] })
}

// decidesItself reports whether the policy that places the jobs has provisioned what it wants.
func (p *Policy) decidesItself(v *place.View) bool {
	o, ok := p.inner.(place.Provisioner)

	return ok && o.Provisions(v)
}

// wake sets when a plan is made again to a time in the future, unless it is sooner anyway.
func wake(plan *place.Plan, now, at time.Time) {
	if at.After(now) && (plan.WakeAt.IsZero() || at.Before(plan.WakeAt)) {
		plan.WakeAt = at
	}
}

// since returns since when a job has waited for its first start, or to be started again.
func since(it *queue.Item, now time.Time) time.Time {
	o := it.Outlook
	switch {
	case o != nil && !o.Submitted.IsZero() && o.Stops == 0 && o.Ran == 0:
		return o.Submitted
	case it.Since.IsZero():
		return now
	}

	return it.Since
}
