package cloudtest

import (
	"slices"
	"sync/atomic"

	"trainyard/internal/cloud"
)

func listing() []contract {
	return []contract{
		{"a yard without machines has an empty list", listsNothing},
		{"the list shows machines of this yard alone", listsOwn},
		{"a machine without a lease is listed", listsStray},
		{"the list goes on after a hundred machines", listsMany},
		{"a machine that the list does not show yet comes later", listsLate},
	}
}

func listsNothing(h *harness) {
	if all := h.list(); len(all) != 0 {
		h.Errorf("the list is %+v, want none", all)
	}
}

func listsOwn(h *harness) {
	h.needs(h.Foreign != nil, "Foreign")
	foreign := h.Foreign(h.T)
	made := h.create(1, h.Offer)
	h.shown(made.ID)

	if all := h.list(); len(all) != 1 || all[0].ID != made.ID {
		h.Errorf("the list is %+v, want %s alone; %s is of another yard", all, made.ID, foreign)
	}
}

func listsStray(h *harness) {
	h.needs(h.Stray != nil, "Stray")
	stray := h.Stray(h.T)
	got := h.shown(stray)
	if got.Lease != "" {
		h.Errorf("a machine without a lease is listed as %+v", got)
	}

	h.must(h.Provider.Terminate(h.context(), got.Region, got.ID))
	h.over(stray)
}

func listsMany(h *harness) {
	const many, workers = 110, 6
	h.needs(h.Many >= many, "Many")
	made := make([]string, many)
	var next atomic.Int64
	h.atOnce(workers, func(int) {
		for i := next.Add(1) - 1; i < many; i = next.Add(1) - 1 {
			made[i] = h.create(uint64(i+1), h.Offer).ID
		}
	})

	slices.Sort(made)

	all := h.eventually("all are listed", func(all []cloud.Instance) bool { return len(all) >= many })
	if got := names(all); !slices.Equal(got, made) {
		h.Errorf("%d machines are listed: %v\nwant %v", len(got), got, made)
	}
}

func listsLate(h *harness) {
	h.needs(h.Lag != nil, "Lag")
	catchup := h.Lag(h.T)
	made := h.create(1, h.Offer)
	h.list() // whether it is listed is up to the world; it must not be an error
	catchup()
	h.shown(made.ID)
}
