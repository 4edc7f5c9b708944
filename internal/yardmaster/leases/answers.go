package leases

import (
	"fmt"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/yardmaster/batch"
	"trainyard/internal/yardmaster/timers"
)

// Granted records the provider's answer that it has created a machine for a lease.
func (h *Leases) Granted(now time.Time, name id.Lease, provider string, m fleet.Instance) {
	h.Leases.Granted(now, name, provider, m)

	if l := h.Of(name); l != nil {
		h.Market.Granted(l.Offer.Name, now)
	}
}

// Refused records the provider's definite answer that it gives no machine for a lease.
func (h *Leases) Refused(now time.Time, name id.Lease, code, why string) {
	if l := h.Of(name); l != nil {
		h.Market.Refused(l.Offer.Name, code, now)
	}

	h.Leases.Refused(now, name, code+": "+why)
}

// outage is a period in which calls to a provider fail.
type outage struct {
	why  string        // error of the first failed call
	over *timers.Timer // declares the end of the outage unless a call fails before; nil while calls fail
}

// recoveryTime is how long calls to a provider must succeed before its outage counts as over,
// so that a provider that fails now and then does not fill the feed.
const recoveryTime = time.Minute

// Listed records which of the yard's machines a provider lists. asked is when it was called.
func (h *Leases) Listed(now, asked time.Time, provider string, machines []fleet.Instance) {
	h.Leases.Listed(now, asked, provider, machines)

	if o, failing := h.outages[provider]; failing && o.over == nil {
		o.over = h.timers.After(now.Add(recoveryTime), func(now time.Time) {
			delete(h.outages, provider)
			h.feed.Add(
				now,
				batch.Event{
					Kind:   "provider.back",
					Actor:  batch.Yard,
					Reason: fmt.Sprintf("%s responds again; the error was: %s", provider, o.why),
				},
			)
		})
	}
}

// Failed records a call that failed and will be retried. The lease is "" if the call listed
// instances.
func (h *Leases) Failed(now time.Time, provider string, l id.Lease, why string) {
	if o, known := h.outages[provider]; known {
		h.timers.Stop(o.over)
		o.over = nil
		return
	}

	h.outages[provider] = &outage{why: why}
	h.feed.Add(
		now,
		batch.Event{
			Kind:   "provider.failed",
			Actor:  batch.Yard,
			Lease:  l,
			Reason: fmt.Sprintf("call to %s failed, retrying: %s", provider, why),
		},
	)
}

// Failing returns the providers with an outage, and the error of each.
func (h *Leases) Failing() map[string]string {
	why := make(map[string]string, len(h.outages))
	for provider, o := range h.outages {
		why[provider] = o.why
	}

	return why
}
