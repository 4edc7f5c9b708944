package ledger

import (
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/money"
)

// Posted returns the number of the last posting. A caller that adds what Peek returns to
// stored postings must skip those with greater numbers: they were posted later and cover
// what Peek has shown already.
func (g *Ledger) Posted() uint64 { return g.lastPosting }

// PeekNode is Peek of one node alone.
func (g *Ledger) PeekNode(now time.Time, n id.Node) []Posting {
	m, ok := g.meters[n]
	if !ok {
		return nil
	}

	return m.Peek(nil, now)
}

// Price is what a node costs while all of its GPUs are used.
type Price struct {
	NodeCost   money.PerHour // paid to a provider, or its purchase price spread over its life
	EnergyCost money.PerHour // 0 for an on-demand node: its price includes energy
	IdleCost   money.PerHour // both, while nothing uses it
	Watts      float64       // with the building's overhead; 0 if unknown
}

// Price returns what a node costs: by its lease if it is an on-demand node, else by the
// tariff, and nil if that is unknown.
func (g *Ledger) Price(n *fleet.Node, l *fleet.Lease) *Price {
	if l != nil {
		hourly := l.Offer.PerHour()

		return &Price{NodeCost: hourly, IdleCost: hourly}
	}

	p := g.tariff.Of(n)
	if p == nil {
		return nil
	}

	all := len(n.Inventory.GPUs)
	watts := g.tariff.Power(p, all)

	return &Price{
		NodeCost:   g.tariff.HourlyPrice(p, all),
		EnergyCost: g.tariff.Energy.Drawing(watts),
		IdleCost:   g.tariff.Rate(p, 0),
		Watts:      watts,
	}
}
