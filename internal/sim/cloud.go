package sim

import (
	"math"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// Cloud is a modelled provider: it gives what is asked for after the offer's boot
// time, unless it refuses, and takes spot nodes back when it wants.
type Cloud struct {
	Offers   []fleet.Offer
	Refusals []Refusal
	// Takes are the times at which it takes back the spot node that was given longest ago.
	Reclaims []time.Duration
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
				s.step(yardmaster.Refused{Lease: l.ID, Code: r.Code, Why: "the provider has none of " + r.Offer + " now"})
			})

			return
		}
	}

	s.at(s.now, func(s *simulation) {
		s.step(
			yardmaster.Granted{
				Lease:    l.ID,
				Provider: l.Offer.Provider,
				Machine:  fleet.Instance{ID: "i-" + string(l.ID), Lease: l.ID, State: fleet.InstancePending, Billed: -1},
			},
		)
	})

	n := *l.Offer.Node()
	n.ID, n.Lease = id.Node("cloud-"+string(l.ID)), l.ID
	h := &host{node: n, meter: newLeaseMeter(&l.Offer, s.now)}
	s.machines[l.ID] = h
	s.at(s.now+time.Duration(l.Offer.Boot), func(s *simulation) {
		if s.machines[l.ID] != h {
			return // given back meanwhile
		}

		s.hosts[n.ID] = h
		s.tally.size(s.now, len(n.Inventory.GPUs))
		token := id.Token("lease-" + string(l.ID))
		s.step(
			yardmaster.AddToken{
				By: "sim",
				Token: tenant.Token{ID: token, Kind: tenant.JoinToken, Owner: l.Owner, Class: string(fleet.OnDemand), Lease: l.ID,
					UsesLeft: 1, Expires: s.time().Add(time.Hour)},
			},
		)

		s.step(yardmaster.Join{Token: token, Name: string(n.ID), Inventory: n.Inventory})
	})
}

// newLeaseMeter reads what a provisioned machine costs: its rent, used or not, by the
// stretches in which it is paid.
func newLeaseMeter(o *fleet.Offer, now time.Duration) meter {
	m := newMeter(nil, o.Node(), now)
	rent := make([]float64, 1)
	rent[0] = float64(o.Hourly) / 1e6
	m.tariff = &fleet.Tariff{}
	m.price = &fleet.NodePrice{Hourly: rent, BillingIncrement: o.BillingIncrement}
	m.minBilling = time.Duration(o.MinBilling)

	return m
}

// giveBack ends a machine: what ran there was stopped before.
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

// takeBack lets the provider take back the spot machine that it gave longest ago.
func (s *simulation) reclaimSpot() {
	oldest := uint64(math.MaxUint64)
	var found *host
	for name, h := range s.machines {
		l := s.yard.Lease(name)
		if n, _ := name.Number(); l != nil && l.Offer.Spot && l.State == fleet.LeaseActive && n < oldest {
			oldest, found = n, h
		}
	}

	if found == nil {
		return
	}

	lease := id.NewLease(oldest)
	delete(s.machines, lease)
	for _, m := range slices.Clone(found.runs) {
		if !m.halted {
			m.advance(s)
			m.lose()
			m.halted, m.broken = true, true
			m.gen++
		}

		m.life.saved, m.life.ran = m.did, m.ran
		s.rankGone(m, slices.Index(m.hosts, found))
	}

	found.dead = true
	found.meter.close(s.now)
	s.tally.size(s.now, -len(found.node.Inventory.GPUs))
	s.step(yardmaster.MachineGone{Lease: lease, Why: "spot"})
}
