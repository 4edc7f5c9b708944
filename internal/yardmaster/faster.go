package yardmaster

import (
	"fmt"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/money"
	"trainyard/internal/place"
	"trainyard/internal/yardmaster/nodes"
)

// Nodes that are provisioned for a running job because it is too slow. The job continues where it is. Whether it moves
// to them when they are ready, or no longer needs them, the next plans say.

// faster is what a run for which nodes were provisioned keeps of its quotas and its budget.
type faster struct {
	cost money.Amount // that is expected of them
	gpus int          // that it gets more than it has
}

// targetCheck is how often a node is looked at that a job will move to.
const targetCheck = time.Minute

// awaitFaster records that nodes were provisioned for a running job.
func (y *Yard) awaitFaster(r *jobRecord, h *place.Provision) {
	r.running.Hurried = y.now
	r.run.faster = faster{cost: h.Cost, gpus: max(h.GPUs-h.Running.GPUs, 0)}
	y.reserveGPUs(r)

	if h.By == "" {
		y.withdrawSlow(r)
	}
}

// awaited lists the leases of nodes that a running job may move to.
func (y *Yard) awaited(r *jobRecord) []*fleet.Lease {
	if r.run == nil {
		return nil
	}

	var list []*fleet.Lease
	for _, l := range y.leases.Live() {
		if l.Faster && l.Job == r.ID && l.Live() && l.Requested.After(r.run.Ordered) {
			list = append(list, l)
		}
	}

	return list
}

// fasterChanged follows a lease of a job: what will not come is not kept of its quotas. If the provider has refused it
// another offer may be tried at once.
func (y *Yard) fasterChanged(r *jobRecord, l *fleet.Lease) {
	if r.running == nil || l.Live() || !l.Faster || len(y.awaited(r)) > 0 {
		return
	}

	if l.State == fleet.LeaseRefused {
		r.running.Hurried = time.Time{}
	}

	r.run.faster = faster{}

	if y.limited() {
		y.commit(r)
	}
}

// releaseUnneeded releases the nodes that a plan says running jobs no longer need.
func (y *Yard) releaseUnneeded(list []place.Release) {
	for _, u := range list {
		l := y.Lease(u.Lease)
		if l == nil || !l.Live() {
			continue
		}

		if r, ok := y.jobs[l.Job]; ok && r.running != nil && r.running.Awaits(l) && r.promise == nil {
			y.releaseLease(l, u.Reason)
		}
	}

	if y.leases.Pending() {
		y.settleLeases()
	}
}

// releaseAwaited releases the nodes that a job waited for that will not move any more.
func (y *Yard) releaseAwaited(r *jobRecord) {
	for _, l := range y.awaited(r) {
		y.releaseLease(l, fmt.Sprintf("job %s does not need it: it is %s", r.ID, r.State))
	}
}

// isTarget reports whether a job will move to a node that is empty, or may: GPUs of it are booked, or it was
// provisioned for a running job.
func (y *Yard) isTarget(n *nodes.Node) bool {
	if room, ok := y.nodes.Rooms.Get(n.ID); ok && len(room.Holds) > 0 {
		return true
	}

	l := y.Lease(n.Lease)
	if l == nil {
		return false
	}

	r, ok := y.jobs[l.Job]
	p, relocates := y.cfg.Policy.(place.Relocator)

	return ok && r.running != nil && r.running.Awaits(l) && relocates && p.Relocates()
}
