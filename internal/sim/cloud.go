package sim

import (
	"math"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// Cloud is a modelled provider: it grants a node after the boot time of the offer,
// unless it refuses, and reclaims spot nodes at given times.
type Cloud struct {
	Offers   []fleet.Offer
	Refusals []Refusal
	Reclaims []Reclaim
	// Describe adds to the inventory of a machine what its offer does not say; nil for nothing.
	Describe func(*fleet.Inventory)
}

// Reclaim is a spot node that the provider reclaims: the oldest of those of which it has not given notice before.
type Reclaim struct {
	At     time.Duration // when the machine is gone
	Notice time.Duration // how long before it says so; 0 if it does not
}

// Refusal is a stretch of time in which an offer cannot be had.
type Refusal struct {
	Offer    string // by its name
	From, To time.Duration
	Code     string // see fleet.Refused…
}

// provisionAll carries out what the leases of a batch say.
func (s *simulation) provisionAll(leases []fleet.Lease) {
	for i := range leases {
		l := &leases[i]
		switch l.State {
		case fleet.LeaseRequested:
			if !s.requested[l.ID] {
				s.requested[l.ID] = true
				s.provision(*l)
			}
		case fleet.LeaseReleasing:
			s.release(l)
		case fleet.LeaseBooting, fleet.LeaseActive, fleet.LeaseEnded, fleet.LeaseRefused:
		}
	}
}

// provision lets the provider answer, and the machine boot and join. Both happen after
// the yard is done with what it is doing.
func (s *simulation) provision(l fleet.Lease) {
	s.tally.out.Provisioned++
	for _, r := range s.cfg.Cloud.Refusals {
		if r.Offer == l.Offer.Name && s.now >= r.From && s.now < r.To {
			s.at(s.now, func(s *simulation) {
				s.step(yardmaster.LeaseRefused{Lease: l.ID, Code: r.Code, Why: "the provider has none of " + r.Offer + " now"})
			})

			return
		}
	}

	s.at(s.now, func(s *simulation) {
		s.step(
			yardmaster.LeaseGranted{
				Lease:    l.ID,
				Provider: l.Offer.Provider,
				Machine:  fleet.Instance{ID: "i-" + string(l.ID), Lease: l.ID, State: fleet.InstancePending, Billed: -1},
			},
		)
	})

	s.boot(l)
}

// boot lets a machine that the provider has granted boot and join.
func (s *simulation) boot(l fleet.Lease) {
	n := *l.Offer.Node()
	n.ID, n.Lease = id.Node("cloud-"+string(l.ID)), l.ID
	if s.cfg.Cloud.Describe != nil {
		s.cfg.Cloud.Describe(&n.Inventory)
	}

	h := &host{node: n, meter: newLeaseMeter(&l.Offer, s.now)}
	s.machines[l.ID] = h
	s.at(s.now+time.Duration(l.Offer.Boot), func(s *simulation) {
		if s.machines[l.ID] != h {
			return // released meanwhile
		}

		s.hosts[n.ID] = h
		s.tally.size(s.now, len(n.Inventory.GPUs))
		token := id.Token("lease-" + string(l.ID))

		owner := l.Owner
		if owner == "" { // provisioned for nobody in particular
			owner = everyone
			s.addUser(owner)
		}

		s.step(
			yardmaster.AddToken{
				By: "sim",
				Token: tenant.Token{ID: token, Kind: tenant.JoinToken, Owner: owner, Class: string(fleet.OnDemand), Lease: l.ID,
					UsesLeft: 1, Expires: s.time().Add(time.Hour)},
			},
		)

		s.step(yardmaster.Join{Token: token, Name: string(n.ID), Inventory: n.Inventory})
	})
}

// newLeaseMeter meters the hourly price of a provisioned machine, used or not, by its
// billing increments.
func newLeaseMeter(o *fleet.Offer, now time.Duration) meter {
	m := newMeter(nil, o.Node(), now)
	m.tariff = &fleet.Tariff{}
	m.price = &fleet.NodePrice{Hourly: []money.PerHour{o.PerHour()}, BillingIncrement: o.BillingIncrement}
	m.minBilling = time.Duration(o.MinBilling)

	return m
}

// release ends a machine. The yard has stopped its runs before.
func (s *simulation) release(l *fleet.Lease) {
	h, there := s.machines[l.ID]
	if !there {
		return
	}

	delete(s.machines, l.ID)
	h.meter.close(s.now)

	if _, joined := s.hosts[h.node.ID]; joined {
		s.tally.size(s.now, -len(h.node.Inventory.GPUs))
	} else {
		s.hosts[h.node.ID] = h // so that it is paid for
	}

	name := l.ID
	s.at(s.now, func(s *simulation) { s.step(yardmaster.MachineGone{Lease: name}) })
}

// reclaimSpot lets the provider reclaim the oldest active spot machine, after a notice if it gives one.
func (s *simulation) reclaimSpot(r Reclaim) {
	oldest := uint64(math.MaxUint64)
	var found *host
	for name, h := range s.machines {
		l := s.yard.Lease(name)
		if n, _ := name.Number(); l != nil && l.Offer.Spot && l.State == fleet.LeaseActive && n < oldest && !h.noticed {
			oldest, found = n, h
		}
	}

	if found == nil {
		return
	}

	lease := id.NewLease(oldest)
	left := r.At - s.now
	if left <= 0 {
		s.loseSpot(lease, found)
		return
	}

	found.noticed = true
	notice := found.report(nil)
	notice.Reclaim = &left
	s.step(notice)
	s.at(r.At, func(s *simulation) { s.loseSpot(lease, found) })
}

// loseSpot takes a spot machine away, unless it was released before.
func (s *simulation) loseSpot(lease id.Lease, found *host) {
	if s.machines[lease] != found {
		return
	}

	delete(s.machines, lease)
	for _, m := range slices.Clone(found.runs) {
		if !m.halted {
			m.advance(s)
			m.lose()
			m.halted, m.broken = true, true
			m.gen++
			s.show(m, Watched{Ended: true, Cause: job.CauseNodeLost})
		}

		s.keep(m)
		s.rankGone(m, slices.Index(m.hosts, found))
	}

	found.dead = true
	found.meter.close(s.now)
	s.tally.size(s.now, -len(found.node.Inventory.GPUs))
	s.step(yardmaster.MachineGone{Lease: lease, Why: "spot"})
}
