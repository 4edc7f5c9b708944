package office

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/hire"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/ledger"
	"trainyard/internal/store"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

func (o *Office) leaseRoutes() {
	const tag = "hiring"
	huma.Register(o.API, o.op("list-offers", http.MethodGet, "/api/v1/offers", "List what can be hired, the cheapest first", tag), o.listOffers)
	huma.Register(o.API, o.op("list-leases", http.MethodGet, "/api/v1/leases", "List leases, newest first", tag), o.listLeases)
	huma.Register(o.API, o.op("get-lease", http.MethodGet, "/api/v1/leases/{lease}", "Show a lease", tag), o.getLease)
	huma.Register(o.API, o.op("return-lease", http.MethodPost, "/api/v1/leases/{lease}/return",
		"Give a hired node back; what runs there starts again elsewhere", tag), o.returnLease)
	huma.Register(o.API, o.op("reaper", http.MethodGet, "/api/v1/reaper", "Report what was found at providers and no lease explains", tag), o.reaper)
}

type offersInput struct {
	Paging
	GPU      string `query:"gpu" maxLength:"63" doc:"kind of GPU: A100 or A100:80GB"`
	Provider string `query:"provider" maxLength:"63"`
	Region   string `query:"region" maxLength:"63"`
	Spot     string `query:"spot" enum:"true,false" doc:"only such that can be taken back, or only others"`
}

func (o *Office) listOffers(ctx context.Context, in *offersInput) (*body[api.OfferPage], error) {
	if err := o.Allow(ctx, tenant.ReadOffers, ""); err != nil {
		return nil, o.Fail(ctx, err)
	}
	var kind job.GPUKind
	if in.GPU != "" {
		if err := kind.UnmarshalText([]byte(in.GPU)); err != nil {
			return nil, o.Fail(ctx, fault.New(fault.Invalid, "gpu_kind", "%v", err).WithField("gpu").WithRemedy("write A100 or A100:80GB"))
		}
	}
	var offers []fleet.Offer
	var closed []hire.Closing
	if err := o.Query(ctx, func(y *yardmaster.Yard) { offers, closed = y.Offers(o.Clock.Now()) }); err != nil {
		return nil, o.Fail(ctx, err)
	}
	page := api.OfferPage{Offers: []fleet.Offer{}, Closed: []api.Closing{}}
	if in.Cursor != "" {
		at := slices.IndexFunc(offers, func(f fleet.Offer) bool { return f.Name == in.Cursor })
		if at < 0 {
			return nil, o.Fail(ctx, badCursor(in.Cursor))
		}
		offers, closed = offers[at+1:], nil
	}
	for i := range offers {
		f := &offers[i]
		if in.GPU != "" && !kind.Matches(f.GPU, f.GPUMemory) || in.Provider != "" && f.Provider != in.Provider ||
			in.Region != "" && f.Region != in.Region || in.Spot != "" && f.Spot != (in.Spot == "true") {
			continue
		}
		if len(page.Offers) == in.Limit {
			page.Next = page.Offers[in.Limit-1].Name
			break
		}
		page.Offers = append(page.Offers, *f)
	}
	for _, c := range closed {
		page.Closed = append(page.Closed, api.Closing{What: c.What, Why: c.Why, Since: shown(c.Since), Until: shown(c.Until), Times: c.Times, Offers: c.Offers})
	}
	return &body[api.OfferPage]{page}, nil
}

type leasesInput struct {
	Paging
	Owner   string    `query:"owner" maxLength:"63"`
	Project string    `query:"project" maxLength:"63"`
	Job     string    `query:"job" maxLength:"40"`
	Live    bool      `query:"live" doc:"only those that have not ended"`
	From    time.Time `query:"from" doc:"not ended, or ended at or after"`
	To      time.Time `query:"to" doc:"asked for before"`
}

func (o *Office) listLeases(ctx context.Context, in *leasesInput) (*body[api.LeasePage], error) {
	owner, err := o.of(ctx, tenant.ReadUsage, id.User(in.Owner))
	if err != nil {
		return nil, o.Fail(ctx, err)
	}
	f := store.LeaseFilter{Owner: owner, Project: id.Project(in.Project), Job: id.Job(in.Job), Live: in.Live, From: in.From, To: in.To, Limit: in.Limit + 1}
	if in.Cursor != "" {
		before, ok := id.Lease(in.Cursor).Number()
		if !ok {
			return nil, o.Fail(ctx, badCursor(in.Cursor))
		}
		f.Before = before
	}
	leases, err := o.Store.Leases(ctx, f)
	if err != nil {
		return nil, o.Fail(ctx, err)
	}
	page := api.LeasePage{Leases: []api.Lease{}}
	if len(leases) > in.Limit {
		leases = leases[:in.Limit]
		page.Next = string(leases[len(leases)-1].ID)
	}
	for i := range leases {
		page.Leases = append(page.Leases, o.toLease(&leases[i]))
	}
	return &body[api.LeasePage]{page}, nil
}

type leaseInput struct {
	Lease string `path:"lease" maxLength:"40"`
}

// readLease returns a lease that the caller may see. One they may not see is not there.
func (o *Office) readLease(ctx context.Context, name string) (fleet.Lease, error) {
	l, err := o.Store.Lease(ctx, id.Lease(name))
	if err != nil {
		return l, err
	}
	if !o.Caller(ctx).May(tenant.ReadUsage, l.Owner) {
		return l, fault.New(fault.NotFound, "lease_not_found", "there is no lease %s", name)
	}
	return l, nil
}

func (o *Office) getLease(ctx context.Context, in *leaseInput) (*body[api.Lease], error) {
	l, err := o.readLease(ctx, in.Lease)
	if err != nil {
		return nil, o.Fail(ctx, err)
	}
	return &body[api.Lease]{o.toLease(&l)}, nil
}

func (o *Office) returnLease(ctx context.Context, in *leaseInput) (*body[api.Lease], error) {
	l, err := o.readLease(ctx, in.Lease)
	if err == nil {
		err = o.Allow(ctx, tenant.ManageLeases, l.Owner)
	}
	if err == nil && l.State.Final() {
		err = fault.New(fault.Conflict, "lease_state", "lease %s is %s already", l.ID, l.State)
	}
	if err != nil {
		return nil, o.Fail(ctx, err)
	}
	answer, err := o.Do(ctx, yardmaster.ReturnLease{Lease: l.ID, By: o.Caller(ctx).User})
	if err != nil {
		return nil, o.Fail(ctx, err)
	}
	changed, _ := answer.(fleet.Lease)
	return &body[api.Lease]{o.toLease(&changed)}, nil
}

func (o *Office) toLease(l *fleet.Lease) api.Lease {
	now := o.Clock.Now()
	out := api.Lease{
		ID: l.ID, Offer: l.Offer, State: l.State, Since: shown(l.Since), Reason: l.Reason, Job: l.Job, Owner: l.Owner, Project: l.Project, Gang: l.Gang,
		Asked: shown(l.Asked), Granted: timeOrNil(l.Granted), Joined: timeOrNil(l.Joined), Ends: timeOrNil(l.Ends), Returned: timeOrNil(l.Returned),
		Ended: timeOrNil(l.Ended), Instance: l.Instance, Node: l.Node, Stray: l.Stray,
		Kept: l.Kept(now).Seconds(), Cost: ledger.Estimate(l, now).Dollars(),
	}
	if l.State.Final() && l.Billed >= 0 && !l.Granted.IsZero() {
		billed := l.Billed
		out.Billed = &billed
	}
	return out
}

// What the reaper's report has at most of each sort.
const (
	maxLive   = 10_000
	maxEvents = 100
)

func (o *Office) reaper(ctx context.Context, _ *struct{}) (*body[api.ReaperReport], error) {
	if err := o.Allow(ctx, tenant.ReadUsage, ""); err != nil {
		return nil, o.Fail(ctx, err)
	}
	now := o.Clock.Now()
	r := api.ReaperReport{At: shown(now), Overdue: []api.Lease{}, Failing: []api.FailingProvider{}, States: map[string]int{}}
	live, err := o.Store.Leases(ctx, store.LeaseFilter{Live: true, Limit: maxLive})
	if err != nil {
		return nil, o.Fail(ctx, err)
	}
	r.Live = len(live)
	for i := range live {
		l := &live[i]
		r.States[string(l.State)]++
		if !l.Ends.IsZero() && l.Ends.Before(now) {
			r.Overdue = append(r.Overdue, o.toLease(l))
		}
	}
	for kind, into := range map[string]*[]api.Event{"lease.stray": &r.Strays, "lease.unclear": &r.Unclear, "provider": &r.Failures} {
		if *into, err = o.events(ctx, kind); err != nil {
			return nil, o.Fail(ctx, err)
		}
	}
	var failing map[string]string
	if err := o.Query(ctx, func(y *yardmaster.Yard) { failing = y.Failing() }); err != nil {
		return nil, o.Fail(ctx, err)
	}
	for provider, why := range failing {
		r.Failing = append(r.Failing, api.FailingProvider{Provider: provider, Why: why})
	}
	slices.SortFunc(r.Failing, func(a, b api.FailingProvider) int { return strings.Compare(a.Provider, b.Provider) })
	return &body[api.ReaperReport]{r}, nil
}

// events returns the newest events of a kind, oldest first.
func (o *Office) events(ctx context.Context, kind string) ([]api.Event, error) {
	events, err := o.Store.Events(ctx, store.EventFilter{Kind: kind, Newest: true, Limit: maxEvents})
	list := make([]api.Event, len(events))
	for i := range events {
		list[i] = o.ToEvent(&events[i])
	}
	return list, err
}
