package server

import (
	"cmp"
	"context"
	"slices"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/id"
	"trainyard/internal/ledger"
	"trainyard/internal/store"
	"trainyard/internal/tenant"
)

type usageInput struct {
	Form
	Period
	Researcher string `query:"researcher" maxLength:"63" doc:"only usage and cost of this researcher; utilization always covers everyone"`
}

// usage reports the four groups of figures. How much of the nodes was used is for
// everyone to see; what people used and pay for is for themselves and for admins.
func (s *Server) usage(ctx context.Context, in *usageInput) (*written, error) {
	owner, err := ownerFilter(ctx, tenant.ReadUsage, id.User(in.Researcher), "")
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	end, err := s.reports.begin(ctx, callerOf(ctx).User)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	defer end()

	u, value, err := s.figures(ctx, ledger.Query{From: in.From, To: in.To}, owner)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	out, err := in.write(func() any { return value }, u.WriteCSV)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	return out, nil
}

// figures reckons the usage of one researcher, or of all ("").
func (s *Server) figures(ctx context.Context, q ledger.Query, owner id.User) (*ledger.Usage, api.Usage, error) {
	if _, err := ledger.NewSummary(q); err != nil { // before anything is read
		return nil, api.Usage{}, err
	}

	leases, err := s.leaseFacts(ctx, q, owner)
	if err != nil {
		return nil, api.Usage{}, err
	}

	by := q
	by.Group = []ledger.Key{step(q.From, cmp.Or(q.To, s.Clock.Now())), ledger.ByAccount}
	if owner != "" {
		by.Filter = []ledger.Filter{{Key: ledger.ByResearcher, Values: []string{string(owner)}}}
	}

	var u *ledger.Usage
	var sums *ledger.Report
	var noTariff bool

	err = s.readLedger(ctx, func(r *reading) (err error) {
		if by.From.Before(r.detailed) && by.Group[0] == ledger.ByHour {
			by.Group[0] = ledger.ByDay
		}

		noTariff = r.noTariff
		u, sums, err = r.figures(ctx, by, owner, leases)

		return err
	})
	if err != nil {
		return nil, api.Usage{}, err
	}

	u.To = cmp.Or(u.To, s.Clock.Now())

	value := toUsage(u, toTrend(sums, by.Group[0], u.To))
	value.NoTariff = noTariff

	return u, value, nil
}

// figures adds up what the ledger has for the usage of one researcher, or of all, and for its trend.
func (r *reading) figures(
	ctx context.Context, by ledger.Query, owner id.User, leases []ledger.LeaseCost,
) (*ledger.Usage, *ledger.Report, error) {
	trend, err := ledger.NewSummary(by)
	if err != nil {
		return nil, nil, err
	}

	usage, err := ledger.NewUsageSummary(by.From, by.To, owner)
	if err != nil {
		return nil, nil, err
	}

	f := store.PostingFilter{
		From: by.From, To: by.To, Totals: ledger.PayerTotals, ByHour: slices.Contains(by.Group, ledger.ByHour),
	}
	err = r.eachBeside(ctx, f, func(p *ledger.Posting) {
		usage.AddPayer(p)
		trend.Add(p)
	}, ledger.NodeTotals, usage.AddNode)
	if err != nil {
		return nil, nil, err
	}

	u, err := usage.Usage(leases)
	if err != nil {
		return nil, nil, err
	}

	sums, err := trend.Report()

	return u, sums, err
}

// step is the stretch by which a trend of a period is shown.
func step(from, to time.Time) ledger.Key {
	switch length := to.Sub(from); {
	case from.IsZero() || length > 180*24*time.Hour:
		return ledger.ByWeek
	case length > 72*time.Hour:
		return ledger.ByDay
	}

	return ledger.ByHour
}

// toTrend lists every stretch of the period, also those in which nothing was.
func toTrend(r *ledger.Report, by ledger.Key, to time.Time) []api.Trend {
	labels := ledger.Buckets(by, r.From, to)
	for i := range r.Rows {
		labels = append(labels, r.Rows[i].Keys[0])
	}

	slices.Sort(labels)
	labels = slices.Compact(labels)
	list := make([]api.Trend, len(labels))
	for i, label := range labels {
		list[i].Label = label
	}

	for i := range r.Rows {
		at, _ := slices.BinarySearch(labels, r.Rows[i].Keys[0])
		list[at].Cost += r.Rows[i].Cost().Dollars()
		if r.Rows[i].Keys[1] == string(ledger.Use) {
			list[at].GPUSeconds += seconds(r.Rows[i].GPUTime)
		}
	}

	return list
}

// leasePage is how many leases are read at once.
const leasePage = 1000

// leaseFacts returns the facts of the leases of a period.
func (s *Server) leaseFacts(ctx context.Context, q ledger.Query, owner id.User) ([]ledger.LeaseCost, error) {
	var facts []ledger.LeaseCost
	f := store.LeaseFilter{Owner: owner, From: q.From, To: q.To, Limit: leasePage}
	now := s.Clock.Now()

	for {
		leases, err := s.Store.Leases(ctx, f)
		if err != nil {
			return nil, err
		}

		for i := range leases {
			if fact, ok := ledger.LeaseCostOf(&leases[i], now); ok {
				facts = append(facts, fact)
			}
		}

		if len(leases) < leasePage {
			return facts, nil
		}

		f.Before, _ = leases[len(leases)-1].ID.Number()
	}
}

func toUsage(u *ledger.Usage, trend []api.Trend) api.Usage {
	out := api.Usage{
		From:       timeOrNil(u.From),
		To:         timeOrNil(u.To),
		UseRate:    []api.UseRate{},
		OnDemand:   toProvisioned(u.OnDemand),
		Own:        []api.OwnTime{},
		OnDemandBy: toProvisioned(u.OnDemandBy),
		Unused:     []api.Unused{},
		Trend:      trend,
	}

	for _, r := range u.UseRate {
		out.UseRate = append(
			out.UseRate,
			api.UseRate{Class: r.Class, Node: r.Node, BusyNode: seconds(r.BusyNode), AvailableNode: seconds(r.AvailableNode),
				NodeRate: r.NodeRate, BusyGPU: seconds(r.BusyGPU), AvailableGPU: seconds(r.AvailableGPU), GPURate: r.GPURate},
		)
	}

	for _, r := range u.Own {
		out.Own = append(
			out.Own,
			api.OwnTime{
				Researcher:  r.Researcher,
				Class:       r.Class,
				NodeSeconds: seconds(r.NodeTime),
				GPUSeconds:  seconds(r.GPUTime),
				Cost:        r.Cost.Dollars(),
			},
		)
	}

	for _, r := range u.Unused {
		out.Unused = append(
			out.Unused,
			api.Unused{
				Class:       r.Class,
				Account:     string(r.Account),
				NodeSeconds: seconds(r.NodeTime),
				GPUSeconds:  seconds(r.GPUTime),
				Cost:        r.Cost.Dollars(),
			},
		)
	}

	return out
}

func toProvisioned(list []ledger.OnDemandUsage) []api.Provisioned {
	out := make([]api.Provisioned, len(list))
	for i, h := range list {
		out[i] = api.Provisioned{
			Offer:        h.Offer,
			Researcher:   h.Researcher,
			Creations:    h.Creations,
			NodeSeconds:  seconds(h.NodeTime),
			GPUSeconds:   seconds(h.GPUTime),
			Estimated:    h.Estimated.Dollars(),
			Billed:       h.Billed.Dollars(),
			BilledLeases: h.BilledLeases,
		}
	}

	return out
}
