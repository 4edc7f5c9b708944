package leases_test

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"trainyard/internal/cloud/reconcile"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/money"
)

// How providers are slow. A list lags by less than Settle, or the yard could not tell
// a machine that is gone from one that is not shown yet.
const (
	lagMost  = 9 * time.Minute
	lateMost = 5 * time.Minute // a call that nobody waits for any more is carried out by then
	endMost  = 2 * time.Minute // from the order to end a machine until it has ended
	inARow   = 4               // calls that go wrong one after another while a provider answers
)

// provider is the model of a cloud. What was asked of it happens whether or not the one
// who asked still listens.
type provider struct {
	name     string
	w        *world
	once     bool          // asked again for the same lease, it gives the same machine
	shows    time.Duration // how long machines that have ended are listed
	made     map[id.Lease]*machine
	machines []*machine
	outages  []span
	failed   int // calls in a row
	pending  int // calls on their way
}

// fate is what becomes of a call.
type fate int

const (
	fine    fate = iota
	refused      // for certain
	broken       // it fails and has changed nothing
	lost         // it is carried out, and its answer is lost
	hung         // it is not answered, and carried out late or never
	doubled      // it is delivered twice
)

// fate decides what becomes of a call. While a provider is down nothing is carried out.
func (p *provider) fate() fate {
	w := p.w
	if p.down() {
		w.seen["call while down"]++
		return broken
	}

	if w.calm || p.failed >= inARow || w.rng.IntN(100) >= w.trouble.faults {
		p.failed = 0
		return fine
	}

	f := fate(1 + w.rng.IntN(int(doubled)))
	if f != doubled {
		p.failed++
	}

	return f
}

func (p *provider) down() bool {
	n := len(p.outages)
	return n > 0 && p.outages[n-1].to.After(p.w.now)
}

// travel is how long a call is on its way, and so is its answer.
func (p *provider) travel() time.Duration {
	if p.w.chance(10) {
		return p.w.upTo(20 * time.Second)
	}

	return p.w.upTo(500 * time.Millisecond)
}

var errUnclear = fault.New(fault.Unavailable, "provider_failed", "the connection was reset")

// refusal is a certain no, with one of the codes.
func (p *provider) refusal() error {
	code := []string{fleet.RefusedCapacity, fleet.RefusedCapacity, fleet.RefusedQuota, fleet.RefusedPrice,
		fleet.RefusedInvalid, fleet.RefusedDenied}[p.w.rng.IntN(6)]
	kind := fault.OverLimit

	switch code {
	case fleet.RefusedInvalid:
		kind = fault.Invalid
	case fleet.RefusedDenied:
		kind = fault.Denied
	}

	p.w.seen["refused "+code]++

	return fmt.Errorf("create: %w", fault.New(kind, code, "there is none to be had"))
}

// unclear is one of the errors after which nobody knows what has happened.
func (p *provider) unclear() error {
	switch p.w.rng.IntN(3) {
	case 0:
		return errUnclear
	case 1:
		return errors.New("unexpected end of file")
	}

	return fault.New(fault.Internal, "odd", "the server answered with something that is no answer")
}

// carry lets a call happen by its fate. act is what it does and returns how to answer.
func (p *provider) carry(limit time.Duration, act func() (answer func()), fail func(error)) {
	w := p.w
	arrives := func(in time.Duration, then func(answer func())) {
		p.pending++
		w.after(in, func() {
			p.pending--
			then(act())
		})
	}

	unheard := func(func()) {}

	switch f := p.fate(); f {
	case fine, doubled:
		arrives(p.travel(), func(answer func()) { w.after(p.travel(), answer) })

		if f == doubled {
			w.seen["call delivered twice"]++
			arrives(p.travel()+w.upTo(lateMost), unheard)
		}
	case refused, broken:
		w.after(p.travel(), func() { fail(p.unclear()) })
	case lost:
		w.seen["answer lost"]++
		arrives(p.travel(), unheard)
		w.after(2*p.travel(), func() { fail(p.unclear()) })
	case hung:
		if w.chance(2) {
			w.seen["call carried out late"]++
			arrives(w.upTo(limit+lateMost), unheard)
		}

		w.after(limit, func() { fail(errors.New("context deadline exceeded")) })
	}
}

// create asks for a machine.
func (p *provider) create(l *fleet.Lease, answer func(fleet.Instance, error)) {
	w := p.w
	if !p.down() && !w.calm && w.rng.IntN(250) < w.trouble.faults {
		err := p.refusal()
		w.after(p.travel(), func() { answer(fleet.Instance{}, err) })
		return
	}

	p.carry(reconcile.DefaultTimeouts().Create, func() func() {
		m := p.build(l)
		return func() { answer(m.shown(w.now), nil) }
	}, func(err error) { answer(fleet.Instance{}, err) })
}

// build makes a machine, or returns the one that there is.
func (p *provider) build(l *fleet.Lease) *machine {
	if m, ok := p.made[l.ID]; ok && p.once {
		return m
	}

	if _, ok := p.made[l.ID]; ok {
		p.w.seen["second machine for a lease"]++
	}

	m := newMachine(p, l)
	p.made[l.ID] = m
	p.machines = append(p.machines, m)

	return m
}

// terminate asks to end a machine.
func (p *provider) terminate(instance string, answer func(error)) {
	w := p.w
	p.carry(reconcile.DefaultTimeouts().Terminate, func() func() {
		at := slices.IndexFunc(p.machines, func(m *machine) bool { return m.id == instance })
		unknown := at < 0 || w.chance(4) && w.now.Sub(p.machines[at].created) < lagMost // it has not caught up
		if unknown || !p.machines[at].ended.IsZero() && w.now.Sub(p.machines[at].ended) > p.shows {
			w.seen["terminate of an unknown machine"]++
			return func() { answer(fault.New(fault.NotFound, "no_machine", "there is no machine %s", instance)) }
		}

		p.machines[at].end(w.upTo(endMost), "")

		return func() { answer(nil) }
	}, answer)
}

// list shows the machines as they were a while ago.
func (p *provider) list(answer func([]fleet.Instance, error)) {
	w := p.w
	p.carry(reconcile.DefaultTimeouts().List, func() func() {
		asOf := w.now
		if w.chance(3) {
			asOf = asOf.Add(-w.upTo(lagMost))
			w.seen["list that lags"]++
		}

		var list []fleet.Instance
		for _, m := range p.machines {
			if i := m.shown(asOf); !m.created.After(asOf) && (i.State != fleet.InstanceGone || asOf.Sub(m.ended) < p.shows) {
				list = append(list, i)
			}
		}

		return func() { answer(list, nil) }
	}, func(err error) { answer(nil, err) })
}

// goDown lets a provider fail every call for a while.
func (p *provider) goDown() {
	if p.w.calm || p.down() {
		return
	}

	long := time.Minute + p.w.upTo(10*time.Minute)
	if p.w.chance(2) {
		long = time.Hour
	}

	p.w.seen["provider down"]++
	p.outages = append(p.outages, span{p.w.now, p.w.now.Add(long)})
}

// bill is what the provider says it has charged, where it says so.
func (p *provider) bill(m *machine, asOf time.Time) money.Amount {
	if !p.once {
		return -1
	}

	end := asOf
	if !m.ended.IsZero() && m.ended.Before(end) {
		end = m.ended
	}

	return m.offer.Cost(job.Duration(max(end.Sub(m.created), 0)))
}
