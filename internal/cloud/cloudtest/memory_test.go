package cloudtest_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"trainyard/internal/clock"
	"trainyard/internal/cloud"
	"trainyard/internal/cloud/cloudtest"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
)

// memory is a provider whose world is a table: the shortest one that keeps the contract.
// broken names the one thing that it does wrong.
type memory struct {
	broken string
	key    string
	world  *table
}

// table is the world: machines, and the trouble that calls meet.
type table struct {
	mu       sync.Mutex
	machines []*machine
	next     error // for the next create
	lose     bool  // the answer to the next create or terminate
	cut      bool
	down     bool
	hang     chan struct{}
	lagging  bool
}

type machine struct {
	cloud.Instance
	tags   map[string]string
	script string
	hidden bool
}

const goodKey, myYard = "good", "lab"

func (m *memory) Name() string { return "memory" }

// enter is the way of every call to the world.
func (m *memory) enter(ctx context.Context) error {
	w := m.world
	w.mu.Lock()
	hang, down := w.hang, w.down
	w.mu.Unlock()

	if err := ctx.Err(); err != nil && m.broken != "asks although its time is over" {
		return fault.New(fault.Unavailable, "late", "too late").WithCause(err)
	}

	if hang != nil {
		select {
		case <-hang:
		case <-ctx.Done():
			return fault.New(fault.Unavailable, "late", "too late").WithCause(ctx.Err())
		}
	}

	if m.key != goodKey {
		return fault.New(m.pick("calls bad credentials an outage", fault.Unavailable, fault.Denied), "denied", "who are you")
	}
	if down {
		return fault.New(m.pick("calls an outage a refusal", fault.OverLimit, fault.Unavailable), "down", "the world is down")
	}

	return nil
}

// pick returns the first kind if this is what is broken.
func (m *memory) pick(broken string, wrong, right fault.Kind) fault.Kind {
	if m.broken == broken {
		return wrong
	}

	return right
}

func (m *memory) Create(ctx context.Context, r cloud.Request) (cloud.Instance, error) {
	if err := m.enter(ctx); err != nil {
		return cloud.Instance{}, err
	}

	w := m.world
	w.mu.Lock()
	defer w.mu.Unlock()

	if w.cut {
		w.cut = false

		if m.broken != "tries a create again" {
			return cloud.Instance{}, fault.New(fault.Unavailable, "cut", "cut off")
		}
	}

	if err := w.next; err != nil {
		w.next = nil
		return cloud.Instance{}, m.refusal(err)
	}

	if r.Offer.Type != "plain" {
		return cloud.Instance{}, fault.New(
			m.pick("calls an unknown type a shortage", fault.OverLimit, fault.Invalid),
			"bad_offer",
			"no such type",
		)
	}

	for _, old := range w.machines {
		if old.Lease == r.Lease && old.tags[cloud.TagYard] == r.Yard && m.broken != "creates twice" {
			return old.Instance, nil
		}
	}

	made := w.add(
		map[string]string{
			cloud.TagYard:  r.Yard,
			cloud.TagLease: string(r.Lease),
			cloud.TagUntil: r.Until.UTC().Format(time.RFC3339),
		},
		r.Offer,
	)

	made.script = r.Boot.Script

	switch m.broken {
	case "loses the tag of the end":
		delete(made.tags, cloud.TagUntil)
	case "trims the script":
		made.script = strings.TrimSpace(strings.ReplaceAll(made.script, "  ", " "))
	case "does not mark spot":
		made.Spot = false
	}

	if w.lose {
		w.lose = false
		return cloud.Instance{}, fault.New(
			m.pick("calls a lost answer a refusal", fault.OverLimit, fault.Unavailable),
			"lost",
			"no answer",
		)
	}

	return made.Instance, nil
}

func (m *memory) refusal(err error) error {
	f := *err.(*fault.Error) //nolint:errorlint // put there by the knobs
	switch {
	case m.broken == "takes a quota for a shortage" && f.Code == cloud.CodeQuota:
		f.Code = cloud.CodeCapacity
	case m.broken == "does not say that it was refused" && f.Code == cloud.CodeCapacity:
		f.Kind = fault.Unavailable
	}

	return &f
}

// add makes a machine.
func (w *table) add(tags map[string]string, o fleet.Offer) *machine {
	made := &machine{tags: tags, hidden: w.lagging, Instance: cloud.Instance{
		ID:       fmt.Sprintf("m%04d", len(w.machines)+1),
		Lease:    id.Lease(tags[cloud.TagLease]),
		Region:   o.Region,
		Type:     o.Type,
		Spot:     o.Spot,
		State:    cloud.Up,
		Launched: clock.Wall{}.Now(),
		Billed:   -1,
	}}

	w.machines = append(w.machines, made)

	return made
}

func (m *memory) Terminate(ctx context.Context, _, instance string) error {
	if err := m.enter(ctx); err != nil {
		return err
	}

	w := m.world
	w.mu.Lock()
	defer w.mu.Unlock()

	i := slices.IndexFunc(w.machines, func(one *machine) bool { return one.ID == instance && !one.hidden })
	if i < 0 {
		if m.broken == "takes what it does not know for gone" {
			return nil
		}

		return fault.New(fault.NotFound, "no_such_machine", "no machine %s", instance)
	}

	if m.broken == "ends a machine once only" && w.machines[i].State == cloud.Gone {
		return fault.New(fault.Internal, "gone", "it is gone")
	}

	if m.broken == "ends the newest machine" {
		i = len(w.machines) - 1
	}

	if m.broken != "ends nothing" {
		w.machines[i].State = cloud.Gone
	}

	if w.lose {
		w.lose = false
		return fault.New(fault.Unavailable, "lost", "no answer")
	}

	return nil
}

func (m *memory) List(ctx context.Context) ([]cloud.Instance, error) {
	if err := m.enter(ctx); err != nil {
		if m.broken == "lists nothing in an outage" && fault.KindOf(err) == fault.Unavailable && ctx.Err() == nil {
			return nil, nil
		}

		return nil, err
	}

	w := m.world
	w.mu.Lock()
	defer w.mu.Unlock()

	var all []cloud.Instance
	for _, one := range w.machines {
		switch {
		case one.hidden:
		case one.tags[cloud.TagYard] != myYard && m.broken != "lists machines of others":
		case one.Lease == "" && m.broken == "lists no strays":
		case len(all) == 100 && m.broken == "lists a hundred":
		default:
			shown := one.Instance
			if m.broken == "does not say why a machine ended" {
				shown.Why = ""
			}

			if m.broken == "lists no leases" {
				shown.Lease = ""
			}

			all = append(all, shown)
		}
	}

	return all, nil
}

// newMemory returns a world and a provider in it that does one thing wrong, "" for none.
func newMemory(broken string) cloudtest.Env {
	w := &table{}
	offer := fleet.Offer{Provider: "memory", Type: "plain", Region: "here"}
	spot, unknown := offer, offer
	spot.Spot, unknown.Type = true, "gold"

	set := func(change func()) func() {
		return func() {
			w.mu.Lock()
			defer w.mu.Unlock()

			change()
		}
	}

	knob := func(change func()) func(*testing.T) { return func(*testing.T) { set(change)() } }
	refuse := func(code string) func(*testing.T) {
		return knob(func() { w.next = fault.New(fault.OverLimit, code, "not now") })
	}

	put := func(tags map[string]string) func(*testing.T) string {
		return func(*testing.T) string {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.add(tags, offer).ID
		}
	}

	return cloudtest.Env{
		Provider: &memory{
			broken,
			goodKey,
			w,
		},
		Yard:       myYard,
		Offer:      offer,
		Spot:       spot,
		Unknown:    unknown,
		Once:       cloudtest.Always,
		Many:       1000,
		Machines:   func(*testing.T) []cloudtest.Machine { return w.show() },
		NoCapacity: refuse(cloud.CodeCapacity),
		NoQuota:    refuse(cloud.CodeQuota),
		LowPrice:   refuse(cloud.CodePrice),
		LoseReply:  knob(func() { w.lose = true }),
		Cut:        knob(func() { w.cut = true }),
		Down: func(*testing.T) func() {
			set(func() { w.down = true })()
			return set(func() { w.down = false })
		},
		Hang: func(*testing.T) func() {
			set(func() { w.hang = make(chan struct{}) })()
			return set(func() {
				close(w.hang)
				w.hang = nil
			})
		},
		Lag: func(*testing.T) func() {
			set(func() { w.lagging = true })()
			return set(func() {
				w.lagging = false
				for _, one := range w.machines {
					one.hidden = false
				}
			})
		},
		Impostor: func(*testing.T) cloud.Provider { return &memory{broken, "bad", w} },
		TakeBack: func(_ *testing.T, instance string) {
			set(func() {
				for _, one := range w.machines {
					if one.ID == instance {
						one.State, one.Why = cloud.Gone, "spot"
					}
				}
			})()
		},
		Stray:   put(map[string]string{cloud.TagYard: myYard}),
		Foreign: put(map[string]string{cloud.TagYard: "other", cloud.TagLease: "l1"}),
	}
}

// show is the world as it is.
func (w *table) show() []cloudtest.Machine {
	w.mu.Lock()
	defer w.mu.Unlock()

	var all []cloudtest.Machine
	for _, one := range w.machines {
		if one.tags[cloud.TagYard] == myYard {
			all = append(all, cloudtest.Machine{
				ID: one.ID, Tags: maps.Clone(one.tags), UserData: one.script, Spot: one.Spot, Ended: one.State == cloud.Gone,
			})
		}
	}

	return all
}
