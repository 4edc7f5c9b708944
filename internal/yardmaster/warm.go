package yardmaster

import (
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/provision"
	"trainyard/internal/yardmaster/nodes"
)

// aheadInterval is after how long nodes that could not be provisioned ahead are tried again.
const aheadInterval = time.Minute

// recordDemand records that a job uses or is given a node of an offer.
func (y *Yard) recordDemand(o *fleet.Offer) { y.demand.Record(y.cfg.Keep.Warm, o, y.now) }

// nodeUsed records that a job uses a node, if it is a provisioned one, and replaces it among those
// that are kept ready.
func (y *Yard) nodeUsed(n *nodes.Node) {
	if l := y.Lease(n.Lease); l != nil && len(y.demand) > 0 {
		y.recordDemand(&l.Offer)
		y.aheadDue = true
	}
}

// loadDemand restores when jobs last used nodes of each warm line, from the leases.
func (y *Yard) loadDemand(leases []fleet.Lease) {
	for i := range leases {
		l := &leases[i]
		if l.Job != "" {
			y.demand.Record(y.cfg.Keep.Warm, &l.Offer, l.Requested)
		}

		if n, ok := y.nodes.Get(l.Node); ok && l.State == fleet.LeaseActive {
			switch {
			case len(n.Runs) > 0:
				y.recordDemand(&l.Offer)
			case l.Job != "":
				y.demand.Record(y.cfg.Keep.Warm, &l.Offer, n.Idle)
			}
		}
	}

	y.aheadDue = len(y.demand) > 0
}

// provisionAhead provisions the nodes that are to be ready before a job needs them. If the yard
// has as many nodes as it may, or an offer cannot be had, it tries again later.
func (y *Yard) provisionAhead() {
	y.aheadDue = false
	if len(y.demand) == 0 {
		return
	}

	list, short := provision.Ahead(
		y.leases.Live(), y.idleNodes(), y.leases.Market.Available(y.now), y.now, y.cfg.Keep, y.demand)

	for i := range list {
		if err := y.leases.ProvisionAhead(y.now, list[i].Offer, list[i].Reason); err != nil {
			short = true // as many nodes are provisioned as may be
			break
		}
	}

	if short {
		y.timers.Stop(y.aheadTimer)
		y.aheadTimer = y.after(y.now.Add(aheadInterval), func() { y.aheadDue = true })
	}

	if len(list) > 0 {
		y.settleLeases()
	}
}
