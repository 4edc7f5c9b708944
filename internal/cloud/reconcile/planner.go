// Package reconcile makes the calls to cloud providers that bring their instances in line with the leases.
//
// The leases are the desired state, as orders are for agents. Planner decides which calls
// are due and when; Runner makes the calls and sends the responses to the yardmaster.
package reconcile

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/yardmaster"
)

// CallKind is what is asked of a provider.
type CallKind string

// The calls.
const (
	CallList      CallKind = "list"
	CallCreate    CallKind = "create"
	CallTerminate CallKind = "terminate"
)

// Call is one call to a provider.
type Call struct {
	Kind     CallKind
	Provider string
	Lease    fleet.Lease // of a create or terminate
	Started  time.Time
}

// Timing says how often providers are asked.
type Timing struct {
	List     time.Duration // between two lists of a provider while it has leases
	Idle     time.Duration // and while it has none: strays are looked for then too
	Retry    time.Duration // before a call that failed is made again; doubles
	MaxRetry time.Duration
}

// DefaultTiming is how often providers are asked where nothing is set.
func DefaultTiming() Timing {
	return Timing{List: 30 * time.Second, Idle: 10 * time.Minute, Retry: 5 * time.Second, MaxRetry: 2 * time.Minute}
}

// Planner decides which calls the leases require and when they are due. It makes none: Runner
// does, many at once, and reports the responses to it. After a start nothing is
// created before the provider has been listed once, because it is not known which
// calls were in progress when the last server stopped. The same holds for a lease after a
// call with an unknown outcome. It is not safe for concurrent use.
type Planner struct {
	timing    Timing
	providers map[string]*providerState
	leases    map[id.Lease]*leaseState
}

// providerState is what the planner knows of a provider.
type providerState struct {
	name      string
	listed    time.Time // start of the last successful list call; zero if there was none
	listing   bool
	next      time.Time // list
	fails     int
	listAgain bool // list again as soon as the list call in progress ends
}

// leaseState is a lease with the state of the calls for it.
type leaseState struct {
	lease        fleet.Lease
	busy         bool
	next         time.Time
	fails        int
	unknownSince time.Time // when a call ended of which it is not known what it has done
}

// NewPlanner returns a planner for these providers.
func NewPlanner(t Timing, names ...string) *Planner {
	d := &Planner{timing: t, providers: map[string]*providerState{}, leases: map[id.Lease]*leaseState{}}
	for _, n := range names {
		d.providers[n] = &providerState{name: n}
	}

	return d
}

// Take adds leases that are new or have changed.
func (d *Planner) Take(now time.Time, leases []fleet.Lease) {
	for i := range leases {
		l := &leases[i]
		e, known := d.leases[l.ID]
		switch {
		case l.State.Final():
			delete(d.leases, l.ID)
			continue
		case !known:
			e = &leaseState{next: now}
			d.leases[l.ID] = e
		case e.lease.State != l.State:
			e.next, e.fails = now, 0
		}

		e.lease = *l

		if c := d.providers[l.Offer.Provider]; c != nil && !known {
			c.next = earlier(c.next, now.Add(d.timing.List))
		}
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}

	return a
}

// nextCall returns the call that a lease requires, "" if none. A lease that
// expired before it got an instance, as after a long downtime of the server, requires none:
// the yardmaster is about to release it.
func (e *leaseState) nextCall(now time.Time) CallKind {
	switch {
	case e.lease.State == fleet.LeaseRequested && e.lease.Instance == "" && now.Before(e.lease.Ends):
		return CallCreate
	case e.lease.State == fleet.LeaseReleasing && e.lease.Instance != "":
		return CallTerminate
	}

	return ""
}

// Due returns the calls to make now, and when to call Due again at the latest.
func (d *Planner) Due(now time.Time) (calls []Call, next time.Time) {
	next = now.Add(d.timing.Idle)
	for _, c := range d.sortedProviders() {
		switch {
		case c.listing:
		case now.Before(c.next):
			next = earlier(next, c.next)
		default:
			c.listing = true
			calls = append(calls, Call{Kind: CallList, Provider: c.name, Started: now})
		}
	}

	for _, e := range d.sortedLeases() {
		c, served := d.providers[e.lease.Offer.Provider]
		kind := e.nextCall(now)
		switch {
		case e.busy || kind == "" || !served || kind == CallCreate && !c.listedSince(e.unknownSince):
		case now.Before(e.next):
			next = earlier(next, e.next)
		default:
			e.busy = true
			calls = append(calls, Call{Kind: kind, Provider: e.lease.Offer.Provider, Lease: e.lease, Started: now})
		}
	}

	return calls, next
}

// listedSince reports whether a list call that started at or after a time has succeeded.
func (c *providerState) listedSince(since time.Time) bool {
	return !c.listed.IsZero() && !c.listed.Before(since)
}

func (d *Planner) sortedProviders() []*providerState {
	list := make([]*providerState, 0, len(d.providers))
	for _, c := range d.providers {
		list = append(list, c)
	}

	slices.SortFunc(list, func(a, b *providerState) int { return strings.Compare(a.name, b.name) })

	return list
}

// sortedLeases lists the leases by number, so that the same history gives the same calls.
func (d *Planner) sortedLeases() []*leaseState {
	list := make([]*leaseState, 0, len(d.leases))
	for _, e := range d.leases {
		list = append(list, e)
	}

	slices.SortFunc(list, func(a, b *leaseState) int {
		x, _ := a.lease.ID.Number()
		z, _ := b.lease.ID.Number()
		return cmp.Compare(x, z)
	})

	return list
}

// wait is how long to wait after so many failures in a row.
func (t *Timing) wait(fails int) time.Duration {
	d := t.Retry
	for ; fails > 1 && d < t.MaxRetry; fails-- {
		d *= 2
	}

	return min(d, t.MaxRetry)
}

// Listed takes the answer to a list and returns what to tell the yardmaster.
func (d *Planner) Listed(now time.Time, call Call, machines []fleet.Instance, err error) []yardmaster.Message {
	c := d.providers[call.Provider]
	hurry := c.listAgain
	c.listing, c.listAgain = false, false

	if err != nil {
		c.fails++
		c.next = now.Add(d.timing.wait(c.fails))
		return []yardmaster.Message{yardmaster.ProviderFailed{Provider: call.Provider, Why: err.Error()}}
	}

	c.listed, c.fails = call.Started, 0
	c.next = now.Add(d.timing.Idle)
	for _, e := range d.leases {
		if e.lease.Offer.Provider == c.name {
			c.next = now.Add(d.timing.List)
			break
		}
	}

	if hurry {
		c.next = now
	}

	for i := range machines {
		m := &machines[i]
		if e, ok := d.leases[m.Lease]; ok && e.nextCall(now) == CallCreate &&
			(m.State == fleet.InstancePending || m.State == fleet.InstanceUp) {
			d.postpone(now, e)
		}
	}

	return []yardmaster.Message{
		yardmaster.InstancesListed{Provider: call.Provider, CalledAt: call.Started, Machines: machines},
	}
}

// Created takes the answer to a create and returns what to tell the yardmaster.
func (d *Planner) Created(now time.Time, call Call, m fleet.Instance, err error) []yardmaster.Message {
	e := d.finishCall(now, call, err)
	if err == nil {
		d.postpone(now, e)
		return []yardmaster.Message{yardmaster.LeaseGranted{Lease: call.Lease.ID, Provider: call.Provider, Machine: m}}
	}

	if code, certain := Refusal(err); certain {
		d.postpone(now, e)
		return []yardmaster.Message{yardmaster.LeaseRefused{Lease: call.Lease.ID, Code: code, Why: err.Error()}}
	}

	e.unknownSince = now // look whether there is one before asking again

	if c := d.providers[call.Provider]; c != nil {
		c.next, c.listAgain = now, c.listing
	}

	return []yardmaster.Message{yardmaster.OutcomeUnknown{Lease: call.Lease.ID, Why: err.Error()}}
}

// Terminated takes the answer to a terminate and returns what to tell the yardmaster.
// A provider that does not know the machine has not failed: it is gone, or so new that
// the provider has not caught up. The first is seen from lists that do not show it; for
// the second the order is given again soon.
func (d *Planner) Terminated(now time.Time, call Call, err error) []yardmaster.Message {
	e := d.finishCall(now, call, err)
	switch {
	case err == nil:
		d.postpone(now, e) // again, if the machine is still listed by then
	case !unknown(call, err):
		return []yardmaster.Message{
			yardmaster.ProviderFailed{Provider: call.Provider, Lease: call.Lease.ID, Why: err.Error()},
		}
	}

	return []yardmaster.Message{yardmaster.ReleaseAccepted{Lease: call.Lease.ID}}
}

// unknown reports whether a call was to end a machine that the provider does not know.
func unknown(call Call, err error) bool {
	return call.Kind == CallTerminate && fault.KindOf(err) == fault.NotFound
}

// finishCall records that a lease's call has ended. Of a lease that has ended meanwhile
// nothing is kept.
func (d *Planner) finishCall(now time.Time, call Call, err error) *leaseState {
	e, ok := d.leases[call.Lease.ID]
	if !ok {
		return &leaseState{}
	}

	e.busy = false
	if err == nil {
		e.fails = 0
		return e
	}

	e.fails++
	e.next = now.Add(d.timing.wait(e.fails))

	return e
}

// postpone leaves the yardmaster time to process a response and change the lease. The
// same call is repeated only if the lease stays as it is.
func (d *Planner) postpone(now time.Time, e *leaseState) { e.next = now.Add(d.timing.MaxRetry) }

// Refusal reports whether an error says for certain that nothing was created, and
// with which code.
func Refusal(err error) (code string, certain bool) {
	var f *fault.Error
	if !errors.As(err, &f) {
		return "", false
	}

	switch f.Kind {
	case fault.OverLimit:
		return f.Code, true
	case fault.Invalid:
		return fleet.RefusedInvalid, true
	case fault.Denied:
		return fleet.RefusedDenied, true
	case fault.NotFound, fault.Conflict, fault.Unknown, fault.Unavailable, fault.Internal:
	}

	return "", false
}
