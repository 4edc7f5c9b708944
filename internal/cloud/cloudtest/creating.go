package cloudtest

import (
	"slices"
	"sync"
	"time"

	"trainyard/internal/cloud"
	"trainyard/internal/id"
)

func creating() []contract {
	return []contract{
		{"a machine is listed with its lease", listsCreated},
		{"a machine carries yard, lease and end as tags from its first moment", carriesTags},
		{"the boot script arrives unchanged", deliversScript},
		{"the same lease twice is one machine where the world can", createsOnce},
		{"the same lease asked for at once by several is one machine where the world can", createsOnceAtOnce},
		{"two leases are two machines", createsTwo},
		{"many may create at once", createsAtOnce},
		{"a machine whose answer was lost is found by its lease", losesReply},
		{"a spot machine is marked as one", marksSpot},
	}
}

func listsCreated(h *harness) {
	made := h.create(1, h.Offer)
	got := h.shown(made.ID)
	want := made

	// Fields that change while a machine boots, or that the world may know only later.
	want.State = got.State
	want.Address = got.Address
	want.Launched = got.Launched
	want.Zone = got.Zone
	want.Billed = got.Billed
	if got != want {
		h.Errorf("listed as %+v, created as %+v", got, want)
	}

	if h.Offer.Zone != "" && got.Zone != h.Offer.Zone {
		h.Errorf("asked for one in %s, got one in %q", h.Offer.Zone, got.Zone)
	}

	h.eventually("the machine is up, and since when", func(all []cloud.Instance) bool {
		one, ok := find(all, made.ID)
		return ok && one.State == cloud.Up && !one.Launched.IsZero() && one.Ended.IsZero()
	})
}

func carriesTags(h *harness) {
	r := h.request(1, h.Offer)
	made, err := h.Provider.Create(h.context(), r)
	h.must(err)

	for _, m := range h.Machines(h.T) {
		if m.ID != made.ID {
			h.Errorf("the world holds %s, which nobody asked for", m.ID)
			continue
		}

		for tag, want := range map[string]string{
			cloud.TagYard: r.Yard, cloud.TagLease: string(r.Lease), cloud.TagUntil: r.Until.UTC().Format(time.RFC3339),
		} {
			if m.Tags[tag] != want {
				h.Errorf("tag %s = %q, want %q", tag, m.Tags[tag], want)
			}
		}
	}
}

func deliversScript(h *harness) {
	r := h.request(1, h.Offer)
	_, err := h.Provider.Create(h.context(), r)
	h.must(err)

	all := h.Machines(h.T)
	if len(all) != 1 {
		h.Fatalf("the world holds %d machines, want 1", len(all))
	}

	if all[0].UserData != r.Boot.Script {
		h.Errorf("the machine got\n%q\nwant\n%q", all[0].UserData, r.Boot.Script)
	}
}

func createsOnce(h *harness) {
	r := h.request(1, h.Offer)
	first, err := h.Provider.Create(h.context(), r)
	h.must(err)
	h.shown(first.ID)
	second, err := h.Provider.Create(h.context(), r)
	h.must(err)

	if h.Once == Twice {
		h.pair(r.Lease, first.ID, second.ID)
		return
	}

	if first.ID != second.ID || len(h.world()) != 1 {
		h.Errorf("got %s and then %s; the world holds %d machines, want 1", first.ID, second.ID, len(h.world()))
	}
}

// pair checks that two machines of one lease are both listed with it, so that one of them can be
// released.
func (h *harness) pair(lease id.Lease, first, second string) {
	h.Helper()

	if first == second {
		h.Fatalf("both are %s, although this world has no memory of requests: Env.Once is wrong", first)
	}

	h.eventually("both machines are listed with their lease", func(all []cloud.Instance) bool {
		a, _ := find(all, first)
		b, _ := find(all, second)
		return a.Lease == lease && b.Lease == lease
	})
}

func createsOnceAtOnce(h *harness) {
	r := h.request(1, h.Offer)
	var mu sync.Mutex
	ids := map[string]bool{}
	h.atOnce(4, func(int) {
		made, err := h.Provider.Create(h.context(), r)
		mu.Lock()
		defer mu.Unlock()

		if err != nil {
			// A world may refuse the second request while it carries out the first, but not
			// permanently.
			h.unknown(err)
			return
		}

		ids[made.ID] = true
	})

	if len(ids) == 0 {
		h.Fatal("none of four was given a machine")
	}

	for one := range ids {
		h.eventually("every machine is listed with its lease", func(all []cloud.Instance) bool {
			got, ok := find(all, one)
			return ok && got.Lease == r.Lease
		})
	}

	if h.Once == Always && (len(ids) != 1 || len(h.world()) != 1) {
		h.Errorf("four that asked for one lease got %d machines, and the world holds %d, want 1", len(ids), len(h.world()))
	}
}

func createsTwo(h *harness) {
	first, second := h.create(1, h.Offer), h.create(2, h.Offer)
	if first.ID == second.ID {
		h.Fatalf("both leases got %s", first.ID)
	}

	h.shown(first.ID)
	h.shown(second.ID)

	if n := len(h.world()); n != 2 {
		h.Errorf("the world holds %d machines, want 2", n)
	}
}

func createsAtOnce(h *harness) {
	const gang = 8
	h.needs(h.Many >= gang, "Many")
	made := make([]string, gang)
	h.atOnce(gang, func(i int) { made[i] = h.create(uint64(i+1), h.Offer).ID })

	slices.Sort(made)
	if len(slices.Compact(slices.Clone(made))) != gang {
		h.Fatalf("%d leases got %v", gang, made)
	}

	h.eventually("all are listed", func(all []cloud.Instance) bool { return slices.Equal(names(all), made) })
}

// atOnce calls fn n times in parallel and waits for all calls.
func (h *harness) atOnce(n int, fn func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { fn(i) })
	}

	wg.Wait()

	if h.Failed() {
		h.FailNow()
	}
}

func losesReply(h *harness) {
	h.needs(h.LoseReply != nil, "LoseReply")
	r := h.request(1, h.Offer)
	h.LoseReply(h.T)
	_, err := h.Provider.Create(h.context(), r)
	h.unknown(err)

	all := h.eventually("the machine is listed with its lease", func(all []cloud.Instance) bool {
		return slices.ContainsFunc(all, func(one cloud.Instance) bool { return one.Lease == r.Lease })
	})
	if len(all) != 1 || len(h.world()) != 1 {
		h.Fatalf("one call made %d machines (%d listed)", len(h.world()), len(all))
	}

	again, err := h.Provider.Create(h.context(), r)
	h.must(err)

	if h.Once == Twice {
		h.pair(r.Lease, all[0].ID, again.ID)
	} else if again.ID != all[0].ID {
		h.Errorf("asked again, got %s beside %s", again.ID, all[0].ID)
	}
}

func marksSpot(h *harness) {
	h.needs(h.Spot.Type != "", "Spot")
	made, plain := h.create(1, h.Spot), h.create(2, h.Offer)
	if got := h.shown(made.ID); !got.Spot {
		h.Errorf("a spot machine is listed as %+v", got)
	}

	if got := h.shown(plain.ID); got.Spot {
		h.Errorf("a machine that is not spot is listed as %+v", got)
	}

	for _, m := range h.world() {
		if m.Spot != (m.ID == made.ID) {
			h.Errorf("%s: spot is %t in the world", m.ID, m.Spot)
		}
	}
}
