package books

import (
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/ledger"
)

// Posted returns the number of the last posting. Who adds what Peek returns to what
// the store keeps leaves out stored postings with greater numbers: they were posted
// later, and are of what Peek has shown already.
func (b *Books) Posted() uint64 { return b.posting }

// PeekNode is Peek of one node alone.
func (b *Books) PeekNode(now time.Time, n id.Node) []ledger.Posting {
	m, ok := b.meters[n]
	if !ok {
		return nil
	}
	return m.Peek(nil, now)
}

// Price is what a node costs in an hour while all of its GPUs are used.
type Price struct {
	Rent   float64 // paid to a provider, or what it was bought for, spread over its life
	Energy float64 // 0 for a hired one: its rent has that in it
	Unused float64 // both, while nothing uses it
	Watts  float64 // with the building's share; 0 if nobody told
}

// Price returns what a node costs: by its lease if it was hired, else by the tariff,
// and nil if nobody told.
func (b *Books) Price(n *fleet.Node, l *fleet.Lease) *Price {
	if l != nil {
		rent := float64(l.Offer.Hourly) / 1e6
		return &Price{Rent: rent, Unused: rent}
	}
	p := b.tariff.Of(n)
	if p == nil {
		return nil
	}
	all := len(n.Inventory.GPUs)
	watts := b.tariff.Power(p, all)
	return &Price{Rent: b.tariff.Rent(p, all), Energy: watts / 1000 * b.tariff.Energy, Unused: b.tariff.Rate(p, 0), Watts: watts}
}
