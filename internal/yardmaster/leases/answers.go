package leases

import (
	"fmt"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/yardmaster/batch"
	"trainyard/internal/yardmaster/timers"
)

// Granted takes the provider's answer that it has created a machine for a lease.
func (h *Leases) Granted(now time.Time, name id.Lease, provider string, m fleet.Instance) {
	h.Leases.Granted(now, name, provider, m)

	if l := h.Of(name); l != nil {
		h.Market.Granted(l.Offer.Name, now)
	}
}

// Refused takes the provider's answer that it gives no machine for a lease, for certain.
func (h *Leases) Refused(now time.Time, name id.Lease, code, why string) {
	if l := h.Of(name); l != nil {
		h.Market.Refused(l.Offer.Name, code, now)
	}

	h.Leases.Refused(now, name, code+": "+why)
}

// outage is a time in which a provider does not answer as it should.
type outage struct {
	why  string        // the first call went wrong
	over *timers.Timer // says that it is, unless a call goes wrong before; nil while none is answered
}

// steady is for how long a provider must answer until it is said to be back: of one that
// fails every now and then nobody wants to read each time.
const steady = time.Minute

// Listed takes what a provider shows of the yard's machines.
func (h *Leases) Listed(now, asked time.Time, provider string, machines []fleet.Instance) {
	h.Leases.Listed(now, asked, provider, machines)

	if o, failing := h.outages[provider]; failing && o.over == nil {
		o.over = h.timers.After(now.Add(steady), func(now time.Time) {
			delete(h.outages, provider)
			h.feed.Tell(
				now,
				batch.Event{
					Kind:   "provider.back",
					Actor:  batch.Yard,
					Reason: fmt.Sprintf("%s answers again, after: %s", provider, o.why),
				},
			)
		})
	}
}

// Failed takes note of a call that went wrong and will be made again. The lease is ""
// if it was a list.
func (h *Leases) Failed(now time.Time, provider string, l id.Lease, why string) {
	if o, known := h.outages[provider]; known {
		h.timers.Stop(o.over)
		o.over = nil
		return
	}

	h.outages[provider] = &outage{why: why}
	h.feed.Tell(
		now,
		batch.Event{
			Kind:   "provider.failed",
			Actor:  batch.Yard,
			Lease:  l,
			Reason: fmt.Sprintf("%s does not answer as it should and is asked again: %s", provider, why),
		},
	)
}

// Failing returns the providers that do not answer as they should, and why.
func (h *Leases) Failing() map[string]string {
	why := make(map[string]string, len(h.outages))
	for provider, o := range h.outages {
		why[provider] = o.why
	}

	return why
}
