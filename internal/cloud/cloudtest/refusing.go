package cloudtest

import (
	"context"
	"errors"
	"testing"

	"trainyard/internal/cloud"
	"trainyard/internal/fault"
)

func refusing() []contract {
	return []contract{
		{"no machine to be had is a refusal", refusesCapacity},
		{"a full account is a refusal", refusesQuota},
		{"a spot price above what we pay is a refusal", refusesPrice},
		{"a type that does not exist will never be had", refusesType},
		{"a call without permission is denied", refusesImpostor},
		{"a cut connection is neither yes nor no", cutIsUnknown},
		{"a world that is down is neither yes nor no, and no empty list", downIsUnknown},
		{"every call ends with its context", endsWithContext},
		{"a call whose time is over asks for nothing", asksNothingLate},
	}
}

func refusesCapacity(h *harness) {
	h.needs(h.NoCapacity != nil, "NoCapacity")
	h.refusesOnce(h.NoCapacity, cloud.CodeCapacity)
}

func refusesQuota(h *harness) {
	h.needs(h.NoQuota != nil, "NoQuota")
	h.refusesOnce(h.NoQuota, cloud.CodeQuota)
}

// refusesOnce checks that a refusal has its code, leaves nothing behind, and is not remembered by
// the provider: avoiding an offer after a refusal is a decision of the yardmaster.
func (h *harness) refusesOnce(trouble func(t *testing.T), code string) {
	h.Helper()
	trouble(h.T)
	r := h.request(1, h.Offer)
	_, err := h.Provider.Create(h.context(), r)
	h.refused(err, fault.OverLimit, code)
	h.empty()
	made, err := h.Provider.Create(h.context(), r)
	h.must(err)
	h.shown(made.ID)
}

func refusesPrice(h *harness) {
	h.needs(h.Spot.Type != "", "Spot")
	h.needs(h.LowPrice != nil, "LowPrice")
	h.LowPrice(h.T)
	_, err := h.Provider.Create(h.context(), h.request(1, h.Spot))
	h.refused(err, fault.OverLimit, cloud.CodePrice)
	h.empty()
}

func refusesType(h *harness) {
	h.needs(h.Unknown.Type != "", "Unknown")
	_, err := h.Provider.Create(h.context(), h.request(1, h.Unknown))
	h.refused(err, fault.Invalid, "")
	h.empty()
}

func refusesImpostor(h *harness) {
	h.needs(h.Impostor != nil, "Impostor")
	p := h.Impostor(h.T)
	_, err := p.Create(h.context(), h.request(1, h.Offer))
	h.refused(err, fault.Denied, "")
	_, err = p.List(h.context())
	h.refused(err, fault.Denied, "")
	h.empty()
}

func cutIsUnknown(h *harness) {
	h.needs(h.Cut != nil, "Cut")
	r := h.request(1, h.Offer)
	h.Cut(h.T)
	_, err := h.Provider.Create(h.context(), r)
	h.unknown(err)
	h.empty() // the request was cut off, and the provider has not repeated it
	made, err := h.Provider.Create(h.context(), r)
	h.must(err)
	h.shown(made.ID)
}

func downIsUnknown(h *harness) {
	h.needs(h.Down != nil, "Down")
	made := h.create(1, h.Offer)
	h.shown(made.ID)
	up := h.Down(h.T)
	_, err := h.Provider.Create(h.context(), h.request(2, h.Offer))
	h.unknown(err)
	h.unknown(h.Provider.Terminate(h.context(), made.Region, made.ID))

	if all, err := h.Provider.List(h.context()); err == nil {
		h.Errorf("a world that is down gave the list %+v", all)
	}

	up()
	h.shown(made.ID)

	if n := len(h.world()); n != 1 {
		h.Errorf("the world holds %d machines, want the one that was there before", n)
	}
}

func endsWithContext(h *harness) {
	h.needs(h.Hang != nil, "Hang")
	made := h.create(1, h.Offer)
	h.shown(made.ID)
	release := h.Hang(h.T)
	defer release()

	for _, call := range []struct {
		name string
		do   func(ctx context.Context) error
	}{
		{"create", func(ctx context.Context) error {
			_, err := h.Provider.Create(ctx, h.request(2, h.Offer))
			return err
		}},
		{"terminate", func(ctx context.Context) error { return h.Provider.Terminate(ctx, made.Region, made.ID) }},
		{"list", func(ctx context.Context) error {
			_, err := h.Provider.List(ctx)
			return err
		}},
	} {
		ctx, cancel := context.WithTimeout(h.context(), 2*look)
		err := call.do(ctx) // without a deadline it would hang until the test times out
		cancel()
		h.unknown(err)

		if !errors.Is(err, context.DeadlineExceeded) {
			h.Errorf("%s: %v, want an error that says that its time was over", call.name, err)
		}
	}
}

func asksNothingLate(h *harness) {
	ctx, cancel := context.WithCancel(h.context())
	cancel()
	_, err := h.Provider.Create(ctx, h.request(1, h.Offer))
	h.unknown(err)

	if !errors.Is(err, context.Canceled) {
		h.Errorf("error = %v, want one that says that it was cancelled", err)
	}

	if _, err := h.Provider.List(ctx); !errors.Is(err, context.Canceled) {
		h.Errorf("list: %v, want an error that says that it was cancelled", err)
	}

	h.empty()
}
