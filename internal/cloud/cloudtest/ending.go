package cloudtest

import (
	"trainyard/internal/cloud"
	"trainyard/internal/fault"
)

func ending() []contract {
	return []contract{
		{"a machine is ended, and others are not", ends},
		{"ending a machine twice does no harm", endsTwice},
		{"ending a machine that never was does no harm", endsUnknown},
		{"many may end machines at once", endsAtOnce},
		{"a machine whose end was not answered ends nevertheless", endsUnanswered},
		{"a machine that the world does not know yet is not taken for gone", endsEarly},
		{"a reclaimed spot machine is gone, and why", tellsTakenBack},
	}
}

func ends(h *harness) {
	first, second := h.create(1, h.Offer), h.create(2, h.Offer)
	h.shown(first.ID)
	h.shown(second.ID)
	h.must(h.Provider.Terminate(h.context(), first.Region, first.ID))
	h.over(first.ID)

	if got := h.shown(second.ID); got.State != cloud.Pending && got.State != cloud.Up {
		h.Errorf("the other machine is %s", got.State)
	}

	if left := h.world(); len(left) != 1 || left[0].ID != second.ID {
		h.Errorf("the world holds %+v, want %s alone", left, second.ID)
	}
}

// done checks the answer to ending a machine that may be gone already. A world that has forgotten a
// machine returns fault.NotFound; the caller knows whether the machine is old enough for that.
func (h *harness) done(err error) {
	h.Helper()

	if err != nil && fault.KindOf(err) != fault.NotFound {
		h.Errorf("error = %v (kind %s), want none, or one of kind %s", err, fault.KindOf(err), fault.NotFound)
	}
}

func endsTwice(h *harness) {
	made := h.create(1, h.Offer)
	h.shown(made.ID)
	h.must(h.Provider.Terminate(h.context(), made.Region, made.ID))
	h.done(h.Provider.Terminate(h.context(), made.Region, made.ID))
	h.over(made.ID)
	h.done(h.Provider.Terminate(h.context(), made.Region, made.ID))
	h.empty()
}

// endsUnknown uses the ID of one of its own machines with one letter changed, so that it looks like
// an ID of this world.
func endsUnknown(h *harness) {
	made := h.create(1, h.Offer)
	h.shown(made.ID)
	name := []byte(made.ID)
	last := &name[len(name)-1]
	if *last == '0' {
		*last = '1'
	} else {
		*last = '0'
	}

	h.done(h.Provider.Terminate(h.context(), made.Region, string(name)))
	h.shown(made.ID)

	if n := len(h.world()); n != 1 {
		h.Errorf("the world holds %d machines, want 1", n)
	}
}

func endsAtOnce(h *harness) {
	made := []cloud.Instance{h.create(1, h.Offer), h.create(2, h.Offer), h.create(3, h.Offer)}
	for _, one := range made {
		h.shown(one.ID)
	}

	h.atOnce(2*len(made), func(i int) {
		one := made[i%len(made)]
		h.done(h.Provider.Terminate(h.context(), one.Region, one.ID))
	})

	for _, one := range made {
		h.over(one.ID)
	}

	h.empty()
}

func endsUnanswered(h *harness) {
	h.needs(h.LoseReply != nil, "LoseReply")
	made := h.create(1, h.Offer)
	h.shown(made.ID)
	h.LoseReply(h.T)

	// Ending a machine again is harmless, so a provider may repeat the request by itself.
	if err := h.Provider.Terminate(h.context(), made.Region, made.ID); err != nil {
		h.unknown(err)
	}

	h.over(made.ID)
	h.done(h.Provider.Terminate(h.context(), made.Region, made.ID))
}

func endsEarly(h *harness) {
	h.needs(h.Lag != nil, "Lag")
	catchup := h.Lag(h.T)
	made := h.create(1, h.Offer)
	err := h.Provider.Terminate(h.context(), made.Region, made.ID)
	catchup()

	if err != nil {
		h.unknown(err)
		h.shown(made.ID)
		h.must(h.Provider.Terminate(h.context(), made.Region, made.ID))
	}

	h.over(made.ID)
	h.empty()
}

func tellsTakenBack(h *harness) {
	h.needs(h.Spot.Type != "", "Spot")
	h.needs(h.TakeBack != nil, "TakeBack")
	made := h.create(1, h.Spot)
	h.shown(made.ID)
	h.TakeBack(h.T, made.ID)

	h.eventually("it is gone because it was reclaimed", func(all []cloud.Instance) bool {
		one, ok := find(all, made.ID)
		return ok && one.State == cloud.Gone && one.Why == "spot"
	})
}
