// Package cloudtest is the contract of a cloud provider, written as tests.
//
// Run is called by the tests of every provider, against the world that the provider
// speaks to: a real API server, started by the test. What Run does not ask for is not
// promised to those who provision. It uses the provider through its port alone, makes
// trouble through the knobs of Env, and compares with what the world itself says.
// Proxy stands between a provider and an API server and makes such trouble.
package cloudtest

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"trainyard/internal/clock"
	"trainyard/internal/cloud"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
)

// Env is a provider and the world that it speaks to. Every clause of the contract gets
// one of its own: its world holds no machine of this yard yet, and trouble made in it
// does not reach another. Ending what is left is the work of whoever made it, by t.Cleanup.
//
// A knob that is nil is one that the world does not have. The clauses that need it
// are then named in Cannot with the reason, or they fail.
type Env struct {
	Provider cloud.Provider
	Yard     string      // for which the provider is set up
	Offer    fleet.Offer // can be had
	Spot     fleet.Offer // can be had and is taken back; no Type if the world has none
	Unknown  fleet.Offer // of a type that the world does not know
	Once     Once
	Many     int           // machines that the world can hold at least
	Patience time.Duration // how long the world may take to show what was done; three minutes if 0

	// Machines is what the world holds for this yard, asked past the provider. Machines that
	// have ended may be left out.
	Machines func(t *testing.T) []Machine

	// These make trouble for what is asked of the world from now on.
	NoCapacity func(t *testing.T)                  // the next create finds no machine of the type
	NoQuota    func(t *testing.T)                  // the next create is more than the account may have
	LowPrice   func(t *testing.T)                  // the next create bids less than the spot price
	LoseReply  func(t *testing.T)                  // the next create or terminate is carried out, and its answer is lost
	Cut        func(t *testing.T)                  // the next request's connection is cut before it is carried out
	Down       func(t *testing.T) (up func())      // every request fails on the world's side, until up
	Hang       func(t *testing.T) (resume func())  // no request is answered, until resume
	Lag        func(t *testing.T) (catchup func()) // machines made from now on are not known to other calls, until catchup

	// Impostor is a provider of the same world with credentials that it does not accept.
	Impostor func(t *testing.T) cloud.Provider
	// TakeBack takes a spot machine back.
	TakeBack func(t *testing.T, instance string)
	// Stray makes a machine with the yard's tag and no lease's and returns its name.
	Stray func(t *testing.T) string
	// Foreign makes a machine of another yard in the same account and returns its name.
	Foreign func(t *testing.T) string

	// Cannot names clauses that this world cannot be asked about, and says why.
	Cannot map[string]string
}

// Once says what asking twice for the same lease gives.
type Once int

// What asking twice for the same lease gives.
const (
	Twice  Once = iota // two machines; both are listed with the lease
	InTurn             // the same machine, if the first was answered before the second was asked
	Always             // the same machine, also if both are asked at once or the first answer was lost
)

// Machine is a machine as its world shows it.
type Machine struct {
	ID       string
	Tags     map[string]string
	UserData string
	Spot     bool
	Ended    bool
}

// Run tests that a provider keeps the contract. Clauses run in parallel; a world that
// holds one at a time locks in open and unlocks in t.Cleanup.
func Run(t *testing.T, open func(t *testing.T) Env) {
	t.Helper()
	clauses := slices.Concat(creating(), refusing(), listing(), ending())
	for _, c := range clauses {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := &harness{T: t, Env: open(t), clause: c.name}
			for name := range h.Cannot {
				if !slices.ContainsFunc(clauses, func(c contract) bool { return c.name == name }) {
					t.Errorf("Env.Cannot names an unknown clause %q", name)
				}
			}

			if why, ok := h.Cannot[c.name]; ok {
				t.Skip("this provider's world cannot be asked: ", why)
			}

			c.test(h)
		})
	}
}

// contract is one clause.
type contract struct {
	name string
	test func(h *harness)
}

// harness is what a clause is tested with.
type harness struct {
	*testing.T
	Env
	clause string
}

const (
	// patience bounds a test against a world that never does what it should.
	patience = 3 * time.Minute
	// look is how often the world is asked whether it has caught up.
	look = 50 * time.Millisecond
)

// script is as awkward as a boot script may be: quotes, dollars, no ASCII, no line end at its end.
const script = "#!/bin/sh\nset -eu\necho 'it''s' \"$HOME\" \\\\ %s {{x}} $(date) &amp; <tag> ütf-8 ☃\n\ttrailing " +
	"spaces  \nexit 0"

// context returns the context of one clause.
func (h *harness) context() context.Context {
	ctx, cancel := context.WithTimeout(h.Context(), cmp.Or(h.Patience, patience))
	h.Cleanup(cancel)
	return ctx
}

// needs ends the clause if the world lacks a knob and does not say why.
func (h *harness) needs(there bool, knob string) {
	h.Helper()

	if !there {
		h.Fatalf("Env.%s is missing: set it, or say in Env.Cannot[%q] why this world has no such thing", knob, h.clause)
	}
}

// request asks for a machine for the n-th lease.
func (h *harness) request(n uint64, o fleet.Offer) cloud.Request {
	lease := id.NewLease(n)
	return cloud.Request{
		Yard:  h.Yard,
		Lease: lease,
		Offer: o,
		Name:  h.Yard + "-" + string(lease),
		Boot: cloud.Boot{
			Server: "https://yard.example:7070",
			Token:  "join-" + string(lease),
			Script: script + string(lease),
		},
		Until: clock.Wall{}.Now().Add(time.Hour).Truncate(time.Second),
	}
}

// create asks for a machine that must be given.
func (h *harness) create(n uint64, o fleet.Offer) cloud.Instance {
	h.Helper()
	r := h.request(n, o)
	got, err := h.Provider.Create(h.context(), r)
	h.must(err)

	switch {
	case got.ID == "":
		h.Fatalf("a machine without a name: %+v", got)
	case got.Lease != r.Lease || got.Type != o.Type || got.Spot != o.Spot:
		h.Errorf("asked for %s of %s (spot %t), got %+v", o.Type, r.Lease, o.Spot, got)
	case got.State != cloud.Pending && got.State != cloud.Up:
		h.Errorf("a new machine is %s", got.State)
	case o.Region != "" && got.Region != o.Region:
		h.Errorf("asked for one in %s, got one in %s", o.Region, got.Region)
	}

	return got
}

func (h *harness) must(err error) {
	h.Helper()

	if err != nil {
		h.Fatalf("unexpected error: %v (%v)", err, errors.Unwrap(err))
	}
}

// refused checks that a create was refused for certain: by kind and code.
func (h *harness) refused(err error, kind fault.Kind, code string) {
	h.Helper()
	var got *fault.Error
	if !errors.As(err, &got) || got.Kind != kind || (code != "" && got.Code != code) {
		h.Errorf("error = %v (kind %s), want one of kind %s with code %q", err, fault.KindOf(err), kind, code)
	}
}

// unknown checks that an error says nothing about whether the call was carried out.
func (h *harness) unknown(err error) {
	h.Helper()

	switch kind := fault.KindOf(err); kind {
	case "":
		h.Error("no error, although it is not known what happened")
	case fault.OverLimit, fault.Invalid, fault.Denied:
		h.Errorf("error = %v of kind %s, which says for certain that nothing happened", err, kind)
	case fault.Unavailable, fault.Internal, fault.NotFound, fault.Conflict, fault.Unknown:
	}
}

// list returns what the provider lists now.
func (h *harness) list() []cloud.Instance {
	h.Helper()
	got, err := h.Provider.List(h.context())
	h.must(err)

	return got
}

// eventually waits until the provider's list is as it should be: lists lag. It fails with
// the last list when the clause's time is over.
func (h *harness) eventually(what string, ok func([]cloud.Instance) bool) []cloud.Instance {
	h.Helper()
	ctx := h.context()
	for {
		got := h.list()
		if ok(got) {
			return got
		}

		if !clock.Sleep(ctx, look) {
			h.Fatalf("never so: %s; the list is %+v", what, got)
		}
	}
}

// shown waits until a machine is listed and not ended, and returns how.
func (h *harness) shown(instance string) cloud.Instance {
	h.Helper()
	all := h.eventually(instance+" is listed", func(all []cloud.Instance) bool {
		one, ok := find(all, instance)
		return ok && one.State != cloud.Gone
	})

	one, _ := find(all, instance)

	return one
}

// over waits until a machine is listed as gone or not at all, and the world says so too.
func (h *harness) over(instance string) {
	h.Helper()
	h.eventually(instance+" is gone", func(all []cloud.Instance) bool {
		one, ok := find(all, instance)
		return !ok || one.State == cloud.Gone
	})

	for _, m := range h.Machines(h.T) {
		if m.ID == instance && !m.Ended {
			h.Errorf("%s is listed as gone, and the world still has it", instance)
		}
	}
}

// world returns the machines that have not ended, as the world has them.
func (h *harness) world() []Machine {
	return slices.DeleteFunc(h.Machines(h.T), func(m Machine) bool { return m.Ended })
}

// empty checks that the world holds no machine of this yard.
func (h *harness) empty() {
	h.Helper()

	if left := h.world(); len(left) > 0 {
		h.Errorf("the world holds %+v, want nothing", left)
	}
}

func find(all []cloud.Instance, instance string) (cloud.Instance, bool) {
	i := slices.IndexFunc(all, func(one cloud.Instance) bool { return one.ID == instance })
	if i < 0 {
		return cloud.Instance{}, false
	}

	return all[i], true
}

// names returns the machines of a list that have not ended, in order.
func names(all []cloud.Instance) []string {
	var ids []string
	for _, one := range all {
		if one.State != cloud.Gone {
			ids = append(ids, one.ID)
		}
	}

	slices.SortFunc(ids, strings.Compare)

	return ids
}
