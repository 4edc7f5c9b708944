package rules

import (
	"cmp"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/place/timeline"
)

// member is a pool whose nodes a gang could use together with those of others.
type member struct {
	pool   *timeline.Pool
	runs   time.Duration // if all its nodes were of this pool
	rented bool
}

// mixed adds the ways to run a gang on nodes of several pools. A gang is as fast as its
// slowest node, so there is at most one such way for each speed: the soonest on nodes of that
// speed and faster ones. Alike nodes are preferred: only what starts before the alike nodes
// that are at least as fast is added. Nodes for which no rent is paid are tried without
// the others first. If full is set, nothing is free now.
func (e *engine) mixed(j *queuedJob, s *shape, list []option, limit time.Duration, full bool) []option {
	all := e.members(j, s)
	if !s.Match.Need.SameGPU {
		return e.mixedAmong(j, s, all, list, limit, full)
	}

	for _, alike := range byKind(all) {
		list = e.mixedAmong(j, s, alike, list, limit, full)
	}

	return list
}

// byKind groups the pools by the kind of their GPUs: a gang with same_gpu may have nodes of several classes.
func byKind(all []member) [][]member {
	var groups [][]member

	for _, m := range all {
		at := slices.IndexFunc(groups, func(g []member) bool { return g[0].pool.Kind == m.pool.Kind })

		switch {
		case m.pool.Kind < 0: // its nodes have GPUs of several models
		case at < 0:
			groups = append(groups, []member{m})
		default:
			groups[at] = append(groups[at], m)
		}
	}

	return groups
}

// mixedAmong adds the ways to run a gang on nodes of several of the given pools.
func (e *engine) mixedAmong(
	j *queuedJob, s *shape, all []member, list []option, limit time.Duration, full bool,
) []option {
	own := all
	if slices.ContainsFunc(all, func(m member) bool { return m.rented }) {
		own = slices.DeleteFunc(slices.Clone(all), func(m member) bool { return m.rented })
	}

	list = e.mixedOf(j, s, own, list, limit, full)
	if len(own) < len(all) {
		list = e.mixedOf(j, s, all, list, limit, full)
	}

	return list
}

// members lists the pools whose nodes a gang may use, the fastest first.
func (e *engine) members(j *queuedJob, s *shape) []member {
	list := e.policy.scratch.members[:0]
	need := &s.Match.Need

	for _, p := range s.Able {
		m := member{pool: p, runs: e.takes(j, p, need.GPUs, need.Nodes, s), rented: e.costs.of(p).rent > 0}
		if !m.rented || !e.allow.NoProvisioning {
			list = append(list, m)
		}
	}

	slices.SortStableFunc(list, func(a, b member) int { return cmp.Compare(a.runs, b.runs) })
	e.policy.scratch.members = list

	return list
}

// mixedOf is mixedAmong for pools all of which may be used.
func (e *engine) mixedOf(
	j *queuedJob, s *shape, of []member, list []option, limit time.Duration, full bool,
) []option {
	rented := slices.ContainsFunc(of, func(m member) bool { return m.rented })

	for n := 2; n <= len(of); n++ {
		if n < len(of) && of[n].runs == of[n-1].runs {
			continue // nodes that are as fast belong to the same way
		}

		soonest := e.soonest(list, of[n-1].runs, rented)
		if soonest == 0 {
			break
		}

		o := option{gpus: s.Match.Need.GPUs, runs: of[n-1].runs}
		pools := inOrderOfUse(of[:n], s.Match.Need.MaxGPUs == 0)
		q := e.request(j, s, pools[0], o.runs)
		if !full {
			o.rooms = e.timeline.FitNowAcross(q, pools...)
		}

		if latest := min(limit, soonest-1); o.rooms == nil && !j.nowOnly && latest > 0 {
			o.rooms, o.startsIn = e.timeline.EarliestAcross(q, latest, pools...)
		}

		if o.rooms == nil {
			continue
		}

		e.describeMix(&o, of[:n])
		if o.startsIn == 0 {
			e.widen(j, s, &o)
		}

		e.price(j, &o)
		list = append(list, o)
	}

	return list
}

// soonest returns when the first of the options starts that takes no longer than runs and that
// costs no rent, or may.
func (e *engine) soonest(list []option, runs time.Duration, rented bool) time.Duration {
	first := timeline.Never
	for i := range list {
		if o := &list[i]; o.runs <= runs && (rented || !e.rented(o)) {
			first = min(first, o.startsIn)
		}
	}

	return first
}

// inOrderOfUse returns the pools in the order in which a gang takes their nodes. Those for
// which no rent is paid come first, and for a job without GPUs those without; then the
// slowest, because faster nodes make the gang no faster and are of more use to others.
func inOrderOfUse(members []member, cpuOnly bool) []*timeline.Pool {
	order := slices.Clone(members)
	slices.SortStableFunc(order, func(a, b member) int {
		return cmp.Or(
			falseFirst(a.rented, b.rented),
			falseFirst(cpuOnly && a.pool.HasGPUs(), cpuOnly && b.pool.HasGPUs()),
			cmp.Compare(b.runs, a.runs),
		)
	})

	pools := make([]*timeline.Pool, len(order))
	for i := range order {
		pools[i] = order[i].pool
	}

	return pools
}

// falseFirst compares two conditions for sorting: false comes before true.
func falseFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}

	return 1
}

// describeMix sets the pools of an option's rooms: pool is that of the slowest.
func (e *engine) describeMix(o *option, members []member) {
	for _, at := range o.rooms {
		p := e.timeline.PoolOf(at)
		if !slices.Contains(o.mix, p) {
			o.mix = append(o.mix, p)
		}
	}

	for i := len(members) - 1; i >= 0 && o.pool == nil; i-- {
		if slices.Contains(o.mix, members[i].pool) {
			o.pool, o.runs = members[i].pool, members[i].runs
		}
	}

	if len(o.mix) == 1 {
		o.mix = nil
	}
}

// pools calls visit for the pools of an option's nodes.
func (o *option) pools(visit func(*timeline.Pool)) {
	if len(o.mix) == 0 {
		visit(o.pool)
	}

	for _, p := range o.mix {
		visit(p)
	}
}

// rented reports whether rent is paid for a node of an option.
func (e *engine) rented(o *option) bool {
	rented := false
	o.pools(func(p *timeline.Pool) { rented = rented || e.costs.of(p).rent > 0 })
	return rented
}

// class returns the class of an option's nodes; of several that which is preferred least.
func (o *option) class() fleet.Class {
	class := o.pool.Class
	for _, p := range o.mix {
		if slices.Index(fleet.Classes(), p.Class) > slices.Index(fleet.Classes(), class) {
			class = p.Class
		}
	}

	return class
}
