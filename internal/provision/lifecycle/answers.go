package lifecycle

import (
	"fmt"
	"strings"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
)

// Granted takes the provider's answer that it has created a machine. One that comes
// late, or twice, or with another machine than the one that is known, is made good:
// a machine too many gets a lease of its own and is given back.
func (l *Leases) Granted(now time.Time, name id.Lease, provider string, m fleet.Instance) {
	r, ok := l.all[name]
	if !ok || r.Instance != "" && r.Instance != m.ID {
		l.stray(now, provider, &m, "created for lease "+string(name)+", which no longer needs it")
		return
	}

	l.adopt(now, r, &m, "provisioned instance "+m.ID)
}

// adopt writes down which machine a lease has. One that was listed before it carried
// its lease was taken for a stray, whose lease ends now: no machine has two.
func (l *Leases) adopt(now time.Time, r *record, m *fleet.Instance, reason string) {
	other := l.instance[key(r.Offer.Provider, m.ID)]
	if m.ID == "" || other != nil && (other == r || !other.Stray) {
		return
	}

	if other != nil {
		l.move(now, other, fleet.LeaseGone, "instance belongs to lease "+string(r.ID))
	}

	r.Instance, r.Granted = m.ID, within(m.Launched, r.Requested, now)
	if m.Zone != "" {
		r.Offer.Zone = m.Zone
	}

	l.instance[key(r.Offer.Provider, m.ID)] = r
	l.move(now, r, fleet.LeaseGrant, reason)
}

// within returns a time as a provider's clock has it, kept between two of our own.
func within(t, from, to time.Time) time.Time {
	switch {
	case t.IsZero() || t.After(to):
		return to
	case t.Before(from):
		return from
	}

	return t
}

// Refused takes the provider's answer that it gives no machine, for certain. The
// others of a gang are of no use then.
func (l *Leases) Refused(now time.Time, name id.Lease, why string) {
	r, ok := l.all[name]
	if !ok || r.Instance != "" {
		return // an old answer: a later attempt went through
	}

	l.move(now, r, fleet.LeaseRefuse, why)
	l.disband(now, r, "a node of the same job was refused: "+why)
}

// disband gives back the other leases of a gang.
func (l *Leases) disband(now time.Time, r *record, reason string) {
	if r.Gang == "" {
		return
	}

	for _, o := range append([]*fleet.Lease(nil), l.live...) {
		if o.Gang == r.Gang && o.ID != r.ID && o.Live() {
			l.release(now, l.all[o.ID], reason)
		}
	}
}

// Unclear takes note of a call after which it is not known whether there is a machine.
func (l *Leases) Unclear(now time.Time, name id.Lease, why string) {
	r, ok := l.all[name]
	if !ok {
		return
	}

	r.tried = now
	if r.Instance != "" {
		return
	}

	l.out.Events = append(
		l.out.Events,
		Event{
			Kind:   "lease.unclear",
			Lease:  &r.Lease,
			From:   r.State,
			Reason: "unknown whether the provider created an instance: " + why,
		},
	)

	r.Reason = "retrying: " + why
	l.changed(r)
}

// Accepted takes note that the provider took the order to end a machine.
func (l *Leases) Accepted(now time.Time, name id.Lease) {
	if r, ok := l.all[name]; ok && r.accepted.IsZero() {
		r.accepted = now
	}
}

// Listed takes a provider's list of the yard's machines. asked is when it was asked
// for: what happened after that it cannot show.
func (l *Leases) Listed(now, asked time.Time, provider string, machines []fleet.Instance) {
	seen := make(map[string]bool, len(machines))
	for i := range machines {
		m := &machines[i]
		seen[m.ID] = true
		l.seen(now, provider, m)
	}

	for _, o := range append([]*fleet.Lease(nil), l.live...) {
		if r := l.all[o.ID]; r.Offer.Provider == provider && !seen[r.Instance] {
			l.missing(now, asked, r)
		}
	}
}

// seen compares a machine with the lease that it carries.
func (l *Leases) seen(now time.Time, provider string, m *fleet.Instance) {
	r, known := l.instance[key(provider, m.ID)]
	if !known {
		if m.State == fleet.InstanceGone {
			return
		}

		r = l.all[m.Lease]
		if r == nil || r.Instance != "" || r.Offer.Provider != provider {
			l.stray(now, provider, m, whyStray(m, r))
			return
		}

		l.adopt(now, r, m, "instance "+m.ID+" found at the provider")
	}

	if m.Billed >= 0 && m.Billed != r.Billed {
		r.Billed = m.Billed
		l.changed(r)
	}

	if m.State == fleet.InstanceGone {
		l.gone(now, r, m.Why, m.Ended)
	}
}

// Gone takes note that a lease's machine has ended.
func (l *Leases) Gone(now time.Time, name id.Lease, why string) {
	if r, ok := l.all[name]; ok {
		l.gone(now, r, why, time.Time{})
	}
}

// gone ends a lease whose machine the provider has no more, since when as far as it says.
func (l *Leases) gone(now time.Time, r *record, why string, since time.Time) {
	reason := "instance " + r.Instance + " is gone"
	switch {
	case r.State == fleet.LeaseReleasing:
		reason = "released"
	case strings.EqualFold(why, "spot"):
		reason = fleet.SpotReclaimed
	case why != "":
		reason += ": " + why
	}

	r.Ended = within(since, r.Granted, now)
	unasked := r.State == fleet.LeaseBooting || r.State == fleet.LeaseActive
	l.move(now, r, fleet.LeaseGone, reason)

	if unasked && r.Joined.IsZero() {
		l.disband(now, r, "a node of the same job is gone")
	}
}

// missing looks at a lease whose machine is not in a list. A list may lag, so only
// one that was asked for long enough after the last call counts.
func (l *Leases) missing(now, asked time.Time, r *record) {
	switch {
	case r.State == fleet.LeaseActive:
		return // its agent is heard, or Sweep will see that it is not
	case r.Instance == "" && r.State == fleet.LeaseRequested:
		return // it is being asked for
	case r.Instance == "": // returning: was anything created?
		if since := latest(r.tried, r.Released); asked.Sub(since) >= l.cfg.ListLag {
			l.move(now, r, fleet.LeaseGone, "released; the provider lists no instance for it")
		}
	default:
		if since := latest(r.accepted, r.Granted, r.Since); asked.Sub(since) >= l.cfg.ListLag {
			l.gone(now, r, "the provider no longer lists it", time.Time{})
		}
	}
}

func latest(times ...time.Time) time.Time {
	var last time.Time
	for _, t := range times {
		if t.After(last) {
			last = t
		}
	}

	return last
}

func whyStray(m *fleet.Instance, r *record) string {
	switch {
	case m.Lease == "":
		return "tagged with the yard but with no lease"
	case r == nil:
		return fmt.Sprintf("tagged with lease %s, which has ended or never existed", m.Lease)
	}

	return fmt.Sprintf("tagged with lease %s, which has another instance, %s", m.Lease, r.Instance)
}

// stray writes a lease for a machine that none knows of, and gives it back.
func (l *Leases) stray(now time.Time, provider string, m *fleet.Instance, why string) {
	if _, known := l.instance[key(provider, m.ID)]; known || m.ID == "" {
		return
	}

	l.last++
	offer := fleet.Offer{Provider: provider, Type: m.Type, Region: m.Region, Zone: m.Zone, Spot: m.Spot}
	offer.Name = offer.NameOf()
	r := &record{number: l.last, Lease: fleet.Lease{
		ID:        id.NewLease(l.last),
		Offer:     offer,
		State:     fleet.LeaseReleasing,
		Since:     now,
		Requested: now,
		Granted:   now,
		Released:  now,
		Ends:      now,
		Instance:  m.ID,
		Reason:    "unknown instance is released: " + why,
		Stray:     true,
		Billed:    m.Billed,
	}}

	l.add(r)
	l.changed(r)
	l.out.Events = append(l.out.Events, Event{Kind: "lease.stray", Lease: &r.Lease, Reason: r.Reason})
}

// Sweep renews the leases of nodes that are heard and gives back what is over: not
// joined in time, or not heard for the term.
func (l *Leases) Sweep(now time.Time, heard func(id.Node) bool) {
	for _, o := range append([]*fleet.Lease(nil), l.live...) {
		r := l.all[o.ID]
		switch {
		case r == nil: // disbanded meanwhile
		case r.State == fleet.LeaseActive && heard(r.Node):
			if r.Ends.Sub(now) < l.cfg.Term*2/3 {
				r.Ends = now.Add(l.cfg.Term)
				l.changed(r)
			}
		case r.State == fleet.LeaseActive && !now.Before(r.Ends):
			l.release(now, r, fmt.Sprintf("no contact with node %s for %s", r.Node, l.cfg.Term))
		case (r.State == fleet.LeaseRequested || r.State == fleet.LeaseBooting) && !now.Before(r.Ends):
			l.release(now, r, "node did not join in time")
			l.disband(now, r, "a node of the same job did not join in time")
		}
	}
}
