// Package lifecycle keeps the leases of provisioned nodes, from the request to the release.
// It is the record of what is being provisioned, active and being released.
//
// A lease is written before its provider is asked, so the leases that have not
// ended are at any time all that the yard may be paying for. What providers answer
// and list comes in; changed leases, events and lost nodes come out. It decides nothing about whether to provision:
// policies do, and the
// yardmaster passes on their requests. It calls no provider: cloud/reconcile does, by what
// the leases say.
//
// The bound: a machine whose lease is over and that its provider lists is told to
// end at the next list; one that the yard cannot reach ends itself when its lease
// does. See Bound.
package lifecycle

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
)

// Config is what an operator can set.
type Config struct {
	Term        time.Duration // a lease that is not renewed ends after this long, and its node with it
	JoinTimeout time.Duration // beyond the offer's boot time, until a machine that has not joined is given back
	ListLag     time.Duration // by how much a provider's list may lag behind what it has done
	MaxNodes    int           // machines at once; 0 for no limit
}

// Defaults returns the configuration that is used where nothing is set.
func Defaults() Config {
	return Config{Term: 15 * time.Minute, JoinTimeout: 10 * time.Minute, ListLag: 10 * time.Minute}
}

// SweepInterval is how often Sweep must be called.
func (c Config) SweepInterval() time.Duration { return max(c.Term/5, time.Second) }

// Event is a change of a lease, for the event feed.
type Event struct {
	Kind   string // "lease.booting"
	Lease  *fleet.Lease
	From   fleet.LeaseState
	Reason string
}

// Out is what changed since the last Take.
type Out struct {
	Changed []*fleet.Lease
	Events  []Event
	Gone    []*fleet.Lease // whose node is no more
	Closed  []*fleet.Lease // that ended or were refused
}

// Leases keeps them. It is not safe for concurrent use.
type Leases struct {
	cfg      Config
	all      map[id.Lease]*record // not final
	instance map[string]*record
	live     []*fleet.Lease // not final, by number
	last     uint64
	out      Out
}

// record is a lease with what need not be stored.
type record struct {
	fleet.Lease
	number   uint64
	tried    time.Time // when a call that may have created a machine last ended
	accepted time.Time // when the provider first took the order to end it
	dirty    bool
}

// New returns an empty set.
func New(cfg Config) *Leases {
	return &Leases{cfg: cfg, all: map[id.Lease]*record{}, instance: map[string]*record{}}
}

// Load takes over what was stored: the leases that have not ended, and the greatest
// number ever given. It is not known which calls were under way.
func (l *Leases) Load(now time.Time, stored []fleet.Lease, last uint64) {
	l.last = last

	for i := range stored {
		if stored[i].State.Final() {
			continue
		}

		r := &record{Lease: stored[i], tried: now}
		r.number, _ = r.ID.Number()
		l.last = max(l.last, r.number)
		l.add(r)
	}
}

// Last returns the greatest number ever given.
func (l *Leases) Last() uint64 { return l.last }

// Skip gives no number up to this one any more.
func (l *Leases) Skip(to uint64) { l.last = max(l.last, to) }

func (l *Leases) add(r *record) {
	l.all[r.ID] = r
	at, _ := slices.BinarySearchFunc(
		l.live,
		r.number,
		func(o *fleet.Lease, n uint64) int { return cmp.Compare(l.all[o.ID].number, n) },
	)

	l.live = slices.Insert(l.live, at, &r.Lease)
	if r.Instance != "" {
		l.instance[key(r.Offer.Provider, r.Instance)] = r
	}
}

func key(provider, instance string) string { return provider + "/" + instance }

// Live returns the leases that have not ended, by number. They must not be changed.
func (l *Leases) Live() []*fleet.Lease { return l.live }

// Get returns a lease that has not ended.
func (l *Leases) Get(name id.Lease) (*fleet.Lease, bool) {
	r, ok := l.all[name]
	if !ok {
		return nil, false
	}

	return &r.Lease, true
}

// Take returns what changed since the last call, and forgets it.
func (l *Leases) Take() Out {
	o := l.out
	for _, c := range o.Changed {
		if r, ok := l.all[c.ID]; ok {
			r.dirty = false
		}
	}

	l.out = Out{}

	return o
}

// Pending reports whether Take has something to return.
func (l *Leases) Pending() bool { return len(l.out.Changed) > 0 }

func (l *Leases) changed(r *record) {
	r.Seq++
	if !r.dirty {
		r.dirty = true
		l.out.Changed = append(l.out.Changed, &r.Lease)
	}
}

// move applies an event to a lease and tells of it.
func (l *Leases) move(now time.Time, r *record, ev fleet.LeaseEvent, reason string) bool {
	to, err := r.State.After(ev)
	if err != nil {
		return false
	}

	from := r.State
	if from != to {
		r.State, r.Since = to, now
	}

	r.Reason = reason
	l.changed(r)

	l.out.Events = append(l.out.Events, Event{Kind: "lease." + string(to), Lease: &r.Lease, From: from, Reason: reason})
	if to.Final() {
		l.close(now, r)
	}

	return true
}

// close forgets a lease that has ended; the store keeps it.
func (l *Leases) close(now time.Time, r *record) {
	if r.Ended.IsZero() {
		r.Ended = now
	}

	delete(l.all, r.ID)
	if r.Instance != "" {
		delete(l.instance, key(r.Offer.Provider, r.Instance))
	}

	l.live = slices.DeleteFunc(l.live, func(o *fleet.Lease) bool { return o == &r.Lease })
	l.out.Closed = append(l.out.Closed, &r.Lease)
	if r.Node != "" {
		l.out.Gone = append(l.out.Gone, &r.Lease)
	}
}

// Request is what is to be provisioned.
type Request struct {
	Offer   fleet.Offer
	Count   int
	Job     id.Job
	Owner   id.User
	Project id.Project
	Reason  string
	Faster  bool    // the job runs, and is too slow where it is
	By      id.User // who accepted it; "" if a plan decided it
}

// Provision writes leases for machines that are to be asked for: all of them, or none if
// there may not be so many.
func (l *Leases) Provision(now time.Time, w Request) ([]*fleet.Lease, error) {
	if held := l.Count(); l.cfg.MaxNodes > 0 && held+w.Count > l.cfg.MaxNodes {
		return nil, fault.New(
			fault.OverLimit,
			"too_many_provisioned",
			"limit of %d provisioned nodes reached, %d in use",
			l.cfg.MaxNodes,
			held,
		)
	}

	if held := l.CountOf(w.Offer.Name); w.Offer.MaxNodes > 0 && held+w.Count > w.Offer.MaxNodes {
		return nil, fault.New(
			fault.OverLimit,
			"too_many_provisioned",
			"limit of %d nodes of %s reached, %d in use",
			w.Offer.MaxNodes,
			w.Offer.Name,
			held,
		)
	}

	gang := ""
	if w.Count > 1 {
		gang = fmt.Sprintf("%s-%d", w.Job, l.last+1)
	}

	provisioned := make([]*fleet.Lease, 0, w.Count)

	for range w.Count {
		l.last++
		r := &record{number: l.last, Lease: fleet.Lease{
			ID:        id.NewLease(l.last),
			Offer:     w.Offer,
			State:     fleet.LeaseRequested,
			Since:     now,
			Reason:    w.Reason,
			Job:       w.Job,
			Owner:     w.Owner,
			Project:   w.Project,
			Gang:      gang,
			Faster:    w.Faster,
			By:        w.By,
			Requested: now,
			Ends:      now.Add(l.bootLimit(&w.Offer)),
			Billed:    -1,
		}}

		l.add(r)
		l.changed(r)
		l.out.Events = append(l.out.Events, Event{Kind: "lease.requested", Lease: &r.Lease, Reason: w.Reason})
		provisioned = append(provisioned, &r.Lease)
	}

	return provisioned, nil
}

// bootLimit is how long a machine has to join.
func (l *Leases) bootLimit(o *fleet.Offer) time.Duration {
	return time.Duration(o.Boot)*3/2 + l.cfg.JoinTimeout
}

// Count counts the instances that exist or may come to exist.
func (l *Leases) Count() int {
	n := 0
	for _, lease := range l.live {
		if lease.Live() {
			n++
		}
	}

	return n
}

// CountOf counts the instances of an offer that exist or may come to exist.
func (l *Leases) CountOf(offer string) int {
	n := 0
	for _, lease := range l.live {
		if lease.Live() && lease.Offer.Name == offer {
			n++
		}
	}

	return n
}

// MaxNodes returns how many machines there may be at once, 0 for no limit.
func (l *Leases) MaxNodes() int { return l.cfg.MaxNodes }

// Bound is by how much a machine may outlive its lease at most: its provider must
// list it and take the order to end it within this time, or it ends itself.
func (l *Leases) Bound() time.Duration { return l.cfg.ListLag + l.cfg.Term }

// StartRelease begins to release a lease, and returns it.
func (l *Leases) StartRelease(now time.Time, name id.Lease, reason string) (*fleet.Lease, error) {
	r, ok := l.all[name]
	if !ok {
		return nil, fault.New(fault.NotFound, "lease_not_found", "no active lease %s", name)
	}

	l.release(now, r, reason)

	return &r.Lease, nil
}

func (l *Leases) release(now time.Time, r *record, reason string) {
	if l.move(now, r, fleet.LeaseRelease, reason) {
		r.Released = now
	}
}

// Join ties a node to its lease: the machine that was provisioned has become a node.
func (l *Leases) Join(now time.Time, name id.Lease, node id.Node) error {
	r, ok := l.all[name]
	if !ok || r.State == fleet.LeaseReleasing || r.Node != "" && r.Node != node {
		return fault.New(fault.Denied, "lease_over", "lease %s has ended, the node cannot join", name).
			WithRemedy("shut it down")
	}

	if r.Node == node {
		return nil
	}

	r.Node, r.Joined, r.Ends = node, now, now.Add(l.cfg.Term)
	l.move(now, r, fleet.LeaseJoin, fmt.Sprintf("joined as %s", node))

	return nil
}
