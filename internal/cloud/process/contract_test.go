package process

import (
	"context"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"trainyard/internal/cloud"
	"trainyard/internal/cloud/cloudtest"
	"trainyard/internal/fault"
)

// trouble is what the test wants to go wrong.
type trouble struct {
	mu    sync.Mutex
	once  *Fault // with the next create or terminate
	every *Fault // with every call, until it is taken back
}

func (tr *trouble) faults(c Call) Fault {
	tr.mu.Lock()
	defer tr.mu.Unlock()

	if tr.every != nil {
		return *tr.every
	}

	if tr.once != nil && c.Method != ListCall {
		f := *tr.once
		tr.once = nil
		return f
	}

	return Fault{}
}

func (tr *trouble) next(f Fault) func(*testing.T) {
	return func(*testing.T) {
		tr.mu.Lock()
		defer tr.mu.Unlock()

		tr.once = &f
	}
}

func (tr *trouble) until(f Fault) func(*testing.T) func() {
	return func(*testing.T) func() {
		tr.mu.Lock()
		defer tr.mu.Unlock()

		tr.every = &f

		return func() {
			tr.mu.Lock()
			defer tr.mu.Unlock()

			tr.every = nil
		}
	}
}

func TestContract(t *testing.T) {
	t.Parallel()
	cloudtest.Run(t, func(t *testing.T) cloudtest.Env {
		t.Helper()
		tr := &trouble{}
		cfg := config(t, sleeper)
		cfg.Types, cfg.Faults = []string{"a100"}, tr.faults
		p := open(t, cfg)
		unknown := offer()
		unknown.Type = "b200"
		down := fault.New(fault.Unavailable, "down", "the cloud is down")
		over := func(code string) Fault { return Fault{Refuse: fault.New(fault.OverLimit, code, "not now")} }

		stray := func(t *testing.T, who string) string {
			t.Helper()
			r := request(99, offer())
			r.Yard, r.Lease = who, ""

			return create(
				t,
				open(t, Config{Yard: who, Dir: cfg.Dir, Program: cfg.Program, Clock: cfg.Clock, Log: cfg.Log}),
				r,
			).ID
		}

		return cloudtest.Env{
			Provider: p,
			Yard:     yard,
			Offer:    offer(),
			Spot:     spot(),
			Unknown:  unknown,
			Once:     cloudtest.Always,
			Many:     120,
			Machines: func(t *testing.T) []cloudtest.Machine {
				t.Helper()
				return world(t, cfg.Dir)
			},
			NoCapacity: tr.next(over(cloud.CodeCapacity)),
			NoQuota:    tr.next(over(cloud.CodeQuota)),
			LowPrice:   tr.next(over(cloud.CodePrice)),
			LoseReply:  tr.next(Fault{Lose: true}),
			Cut:        tr.next(Fault{Refuse: down}),
			Down:       tr.until(Fault{Refuse: down}),
			Hang:       tr.until(Fault{Delay: time.Hour}),
			Lag:        tr.until(Fault{Lag: time.Hour}),
			TakeBack: func(t *testing.T, instance string) {
				t.Helper()

				if err := p.TakeBack(t.Context(), instance); err != nil {
					t.Fatal(err)
				}
			},
			Stray: func(t *testing.T) string {
				t.Helper()
				return stray(t, yard)
			},
			Foreign: func(t *testing.T) string {
				t.Helper()
				return stray(t, "another-yard")
			},
			Cannot: map[string]string{
				"a call without permission is denied": "there are no credentials: whoever may write the folder may provision",
			},
		}
	})
}

// world is what the folder and the kernel say, asked past the provider.
func world(t *testing.T, dir string) []cloudtest.Machine {
	t.Helper()
	folders, err := filepath.Glob(filepath.Join(dir, machinesDir, "m*"))
	if err != nil {
		t.Fatal(err)
	}

	var all []cloudtest.Machine
	for _, folder := range folders {
		var r record
		if ok, err := readJSON(filepath.Join(folder, recordFile), &r); err != nil || !ok {
			t.Fatalf("machine %s: %v, %v", folder, ok, err)
		}

		if r.Yard != yard {
			continue
		}

		all = append(all, cloudtest.Machine{
			ID:       r.ID,
			Spot:     r.Offer.Spot,
			UserData: read(t, filepath.Join(folder, userDataFile)),
			Ended:    len(processes(t, folder)) == 0,
			Tags: map[string]string{
				cloud.TagYard:  r.Yard,
				cloud.TagLease: string(r.Lease),
				cloud.TagUntil: r.Until.UTC().Format(time.RFC3339),
			},
		})
	}

	return all
}

func TestCallsEndWithTheirContextWhileAnotherHasTheCloud(t *testing.T) {
	t.Parallel()
	p := open(t, config(t, sleeper))
	other := &account{dir: p.cfg.Dir}
	unlock, err := other.lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	defer unlock()

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()

	if all, err := p.List(ctx); err == nil {
		t.Errorf("the list is %+v, although another process changes the cloud", all)
	}
}
