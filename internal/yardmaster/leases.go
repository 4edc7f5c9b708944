package yardmaster

import (
	"fmt"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/provision"
	"trainyard/internal/provision/lifecycle"
	"trainyard/internal/yardmaster/nodes"
)

// Lease returns a lease that has not ended, nil if there is none.
func (y *Yard) Lease(name id.Lease) *fleet.Lease { return y.leases.Of(name) }

// ReleaseLease releases an on-demand node. Its runs are stopped and their jobs requeued. If a
// job is still waiting for the nodes of the lease's gang, the other leases of the gang are
// released too, because it cannot use them alone. The answer is the lease.
type ReleaseLease struct {
	Lease id.Lease
	By    id.User
}

func (m ReleaseLease) handle(y *Yard) (any, error) {
	l, ok := y.leases.Get(m.Lease)
	if !ok {
		return y.leases.StartRelease(y.now, m.Lease, "")
	}

	reason := "released by " + string(m.By)
	gang := y.leases.GangOf(l)
	y.releaseLease(l, reason)

	for _, o := range gang {
		y.releaseLease(o, fmt.Sprintf("lease %s of the same gang was %s", l.ID, reason))
	}

	return *l, nil
}

// releaseLease releases a lease; one whose node has joined only after its runs have ended.
func (y *Yard) releaseLease(l *fleet.Lease, reason string) {
	if n, joined := y.nodes.Get(l.Node); joined && l.State == fleet.LeaseActive {
		y.vacate(n, reason)
		return
	}

	y.leases.Release(y.now, l.ID, reason)
}

// vacate cordons an on-demand node and releases it once its runs have ended.
func (y *Yard) vacate(n *nodes.Node, reason string) {
	y.nodes.Cordon(y.now, n, reason)

	if len(n.Runs) == 0 {
		y.leases.Release(y.now, n.Lease, reason)
		return
	}

	for _, run := range sortedKeys(n.Runs) {
		y.evict(y.runs[run], n.ID, theYard, fmt.Sprintf("node %s is released: %s", n.ID, reason))
	}
}

// provisionAll creates leases for what a plan wants to provision.
func (y *Yard) provisionAll(list []place.Provision) {
	for i := range list {
		why := y.provision(&list[i])
		if why == "" {
			continue
		}

		j := list[i].Item.Job
		y.drop(Event{Job: j, Reason: why})

		if y.unprovided == nil {
			y.unprovided = map[id.Job]string{}
		}

		y.unprovided[j] = fmt.Sprintf("%s cannot be provisioned: %s", list[i].Offer, why)
	}
}

// provision creates leases for one job, or says why it does not.
func (y *Yard) provision(h *place.Provision) (why string) {
	r, ok := y.jobs[h.Item.Job]
	offer, offered := y.leases.Market.Offer(h.Offer)
	switch {
	case !ok || h.Running == nil && r.item != h.Item:
		return noLongerQueued
	case h.Running != nil && (r.running != h.Running || r.running.Stopping):
		return noLongerThere
	case !offered:
		return "unknown offer " + h.Offer
	case h.Count < 1 || h.Reason == "":
		return "the plan gives no node count or no reason"
	case y.leases.Awaits(r.ID):
		return "nodes are already being provisioned for the job"
	}

	if why := provisionQuotaReached(y.allowance(r), h); why != "" {
		return why
	}

	wish := lifecycle.Request{
		Offer:   offer,
		Count:   h.Count,
		Job:     r.ID,
		Owner:   r.Owner,
		Project: r.Project,
		Reason:  h.Reason,
		Faster:  h.Running != nil,
		By:      h.By,
	}

	cost := h.Cost
	if h.Running != nil {
		now, _ := y.expectedUse(r)
		cost += max(now, 0)
	}

	if err := y.leases.Provision(y.now, wish, r.commitment(cost, -1)); err != nil {
		return err.Error()
	}

	r.committed = true
	y.recordDemand(&offer)

	if h.Running != nil {
		y.awaitFaster(r, h)
		return ""
	}

	y.updateOwnAllowance(r)
	y.reserveGPUs(r)
	y.decideProvision(r, h.Counterfactual)

	return ""
}

// settleLeases passes on changes of leases to the ledger, and removes nodes whose machines
// are gone.
func (y *Yard) settleLeases() {
	gone, changed := y.leases.Settle(y.now, func(l *fleet.Lease) {
		y.leaseChanged(l)
		if r, ok := y.jobs[l.Job]; ok {
			y.fasterChanged(r, l)
			y.reserveGPUs(r)
		}

		if n, ok := y.nodes.Get(l.Node); ok && !l.Live() && n.State != fleet.Removed {
			y.nodes.Cordon(y.now, n, l.Reason)
		}
	})

	for _, l := range gone {
		if n, ok := y.nodes.Get(l.Node); ok && n.State != fleet.Removed {
			y.loseMachine(n, l)
		}
	}

	y.leases.Watch(y.now)
	y.planDue = y.planDue || changed

	y.aheadDue = y.aheadDue || changed && len(y.demand) > 0
}

// loseMachine removes a node whose machine is gone.
func (y *Yard) loseMachine(n *nodes.Node, l *fleet.Lease) {
	if n.State != fleet.Lost {
		y.moveNode(n, fleet.EventGone, theYard, l.Reason)
	}

	y.giveUp(n, job.CauseNodeLost, fmt.Sprintf("node %s is gone: %s", n.ID, l.Reason))
	y.moveNode(n, fleet.EventRemove, theYard, l.Reason)
}

// checkIdle releases an idle on-demand node if it is not worth keeping.
func (y *Yard) checkIdle(name id.Node) {
	n, ok := y.nodes.Get(name)
	if !ok || n.Lease == "" || len(n.Runs) > 0 || n.State == fleet.Removed || y.isOrigin(name) {
		return
	}

	l := y.Lease(n.Lease)
	if l == nil || l.State != fleet.LeaseActive {
		return
	}

	if n.Cordoned {
		y.leases.Release(y.now, l.ID, n.Reason)
		return
	}

	if y.isTarget(n) {
		y.recheckIdle(n, y.now.Add(targetCheck))
		return
	}

	if at := y.leases.KeepUntil(y.now, l); !at.IsZero() {
		y.recheckIdle(n, at)
		return
	}

	for _, k := range provision.CheckIdle(y.idleNodes(), y.now, y.cfg.Keep, y.demand) {
		switch {
		case k.Lease != l.ID && k.Release: // this node has taken its place among those that are kept
			if other, ok := y.nodes.Get(y.Lease(k.Lease).Node); ok {
				y.recheckIdle(other, y.now)
			}
		case k.Lease != l.ID:
		case k.Release:
			y.vacate(n, k.Why)
		case !k.NextCheck.IsZero():
			y.recheckIdle(n, k.NextCheck)
		}
	}
}

// recheckIdle calls checkIdle at a later time.
func (y *Yard) recheckIdle(n *nodes.Node, at time.Time) {
	y.timers.Stop(n.IdleCheck)
	n.IdleCheck = y.after(at, func() { y.checkIdle(n.ID) })
}

// idleNodes lists the on-demand nodes on which nothing runs.
func (y *Yard) idleNodes() []provision.IdleNode {
	var list []provision.IdleNode
	for _, l := range y.leases.Live() {
		if n, ok := y.nodes.Get(l.Node); ok && l.State == fleet.LeaseActive && len(n.Runs) == 0 && !n.Cordoned &&
			!y.isOrigin(n.ID) && !y.isTarget(n) {
			list = append(list, provision.IdleNode{Lease: l, Since: n.Idle})
		}
	}

	return list
}
