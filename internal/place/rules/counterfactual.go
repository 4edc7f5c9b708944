package rules

import (
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/place"
	"trainyard/internal/place/timeline"
)

// nobody is whom a room is dedicated to while the policy looks what it would do without it.
const nobody = id.Job("nobody")

// insteadOfStart is what the policy would do if the nodes on which a job starts now did not exist:
// start it on others, wait for others, or provision. Nil if nothing would be different, or nothing
// could be done. It must be called before the job is started.
func (e *engine) insteadOfStart(j *queuedJob, s *shape, o *option, all []option) *place.Counterfactual {
	if len(j.leases) > 0 {
		return nil // it was decided when the nodes were provisioned
	}

	if e.alikeBeside(j, s, o, all) {
		return nil
	}

	other := e.chooseWithout(j, s, o, all)
	if other == nil || !other.provisions() && other.startsIn == 0 && other.pool == o.pool && len(other.mix) == len(o.mix) {
		return nil
	}

	return e.counterfactual(place.Placement, j, s, o, other)
}

// alikeBeside reports whether a job would surely start on a node of the same pool instead: one is free that costs the
// same, and no other option is as good. That is mostly so, and found out without a search for the best.
func (e *engine) alikeBeside(j *queuedJob, s *shape, o *option, all []option) bool {
	need := &s.Match.Need
	if need.Nodes > 1 || need.MaxGPUs > need.GPUs || j.costSensitive || e.costs.of(o.pool).rent > 0 || e.needsStaging(j) {
		return false
	}

	for i := range all {
		if x := &all[i]; x.score == o.score && (x.provisions() || x.pool != o.pool) {
			return false
		}
	}

	return e.timeline.FitsBeside(e.request(j, s, o.pool, o.runs), o.pool, o.rooms[0])
}

// deferral records the decision to wait for a node of the yard, if the policy would otherwise provision
// nodes for the job.
func (e *engine) deferral(j *queuedJob, s *shape, o *option, all []option) {
	provisions := func(o option) bool { return o.provisions() && o.barredBy == "" }
	if j.item.Deferred || !slices.ContainsFunc(all, provisions) {
		return
	}

	d := place.Deferral{Item: j.item}
	if other := e.chooseWithout(j, s, o, all); other != nil && other.provisions() {
		d.Counterfactual = e.counterfactual(place.Waiting, j, s, o, other)
	}

	e.plan.Deferrals = append(e.plan.Deferrals, d)
}

// insteadOfProvisioning is what the policy would do if an offer did not exist: provision another,
// or wait.
func (e *engine) insteadOfProvisioning(j *queuedJob, s *shape, o *option, all []option) *place.Counterfactual {
	rest := slices.DeleteFunc(slices.Clone(all), func(x option) bool { return x.provisions() })
	limit := timeline.Never

	if x, ok := e.nextOffer(j, s, o); ok {
		rest = append(rest, x)
		limit = 0 // later starts were searched for as long as provisioning is worth
	}

	visits := e.timeline.Visits()
	for _, pool := range s.Able {
		found := slices.ContainsFunc(rest, func(x option) bool { return x.pool == pool })
		if found || limit == 0 || e.costs.of(pool).rent > 0 && e.allow.NoProvisioning {
			continue
		}

		x := option{pool: pool}
		if e.complete(j, s, &x, limit, false) {
			e.score(j, &x)
			rest = append(rest, x)
		}
	}

	e.uncounted += e.timeline.Visits() - visits
	if other := e.chooseOf(j, rest); other != nil {
		return e.counterfactual(place.Placement, j, s, o, other)
	}

	return nil
}

// nextOffer returns the best way to provision nodes for a job if the offer of an option did not exist. If the next one
// is not allowed, it looks at no more offers than are shown to people.
func (e *engine) nextOffer(j *queuedJob, s *shape, o *option) (option, bool) {
	best, ok := e.policy.catalogue.Fit(&s.Match.Need).BestWithout(o.offer.Offer.Name, e.query(j))
	if !ok {
		return option{}, false
	}

	next := e.asOption(&best)
	if e.barred(j, e.allowance(j), &next) == "" {
		e.score(j, &next)
		return next, true
	}

	for _, x := range e.others(j, s, []option{*o}) {
		if x.barredBy == "" {
			return x, true
		}
	}

	return option{}, false
}

// chooseWithout returns what would be chosen of a job's options if the nodes of one of them did not
// exist. In the same pool others may be free, now or later.
func (e *engine) chooseWithout(j *queuedJob, s *shape, o *option, all []option) *option {
	rest := e.policy.scratch.others[:0]
	limit := timeline.Never
	for i := range all {
		x := &all[i]
		if !x.provisions() && len(x.mix) == 0 && x.pool != o.pool {
			rest = append(rest, *x)
		}

		if x.provisions() && x.barredBy == "" && !j.costSensitive {
			limit = e.limit(j, x)
		}
	}

	visits := e.timeline.Visits()
	for _, at := range o.rooms {
		e.timeline.Dedicate(at, nobody)
	}

	rest = e.searchAgain(j, s, o, rest, limit)
	for i := range all {
		if all[i].provisions() {
			rest = append(rest, all[i])
		}
	}

	e.policy.scratch.others = rest

	for i := range rest {
		e.score(j, &rest[i])
	}

	for _, at := range o.rooms {
		e.timeline.Undedicate(at)
	}

	e.uncounted += e.timeline.Visits() - visits

	return e.chooseOf(j, rest)
}

// searchAgain adds the options in the pools of one whose nodes are left out. Gangs on nodes of several
// pools are searched for anew.
func (e *engine) searchAgain(j *queuedJob, s *shape, o *option, rest []option, limit time.Duration) []option {
	o.pools(func(p *timeline.Pool) {
		rest = slices.DeleteFunc(rest, func(x option) bool { return x.pool == p })

		rest = append(rest, option{pool: p})
		if !e.complete(j, s, &rest[len(rest)-1], limit, false) {
			rest = rest[:len(rest)-1]
		}
	})

	if s.Match.Need.Nodes > 1 && len(s.Able) > 1 {
		rest = e.mixed(j, s, rest, limit, false)
	}

	return rest
}

// chooseOf returns what would be chosen of other options than the job has. It plans nothing.
func (e *engine) chooseOf(j *queuedJob, options []option) *option {
	e.policy.sortByScore(options)

	wakeAt := e.plan.WakeAt
	other := e.choose(j, options)
	e.plan.WakeAt = wakeAt

	return other
}

// counterfactual describes what would have been done with a job instead of a taken option.
func (e *engine) counterfactual(
	kind place.DecisionKind, j *queuedJob, s *shape, taken, other *option,
) *place.Counterfactual {
	c := &place.Counterfactual{
		Kind: kind, StartsIn: other.startsIn, ReadyIn: other.readyIn, Runs: other.runs, Ratio: 1,
	}

	if !j.unprofiled {
		c.Startup = time.Duration(j.item.Outlook.Speed.Start)
	}

	if works := taken.runs - c.Startup; works > 0 {
		c.Ratio = float64(max(other.runs-c.Startup, 0)) / float64(works)
	}

	if other.provisions() {
		c.What = "provision " + e.describeOption(other)
		c.Offer, c.Count = other.offer.Offer.Name, other.offer.Nodes

		return c
	}

	c.What = "start on " + e.describeOption(other)
	if other.startsIn > 0 {
		c.What = "wait for " + e.describeOption(other)
	}

	for _, at := range other.rooms {
		r := &e.view.Rooms[at]
		gpus := fleet.LowestGPUs(s.Match.MatchingGPUs(r), other.gpus)
		c.Allocations = append(c.Allocations, place.Allocation{Node: r.Node.ID, GPUs: gpus})
	}

	return c
}
