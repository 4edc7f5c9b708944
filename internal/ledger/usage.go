package ledger

import (
	"cmp"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
)

// Usage is the four groups of figures of the HP disclosure, and what was paid for but not used.
type Usage struct {
	From time.Time `json:"from,omitzero"`
	To   time.Time `json:"to,omitzero"`
	// UseRate is the first group: how much of the local and reserved nodes was used,
	// first by class, then by node.
	UseRate []UseRate `json:"use_rate"`
	// OnDemand is the second group: on-demand nodes created, their time and their cost,
	// first of all offers together, then by offer.
	OnDemand []OnDemandUsage `json:"on_demand"`
	// Own is the third group: time on local and reserved nodes by researcher and class.
	Own []OwnUsage `json:"own_by_researcher"`
	// OnDemandBy is the fourth group: on-demand nodes created, their time and their
	// cost, by researcher.
	OnDemandBy []OnDemandUsage `json:"on_demand_by_researcher"`
	// Unused is the capacity that nobody used, by class and account.
	Unused []Unused `json:"unused"`
}

// UseRate is how much of a node, or of all nodes of a class, was used. A node is busy while a run
// holds any part of it, a GPU while a run holds that GPU. Available time is the time that runs had
// or could have had: busy and idle, without the time in which it was broken, cordoned, used by
// others or not yet there.
type UseRate struct {
	Class         fleet.Class `json:"class"`
	Node          id.Node     `json:"node,omitempty"` // "" for all of the class
	BusyNode      Span        `json:"busy_node_ms"`
	AvailableNode Span        `json:"available_node_ms"`
	NodeRate      float64     `json:"node_rate"` // busy fraction of available, 0 if nothing was available
	BusyGPU       Span        `json:"busy_gpu_ms"`
	AvailableGPU  Span        `json:"available_gpu_ms"`
	GPURate       float64     `json:"gpu_rate"`
}

// OnDemandUsage is the number of on-demand nodes created, their time and their cost: as the ledger
// computes it for this period, and as the providers reported it, where they do, for leases that
// ended in it.
type OnDemandUsage struct {
	Offer        string  `json:"offer,omitempty"`      // in the second group; "" for all
	Researcher   id.User `json:"researcher,omitempty"` // in the fourth group; "" for the yard itself
	Creations    int     `json:"creations"`
	NodeTime     Span    `json:"node_ms"`
	GPUTime      Span    `json:"gpu_ms"`
	Estimated    Nanos   `json:"estimated_nanodollars"`
	Billed       Nanos   `json:"billed_nanodollars"`
	BilledLeases int     `json:"billed_leases"` // number of leases that Billed sums up
}

// OwnUsage is the use of local and reserved nodes, which are paid for in any case, by one
// researcher.
type OwnUsage struct {
	Researcher id.User     `json:"researcher"`
	Class      fleet.Class `json:"class"`
	NodeTime   Span        `json:"node_ms"`
	GPUTime    Span        `json:"gpu_ms"`
	Cost       Nanos       `json:"cost_nanodollars"`
}

// Unused is capacity that was paid for but not used, for one reason.
type Unused struct {
	Class    fleet.Class `json:"class"`
	Account  Account     `json:"account"`
	NodeTime Span        `json:"node_ms"`
	GPUTime  Span        `json:"gpu_ms"`
	Cost     Nanos       `json:"cost_nanodollars"`
}

// LeaseCost is the cost of one lease according to the ledger.
type LeaseCost struct {
	Lease     id.Lease   `json:"lease"`
	Offer     string     `json:"offer"`
	Owner     id.User    `json:"owner,omitempty"`
	Project   id.Project `json:"project,omitempty"`
	Job       id.Job     `json:"job,omitempty"`
	Created   time.Time  `json:"created"` // when the provider created the machine
	Ended     time.Time  `json:"ended,omitzero"`
	Kept      Span       `json:"kept_ms"`
	Estimated Nanos      `json:"estimated_nanodollars"`
	Billed    Nanos      `json:"billed_nanodollars"`
	BillKnown bool       `json:"bill_known"` // the provider reported what it charged
}

// LeaseCostOf returns the cost of a lease until now. It returns false if no machine was created.
func LeaseCostOf(l *fleet.Lease, now time.Time) (LeaseCost, bool) {
	if l.Granted.IsZero() {
		return LeaseCost{}, false
	}

	f := LeaseCost{
		Lease: l.ID, Offer: l.Offer.Name, Owner: l.Owner, Project: l.Project, Job: l.Job, Created: l.Granted, Ended: l.Ended,
		Kept: Span(millis(l.PaidTime(now))), Estimated: Estimate(l, now),
	}

	if !l.Ended.IsZero() && l.Billed >= 0 {
		f.BillKnown, f.Billed = true, NanosOf(l.Billed)
	}

	return f, true
}

// UsageSummary adds postings up to the figures of a period. How much of the nodes was used is of everyone; the rest may
// be of one researcher.
type UsageSummary struct {
	nodes, payers *Summary
}

// NewUsageSummary returns an empty summary of a period, of one researcher or of all ("").
func NewUsageSummary(from, to time.Time, researcher id.User) (*UsageSummary, error) {
	nodes, err := NewSummary(Query{From: from, To: to, Group: []Key{ByClass, ByNode, ByAccount}})
	if err != nil {
		return nil, err
	}

	q := Query{From: from, To: to, Group: []Key{ByClass, ByAccount, ByResearcher, ByOffer}}
	if researcher != "" {
		q.Filter = []Filter{{Key: ByResearcher, Values: []string{string(researcher)}}}
	}

	payers, err := NewSummary(q)
	if err != nil {
		return nil, err
	}

	return &UsageSummary{nodes: nodes, payers: payers}, nil
}

// AddNode takes the next posting for what was used of each node.
func (s *UsageSummary) AddNode(p *Posting) { s.nodes.Add(p) }

// AddPayer takes the next posting for what researchers and the yard used and pay for.
func (s *UsageSummary) AddPayer(p *Posting) { s.payers.Add(p) }

// Usage returns the figures of what was added, with the costs of all leases that were created or ended in the period.
func (s *UsageSummary) Usage(leases []LeaseCost) (*Usage, error) {
	nodes, err := s.nodes.Report()
	if err != nil {
		return nil, err
	}

	payers, err := s.payers.Report()
	if err != nil {
		return nil, err
	}

	f := usageSums{
		rates: map[nodeKey]*UseRate{}, own: map[ownerKey]*OwnUsage{}, unused: map[accountKey]*Unused{},
		offers: map[string]*OnDemandUsage{"": {}}, people: map[id.User]*OnDemandUsage{},
	}

	for i := range nodes.Rows {
		f.node(&nodes.Rows[i])
	}

	for i := range payers.Rows {
		f.payer(&payers.Rows[i])
	}

	for i := range leases {
		f.lease(&leases[i], nodes.From, nodes.To)
	}

	u := f.usage()
	u.From, u.To = nodes.From, nodes.To

	return u, nil
}

// usageSums collects the sums of a usage.
type usageSums struct {
	rates  map[nodeKey]*UseRate
	own    map[ownerKey]*OwnUsage
	unused map[accountKey]*Unused
	offers map[string]*OnDemandUsage
	people map[id.User]*OnDemandUsage
}

type (
	nodeKey struct {
		class fleet.Class
		node  id.Node
	}
	ownerKey struct {
		researcher id.User
		class      fleet.Class
	}
	accountKey struct {
		class   fleet.Class
		account Account
	}
)

// cell returns the value of a key, and adds a zero value if there is none.
func cell[K comparable, V any](m map[K]*V, key K) *V {
	v, ok := m[key]
	if !ok {
		v = new(V)
		m[key] = v
	}

	return v
}

// node adds a row of a class, node and account.
func (f *usageSums) node(r *Row) {
	class, node, account := fleet.Class(r.Keys[0]), id.Node(r.Keys[1]), Account(r.Keys[2])
	if class == fleet.OnDemand {
		return
	}

	for _, name := range []id.Node{"", node} {
		x := cell(f.rates, nodeKey{class, name})
		if account == Use {
			x.BusyNode, x.BusyGPU = x.BusyNode+r.NodeTime, x.BusyGPU+r.GPUTime
		}

		if account == Use || account == Idle {
			x.AvailableNode, x.AvailableGPU = x.AvailableNode+r.NodeTime, x.AvailableGPU+r.GPUTime
		}
	}
}

// payer adds a row of a class, account, researcher and offer.
func (f *usageSums) payer(r *Row) {
	class, account := fleet.Class(r.Keys[0]), Account(r.Keys[1])
	researcher, offer := id.User(r.Keys[2]), r.Keys[3]

	if account != Use {
		x := cell(f.unused, accountKey{class, account})
		x.NodeTime, x.GPUTime, x.Cost = x.NodeTime+r.NodeTime, x.GPUTime+r.GPUTime, x.Cost+r.Cost()
	}

	if class == fleet.OnDemand {
		for _, h := range f.onDemand(offer, researcher) {
			h.NodeTime, h.GPUTime, h.Estimated = h.NodeTime+r.NodeTime, h.GPUTime+r.GPUTime, h.Estimated+r.Cost()
		}

		return
	}

	if account == Use {
		x := cell(f.own, ownerKey{researcher, class})
		x.NodeTime, x.GPUTime, x.Cost = x.NodeTime+r.NodeTime, x.GPUTime+r.GPUTime, x.Cost+r.Cost()
	}
}

// lease counts a lease that was created in the period, and adds the bill of one that ended in it.
func (f *usageSums) lease(l *LeaseCost, from, to time.Time) {
	within := func(t time.Time) bool {
		return !t.IsZero() && !t.Before(from) && (to.IsZero() || t.Before(to))
	}
	for _, h := range f.onDemand(l.Offer, l.Owner) {
		if within(l.Created) {
			h.Creations++
		}

		if l.BillKnown && within(l.Ended) {
			h.Billed += l.Billed
			h.BilledLeases++
		}
	}
}

// onDemand returns the sums that an amount of an on-demand node is added to: of all offers, of its
// researcher and of its offer. A node that joined by hand has no offer.
func (f *usageSums) onDemand(offer string, researcher id.User) []*OnDemandUsage {
	list := []*OnDemandUsage{f.offers[""], cell(f.people, researcher)}
	if offer != "" {
		list = append(list, cell(f.offers, offer))
	}

	return list
}

// usage returns the sums, sorted.
func (f *usageSums) usage() *Usage {
	u := &Usage{
		UseRate:    []UseRate{},
		OnDemand:   []OnDemandUsage{},
		Own:        []OwnUsage{},
		OnDemandBy: []OnDemandUsage{},
		Unused:     []Unused{},
	}

	for key, x := range f.rates {
		x.Class, x.Node = key.class, key.node
		x.NodeRate, x.GPURate = ratio(x.BusyNode, x.AvailableNode), ratio(x.BusyGPU, x.AvailableGPU)
		u.UseRate = append(u.UseRate, *x)
	}

	for key, x := range f.own {
		x.Researcher, x.Class = key.researcher, key.class
		u.Own = append(u.Own, *x)
	}

	for key, x := range f.unused {
		x.Class, x.Account = key.class, key.account
		u.Unused = append(u.Unused, *x)
	}

	for key, x := range f.offers {
		x.Offer = key
		u.OnDemand = append(u.OnDemand, *x)
	}

	for key, x := range f.people {
		x.Researcher = key
		u.OnDemandBy = append(u.OnDemandBy, *x)
	}

	slices.SortFunc(u.UseRate, func(a, b UseRate) int {
		return cmp.Or(
			cmp.Compare(min(len(a.Node), 1), min(len(b.Node), 1)),
			cmp.Compare(a.Class, b.Class),
			cmp.Compare(a.Node, b.Node),
		)
	})

	slices.SortFunc(u.Own, func(a, b OwnUsage) int {
		return cmp.Or(cmp.Compare(a.Researcher, b.Researcher), cmp.Compare(a.Class, b.Class))
	})
	slices.SortFunc(u.Unused, func(a, b Unused) int {
		return cmp.Or(cmp.Compare(a.Class, b.Class), cmp.Compare(a.Account, b.Account))
	})
	slices.SortFunc(u.OnDemand, func(a, b OnDemandUsage) int { return cmp.Compare(a.Offer, b.Offer) })
	slices.SortFunc(u.OnDemandBy, func(a, b OnDemandUsage) int { return cmp.Compare(a.Researcher, b.Researcher) })

	return u
}

// ratio returns some as a fraction of all, 0 if all is 0.
func ratio(some, all Span) float64 {
	if all == 0 {
		return 0
	}

	return float64(some) / float64(all)
}
