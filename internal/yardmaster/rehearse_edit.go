package yardmaster

import (
	"slices"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/queue"
)

// EditRehearsal is the yard as it would be if a job were edited now. It shares nothing with the yard that changes, so
// that the policy is asked outside the loop.
type EditRehearsal struct {
	rehearsal Rehearsal
	job       id.Job
}

// EditPreview is what an edit of a job would change. Positions are 0 for a job that is not in the queue.
type EditPreview struct {
	Preview
	Before, After int // positions in the queue, from 1
	// Passed are the jobs that would come after it and now come before it; Passing those that would come before it.
	Passed, Passing []*queue.Item
	Preempted       []*place.Running // that would be stopped where it would start
}

// RehearseEdit prepares the question what an edit would change, or says why it would be refused.
func (y *Yard) RehearseEdit(now time.Time, m Edit) (*EditRehearsal, error) {
	y.setNow(now)

	r, edited, err := y.checkedEdit(&m)
	if err != nil {
		return nil, err
	}

	trial := &jobRecord{Job: r.Job, outlook: r.outlook, committed: r.committed}
	trial.Needs = slices.Clone(r.pendingNeeds)
	trial.Spec = r.Amended.Edit(edited, m.By, y.now).Apply(r.Spec)
	y.renewOutlook(trial, r.Spec)

	policy := y.cfg.Policy
	if y.planning {
		policy = y.atBegin
	}

	v := y.view(now)
	h := &EditRehearsal{
		rehearsal: Rehearsal{policy: place.Rehearsal(policy), offers: y.leases.Market.All()},
		job:       r.ID,
	}

	switch {
	case r.State == job.Paused:
		h.rehearsal.jobs = []rehearsedJob{{why: place.Why{Blocker: place.BlockPaused, Sentence: r.Reason}}}
	case !r.NotBefore.IsZero() && r.NotBefore.After(y.now):
		why := place.Why{Blocker: place.BlockBackoff, Sentence: r.Reason, NotBefore: r.NotBefore}
		h.rehearsal.jobs = []rehearsedJob{{why: why}}
	case r.promise != nil:
		starts := promised{run: r.promise.run, allocations: r.promise.start.Allocations}
		h.rehearsal.jobs = []rehearsedJob{{why: starts.explain(v)}}
	default:
		one := y.rehearse(v, trial)
		if one.item != nil && r.entry != nil {
			one.item.Since = r.entry.Since
		}

		h.rehearsal.jobs = []rehearsedJob{one}
	}

	h.rehearsal.copied = y.copyView(v)

	return h, nil
}

// Preview asks the policy and says what the edit would change; it may be called once. The search of the policy is cut
// short when stop reports true; nil sets no limit.
func (h *EditRehearsal) Preview(stop func() bool) EditPreview {
	r := &h.rehearsal
	r.view = r.copied.View()

	before := orderOf(r.view)
	at := slices.IndexFunc(before, func(it *queue.Item) bool { return it.Job == h.job })
	if at >= 0 {
		r.view.Queue.Remove(before[at])
	}

	r.enqueue()
	after := orderOf(r.view)
	to := slices.IndexFunc(after, func(it *queue.Item) bool { return it.Job == h.job })

	list, plan := r.judge(stop)
	out := EditPreview{Preview: list[0], Before: at + 1, After: to + 1, Preempted: stoppedFor(&plan, h.job)}

	if at >= 0 && to >= 0 {
		out.Passed = notIn(before[:at], after[:to])
		out.Passing = notIn(after[:to], before[:at])
	}

	return out
}

// orderOf returns the queued jobs of a view in the order in which they are considered.
func orderOf(v *place.View) []*queue.Item {
	list := make([]*queue.Item, 0, v.Queue.Len())
	walk := v.Queue.Walk(v.UsageOf)
	all := func(*queue.Shape) bool { return true }

	for it := walk.Next(all); it != nil; it = walk.Next(all) {
		list = append(list, it)
	}

	return list
}

// notIn returns the jobs of a list that are not in another.
func notIn(list, other []*queue.Item) []*queue.Item {
	known := make(map[id.Job]bool, len(other))
	for _, it := range other {
		known[it.Job] = true
	}

	var rest []*queue.Item
	for _, it := range list {
		if !known[it.Job] {
			rest = append(rest, it)
		}
	}

	return rest
}

// stoppedFor returns the running jobs that a plan stops on nodes on which it starts a job.
func stoppedFor(plan *place.Checked, j id.Job) []*place.Running {
	var nodes []id.Node
	for i := range plan.Starts {
		if plan.Starts[i].Item.Job == j {
			for _, a := range plan.Starts[i].Allocations {
				nodes = append(nodes, a.Node)
			}
		}
	}

	var list []*place.Running
	for i := range plan.Stops {
		rn := plan.Stops[i].Running
		if slices.ContainsFunc(rn.Allocations, func(a place.Allocation) bool { return slices.Contains(nodes, a.Node) }) {
			list = append(list, rn)
		}
	}

	return list
}
