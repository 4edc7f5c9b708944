// Package cloudtest is the contract of a cloud provider, written as tests.
//
// The tests of every provider call Run with the backend that the provider talks to: a real API
// server, started by the test. Callers may rely only on what Run checks. It uses the provider
// through its interface alone, injects faults through the functions of Env, and compares the result
// with the state of the backend itself. Proxy stands between a provider and an API server and
// injects such faults.
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

// Env is a provider and its backend, which is called the world here. Every clause of the contract
// gets one of its own: its world has no machine of this yard yet, and faults injected into it do
// not affect another. Whoever makes an Env must end what is left in it, by t.Cleanup.
//
// A function that is nil is one that the world does not support. The clauses that need it must then
// be listed in Cannot with the reason, or they fail.
type Env struct {
	Provider cloud.Provider
	Yard     string      // the yard that the provider is set up for
	Offer    fleet.Offer // available
	Spot     fleet.Offer // available and can be reclaimed; without Type if the world has none
	Unknown  fleet.Offer // of a type that does not exist
	Once     Once
	Many     int           // number of machines that the world can hold at least
	Patience time.Duration // how long the world may take to show a change; default three minutes

	// Machines returns the machines of this yard in the world, without using the provider. Machines
	// that have ended may be left out.
	Machines func(t *testing.T) []Machine

	// These inject faults into requests from now on.
	NoCapacity func(t *testing.T)                  // the next create finds no machine of the type
	NoQuota    func(t *testing.T)                  // the next create exceeds the quota of the account
	LowPrice   func(t *testing.T)                  // the next create bids less than the spot price
	LoseReply  func(t *testing.T)                  // the next create or terminate is carried out, and its answer is lost
	Cut        func(t *testing.T)                  // the next request's connection is cut before it is carried out
	Down       func(t *testing.T) (up func())      // every request fails on the world's side, until up
	Hang       func(t *testing.T) (resume func())  // no request is answered, until resume
	Lag        func(t *testing.T) (catchup func()) // machines made from now on are not known to other calls, until catchup

	// Impostor returns a provider for the same world whose credentials are rejected.
	Impostor func(t *testing.T) cloud.Provider
	// TakeBack reclaims a spot machine.
	TakeBack func(t *testing.T, instance string)
	// Stray creates a machine with the yard's tag but no lease's, and returns its ID.
	Stray func(t *testing.T) string
	// Foreign creates a machine of another yard in the same account, and returns its ID.
	Foreign func(t *testing.T) string

	// Cannot lists the clauses that cannot be tested with this world, with the reason.
	Cannot map[string]string
}

// Once says what two requests for the same lease give.
type Once int

// The results of two requests for the same lease.
const (
	Twice  Once = iota // two machines; both are listed with the lease
	InTurn             // the same machine, if the second request comes after the answer to the first
	Always             // the same machine, also for simultaneous requests or if the first answer was lost
)

// Machine is a machine in the world.
type Machine struct {
	ID       string
	Tags     map[string]string
	UserData string
	Spot     bool
	Ended    bool
}

// Run tests that a provider keeps the contract. Clauses run in parallel; a world that supports one
// at a time locks in open and unlocks in t.Cleanup.
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

// harness is the environment of one clause.
type harness struct {
	*testing.T
	Env
	clause string
}

const (
	// patience bounds a test against a world that never reaches the expected state.
	patience = 3 * time.Minute
	// look is how often the world is checked for the expected state.
	look = 50 * time.Millisecond
)

// script is a boot script with everything that is difficult to pass on: quotes, dollars, non-ASCII
// characters, no newline at the end.
const script = "#!/bin/sh\nset -eu\n" +
	"echo 'it''s' \"$HOME\" \\\\ %s {{x}} $(date) &amp; <tag> ütf-8 ☃\n\ttrailing spaces  \nexit 0"

// context returns the context of one clause.
func (h *harness) context() context.Context {
	ctx, cancel := context.WithTimeout(h.Context(), cmp.Or(h.Patience, patience))
	h.Cleanup(cancel)
	return ctx
}

// needs fails the clause if the world does not support a function that the clause needs.
func (h *harness) needs(there bool, knob string) {
	h.Helper()

	if !there {
		h.Fatalf("Env.%s is missing: set it, or say in Env.Cannot[%q] why this world has no such thing", knob, h.clause)
	}
}

// request returns a request for the n-th lease.
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

// create creates a machine, which must succeed.
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

// refused checks that a create was definitely refused, with this kind and code.
func (h *harness) refused(err error, kind fault.Kind, code string) {
	h.Helper()
	var got *fault.Error
	if !errors.As(err, &got) || got.Kind != kind || (code != "" && got.Code != code) {
		h.Errorf("error = %v (kind %s), want one of kind %s with code %q", err, fault.KindOf(err), kind, code)
	}
}

// unknown checks that an error leaves open whether the call was carried out.
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

// list returns the provider's present list.
func (h *harness) list() []cloud.Instance {
	h.Helper()
	got, err := h.Provider.List(h.context())
	h.must(err)

	return got
}

// eventually waits until the provider's list meets a condition, because lists lag. After the time
// of the clause it fails with the last list.
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

// shown waits until a machine is listed and not ended, and returns it.
func (h *harness) shown(instance string) cloud.Instance {
	h.Helper()
	all := h.eventually(instance+" is listed", func(all []cloud.Instance) bool {
		one, ok := find(all, instance)
		return ok && one.State != cloud.Gone
	})

	one, _ := find(all, instance)

	return one
}

// over waits until a machine is listed as gone or not at all, and until the world agrees.
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

// world returns the machines in the world that have not ended.
func (h *harness) world() []Machine {
	return slices.DeleteFunc(h.Machines(h.T), func(m Machine) bool { return m.Ended })
}

// empty checks that the world has no machine of this yard.
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

// names returns the IDs of the machines of a list that have not ended, sorted.
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
