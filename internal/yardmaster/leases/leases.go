// Package leases keeps the yard's leases with what they are for: which were created for
// which queued job, which offers are open or were refused recently, and which providers
// are failing.
//
// On the path of a job it follows place: a plan says what to provision, the yardmaster
// checks the quotas and creates the leases here, and the cloud adapters call the
// providers. Until a machine has joined, its price counts against the quota of its payer.
// It decides nothing about nodes and their runs when a lease ends: Settle tells the
// yardmaster, which does.
package leases

import (
	"fmt"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/money"
	"trainyard/internal/provision"
	"trainyard/internal/provision/lifecycle"
	"trainyard/internal/quota"
	"trainyard/internal/yardmaster/batch"
	"trainyard/internal/yardmaster/timers"
)

// Leases holds the leases and what they are for. It is not safe for concurrent use.
type Leases struct {
	*lifecycle.Leases
	Market *provision.Catalog

	sweepInterval time.Duration
	quotas        *quota.Tracker
	recentlySeen  func(id.Node) bool
	feed          *batch.Feed
	timers        *timers.Timers
	byJob         map[id.Job][]id.Lease      // leases created for queued jobs
	pendingHourly map[id.Lease]money.PerHour // hourly price of machines that have not joined yet
	outages       map[string]*outage         // providers that are failing
	sweep         *timers.Timer
	changed       []*fleet.Lease
	offered       offered
}

// offered is what Offers returned last, kept so that policies see the same list while nothing has
// changed.
type offered struct {
	of              []fleet.Offer // the offers of the market
	inUse           []int         // nodes of each
	open, exhausted []fleet.Offer
}

// Offers returns what may be provisioned now, cheapest first, where MaxNodes is how many more of an
// offer there may be; and the offers of which there are as many as there may be.
func (h *Leases) Offers(now time.Time) (open, exhausted []fleet.Offer) {
	all := h.Market.Available(now)
	if !slices.ContainsFunc(all, func(o fleet.Offer) bool { return o.MaxNodes > 0 }) {
		return all, nil
	}

	inUse := make([]int, len(all))
	for i := range all {
		if all[i].MaxNodes > 0 {
			inUse[i] = h.CountOf(all[i].Name)
		}
	}

	last := &h.offered
	if len(last.of) == len(all) && &last.of[0] == &all[0] && slices.Equal(last.inUse, inUse) {
		return last.open, last.exhausted
	}

	*last = offered{of: all, inUse: inUse}
	for i, o := range all {
		if o.MaxNodes > 0 && inUse[i] >= o.MaxNodes {
			last.exhausted = append(last.exhausted, o)
			continue
		}

		if o.MaxNodes > 0 {
			o.MaxNodes -= inUse[i]
		}

		last.open = append(last.open, o)
	}

	return last.open, last.exhausted
}

// New returns a yard without leases. recentlySeen reports whether a node's agent has
// reported recently: only then its lease is renewed.
func New(
	cfg lifecycle.Config,
	offers []fleet.Offer,
	quotas *quota.Tracker,
	feed *batch.Feed,
	timers *timers.Timers,
	recentlySeen func(id.Node) bool,
) *Leases {
	return &Leases{
		Leases:        lifecycle.New(cfg),
		Market:        provision.NewCatalog(offers),
		sweepInterval: cfg.SweepInterval(),
		quotas:        quotas,
		recentlySeen:  recentlySeen,
		feed:          feed,
		timers:        timers,
		byJob:         map[id.Job][]id.Lease{},
		pendingHourly: map[id.Lease]money.PerHour{},
		outages:       map[string]*outage{},
	}
}

// Load restores the leases, with the jobs that still wait for them.
func (h *Leases) Load(now time.Time, s *batch.State) {
	h.Leases.Load(now, s.Leases, s.LastLease)
	h.Market.Replay(s.Leases)

	for _, l := range h.Live() {
		h.quotas.Nodes(now, payer(l), 1)

		if l.Job != "" && arriving(l) {
			h.byJob[l.Job] = append(h.byJob[l.Job], l.ID)
		}
	}

	h.Watch(now)
}

// Take moves what has changed into a batch.
func (h *Leases) Take(b *batch.Batch) {
	b.Leases = b.Leases[:0]
	for _, l := range h.changed {
		b.Leases = append(b.Leases, *l)
	}

	clear(h.changed)
	h.changed = h.changed[:0]
}

// Watch sweeps the leases regularly as long as there are any.
func (h *Leases) Watch(now time.Time) {
	if h.sweep != nil || len(h.Live()) == 0 {
		return
	}

	h.sweep = h.timers.After(now.Add(h.sweepInterval), func(now time.Time) {
		h.sweep = nil
		h.Sweep(now, h.recentlySeen)
		h.Watch(now)
	})
}

// Of returns a lease that has not ended, nil if there is none.
func (h *Leases) Of(name id.Lease) *fleet.Lease {
	l, _ := h.Get(name)
	return l
}

// arriving reports whether the machine of a lease has not joined yet and still may.
func arriving(l *fleet.Lease) bool {
	return l.State == fleet.LeaseRequested || l.State == fleet.LeaseBooting
}

// payer returns who pays for a lease.
func payer(l *fleet.Lease) quota.Payer { return quota.Payer{Owner: l.Owner, Project: l.Project} }

// Provision creates the leases of a request for a queued job and commits their expected
// cost, so that nobody else spends that money.
func (h *Leases) Provision(now time.Time, w lifecycle.Request, o quota.Commitment) error {
	created, err := h.Leases.Provision(now, w)
	if err != nil {
		return err
	}

	who := quota.Payer{Owner: w.Owner, Project: w.Project, Job: w.Job}

	for _, l := range created {
		h.byJob[w.Job] = append(h.byJob[w.Job], l.ID)
		h.quotas.Nodes(now, payer(l), 1)
		hourly := l.Offer.PerHour()
		h.pendingHourly[l.ID] = hourly
		h.quotas.Use(now, who, fleet.OnDemand, 0, hourly)
	}

	h.quotas.Commit(who, o)
	h.Watch(now)

	return nil
}

// ProvisionAhead creates a lease for no job: the yard pays for its node until one uses it.
func (h *Leases) ProvisionAhead(now time.Time, o fleet.Offer, reason string) error {
	_, err := h.Leases.Provision(now, lifecycle.Request{Offer: o, Count: 1, Reason: reason})
	if err != nil {
		return err
	}

	h.quotas.Nodes(now, quota.Payer{}, 1)
	h.Watch(now)

	return nil
}

// Awaits reports whether nodes are being provisioned for a queued job.
func (h *Leases) Awaits(j id.Job) bool { return len(h.byJob[j]) > 0 }

// Arrival is that nodes are being provisioned for a job.
type Arrival struct {
	Sentence string    // which
	Ready    time.Time // when the last of them is expected to have booted; zero if that is not known
}

// Arrivals returns for which jobs nodes are being provisioned, nil if there are none.
func (h *Leases) Arrivals() map[id.Job]Arrival {
	var list map[id.Job]Arrival

	for j := range h.byJob {
		sentence, ready := h.arriving(j)
		if sentence == "" {
			continue
		}

		if list == nil {
			list = make(map[id.Job]Arrival, len(h.byJob))
		}

		list[j] = Arrival{sentence, ready}
	}

	return list
}

// arriving says which node is being provisioned for a job, "" if none is, and when the last of
// its nodes is expected to have booted; zero if that is not known.
func (h *Leases) arriving(j id.Job) (sentence string, ready time.Time) {
	known := true

	for _, name := range h.byJob[j] {
		l := h.Of(name)
		if l == nil || !arriving(l) {
			continue
		}

		if sentence == "" {
			sentence = fmt.Sprintf("a node is being provisioned: %s (lease %s, %s)", l.Offer.Name, l.ID, l.State)
		}

		known = known && l.Offer.Boot > 0
		if at := l.Requested.Add(time.Duration(l.Offer.Boot)); at.After(ready) {
			ready = at
		}
	}

	if !known {
		ready = time.Time{}
	}

	return sentence, ready
}

// Abandon releases the leases of a job that has left the queue, as far as their machines have
// not joined.
func (h *Leases) Abandon(now time.Time, j id.Job) {
	list, ok := h.byJob[j]
	if !ok {
		return
	}

	delete(h.byJob, j)
	for _, name := range list {
		if l := h.Of(name); l != nil && arriving(l) {
			h.Release(now, name, "job "+string(j)+" no longer needs it")
		}
	}
}

// Release releases a lease, unless it has ended already.
func (h *Leases) Release(now time.Time, name id.Lease, reason string) {
	if _, live := h.Get(name); live {
		_, err := h.StartRelease(now, name, reason)
		h.feed.Bug(now, err)
	}
}

// GangOf returns the other leases of a gang for which a job still waits.
func (h *Leases) GangOf(l *fleet.Lease) []*fleet.Lease {
	sameGang := func(name id.Lease) bool {
		o, live := h.Get(name)
		return live && o.Gang == l.Gang
	}

	if l.Gang == "" || !slices.ContainsFunc(h.byJob[l.Job], sameGang) {
		return nil
	}

	var list []*fleet.Lease
	for _, o := range h.Live() {
		if o.Gang == l.Gang && o != l && o.Live() {
			list = append(list, o)
		}
	}

	return list
}

// grace is how long a node that has just joined is kept for the job it was provisioned for.
const grace = time.Minute

// KeepUntil returns until when an idle on-demand node is kept in any case, because other
// nodes of its gang have not joined yet or its job is about to start there; zero if it may
// be released now.
func (h *Leases) KeepUntil(now time.Time, l *fleet.Lease) time.Time {
	partial := l.Gang != "" &&
		slices.ContainsFunc(h.Live(), func(o *fleet.Lease) bool { return o.Gang == l.Gang && arriving(o) })
	if partial || slices.Contains(h.byJob[l.Job], l.ID) && now.Sub(l.Joined) < grace {
		return now.Add(grace)
	}

	return time.Time{}
}

// Settle passes on the changes of leases since the last call: changed is called for each
// lease first. It returns the leases whose node is gone, and whether there was any change.
func (h *Leases) Settle(now time.Time, changed func(*fleet.Lease)) (gone []*fleet.Lease, any bool) {
	out := h.Leases.Take()
	h.changed = append(h.changed, out.Changed...)
	for _, l := range out.Changed {
		changed(l)

		if !arriving(l) {
			h.dropPending(now, l)
		}

		if !l.Live() {
			h.forget(l)
		}
	}

	for _, t := range out.Events {
		h.feed.Add(
			now,
			batch.Event{
				Kind:   t.Kind,
				Actor:  batch.Yard,
				Owner:  t.Lease.Owner,
				Job:    t.Lease.Job,
				Node:   t.Lease.Node,
				Lease:  t.Lease.ID,
				From:   string(t.From),
				To:     string(t.Lease.State),
				Reason: t.Reason,
			},
		)
	}

	for _, l := range out.Closed {
		if !l.Stray {
			h.quotas.Nodes(now, payer(l), -1)
		}

		h.Market.Ended(l)
	}

	return out.Gone, len(out.Changed) > 0
}

// dropPending ends the expected hourly cost of a lease: its machine has joined and is
// metered, or it will not come.
func (h *Leases) dropPending(now time.Time, l *fleet.Lease) {
	if hourly, ok := h.pendingHourly[l.ID]; ok {
		delete(h.pendingHourly, l.ID)
		h.quotas.Use(now, quota.Payer{Owner: l.Owner, Project: l.Project, Job: l.Job}, fleet.OnDemand, 0, -hourly)
	}
}

// forget drops a lease that a job no longer waits for.
func (h *Leases) forget(l *fleet.Lease) {
	if others := slices.DeleteFunc(h.byJob[l.Job], func(o id.Lease) bool { return o == l.ID }); len(others) > 0 {
		h.byJob[l.Job] = others
	} else {
		delete(h.byJob, l.Job)
	}
}
