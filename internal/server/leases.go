package server

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
	"trainyard/internal/id"
	"trainyard/internal/ledger"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/store"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

func (s *Server) leaseRoutes() {
	const tag = "provisioning"
	huma.Register(
		s.api,
		s.op("list-leases", http.MethodGet, "/api/v1/leases", "List leases, newest first", tag),
		s.listLeases,
	)

	huma.Register(s.api, s.op("get-lease", http.MethodGet, "/api/v1/leases/{lease}", "Show a lease", tag), s.getLease)
	huma.Register(s.api, s.op("release-lease", http.MethodPost, "/api/v1/leases/{lease}/release",
		"Release a provisioned node; its jobs restart elsewhere", tag), s.releaseLease)

	huma.Register(
		s.api,
		s.op("reaper", http.MethodGet, "/api/v1/reaper", "Report instances without a lease", tag),
		s.reaper,
	)
}

type leasesInput struct {
	Paging
	Owner   string    `query:"owner" maxLength:"63"`
	Project string    `query:"project" maxLength:"63"`
	Job     string    `query:"job" maxLength:"68" doc:"id of a job, its name, name@last or @last"`
	Live    bool      `query:"live" doc:"only leases that have not ended"`
	From    time.Time `query:"from" doc:"only leases that have not ended or ended at or after this time"`
	To      time.Time `query:"to" doc:"only leases requested before this time"`
}

func (s *Server) listLeases(ctx context.Context, in *leasesInput) (*httpapi.Body[api.LeasePage], error) {
	owner, err := ownerFilter(ctx, tenant.ReadUsage, id.User(in.Owner), id.Project(in.Project))
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	about, err := s.jobFilter(ctx, in.Job)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	f := store.LeaseFilter{
		Owner:   owner,
		Project: id.Project(in.Project),
		Job:     about,
		Live:    in.Live,
		From:    in.From,
		To:      in.To,
		Limit:   in.Limit + 1,
	}

	if in.Cursor != "" {
		before, ok := id.Lease(in.Cursor).Number()
		if !ok {
			return nil, s.fail(ctx, badCursor(in.Cursor))
		}

		f.Before = before
	}

	leases, err := s.Store.Leases(ctx, f)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	page := api.LeasePage{Leases: []api.Lease{}}
	if len(leases) > in.Limit {
		leases = leases[:in.Limit]
		page.Next = string(leases[len(leases)-1].ID)
	}

	for i := range leases {
		page.Leases = append(page.Leases, s.toLease(&leases[i]))
	}

	return &httpapi.Body[api.LeasePage]{Body: page}, nil
}

type leaseInput struct {
	Lease string `path:"lease" maxLength:"40"`
}

// readLease returns a lease that the caller may see. One they may not see is not there.
func (s *Server) readLease(ctx context.Context, name string) (fleet.Lease, error) {
	l, err := s.Store.Lease(ctx, id.Lease(name))
	if err != nil {
		return l, err
	}
	if !callerOf(ctx).MayIn(tenant.ReadUsage, l.Owner, l.Project) {
		hide(ctx)
		return l, fault.New(fault.NotFound, "lease_not_found", "there is no lease %s", name)
	}

	return l, nil
}

func (s *Server) getLease(ctx context.Context, in *leaseInput) (*httpapi.Body[api.Lease], error) {
	l, err := s.readLease(ctx, in.Lease)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	return &httpapi.Body[api.Lease]{Body: s.toLease(&l)}, nil
}

func (s *Server) releaseLease(ctx context.Context, in *leaseInput) (*httpapi.Body[api.Lease], error) {
	l, err := s.readLease(ctx, in.Lease)
	if err == nil {
		err = allow(ctx, tenant.ManageLeases, l.Owner)
	}

	if err == nil && l.State.Final() {
		err = fault.New(fault.Conflict, "lease_state", "lease %s is already %s", l.ID, l.State)
	}

	if err != nil {
		return nil, s.fail(ctx, err)
	}

	answer, err := s.do(ctx, yardmaster.ReleaseLease{Lease: l.ID, By: callerOf(ctx).User})
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	changed, _ := answer.(fleet.Lease)

	return &httpapi.Body[api.Lease]{Body: s.toLease(&changed)}, nil
}

func (s *Server) toLease(l *fleet.Lease) api.Lease {
	now := s.Clock.Now()
	out := api.Lease{
		ID:        l.ID,
		Offer:     l.Offer,
		State:     l.State,
		Since:     shown(l.Since),
		Reason:    l.Reason,
		Job:       l.Job,
		Owner:     l.Owner,
		Project:   l.Project,
		Gang:      l.Gang,
		Requested: shown(l.Requested),
		Granted:   timeOrNil(l.Granted),
		Joined:    timeOrNil(l.Joined),
		Ends:      timeOrNil(l.Ends),
		Released:  timeOrNil(l.Released),
		Ended:     timeOrNil(l.Ended),
		Instance:  l.Instance,
		Node:      l.Node,
		Stray:     l.Stray,
		Kept:      l.PaidTime(now).Seconds(),
		Cost:      ledger.Estimate(l, now).Dollars(),
	}

	if l.State.Final() && l.Billed >= 0 && !l.Granted.IsZero() {
		billed := float64(l.Billed)
		out.Billed = &billed
	}

	return out
}

// What the reaper's report has at most of each sort.
const (
	maxLive   = 10_000
	maxEvents = 100
)

func (s *Server) reaper(ctx context.Context, _ *struct{}) (*httpapi.Body[api.ReaperReport], error) {
	if err := allow(ctx, tenant.ReadUsage, ""); err != nil {
		return nil, s.fail(ctx, err)
	}

	now := s.Clock.Now()
	r := api.ReaperReport{
		At:      shown(now),
		Overdue: []api.Lease{},
		Failing: []api.FailingProvider{},
		States:  map[string]int{},
	}

	live, err := s.Store.Leases(ctx, store.LeaseFilter{Live: true, Limit: maxLive})
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	r.Live = len(live)
	for i := range live {
		l := &live[i]
		r.States[string(l.State)]++
		if !l.Ends.IsZero() && l.Ends.Before(now) {
			r.Overdue = append(r.Overdue, s.toLease(l))
		}
	}

	for kind, into := range map[string]*[]api.Event{"lease.stray": &r.Strays, "lease.unclear": &r.Unclear,
		"provider": &r.Failures} {
		*into, err = s.newestEvents(ctx, kind)
		if err != nil {
			return nil, s.fail(ctx, err)
		}
	}

	var failing map[string]string
	if err := s.query(ctx, func(y *yardmaster.Yard) { failing = y.Failing() }); err != nil {
		return nil, s.fail(ctx, err)
	}

	for provider, why := range failing {
		r.Failing = append(r.Failing, api.FailingProvider{Provider: provider, Why: why})
	}

	slices.SortFunc(r.Failing, func(a, b api.FailingProvider) int { return strings.Compare(a.Provider, b.Provider) })

	return &httpapi.Body[api.ReaperReport]{Body: r}, nil
}

// newestEvents returns the newest events of a kind, oldest first.
func (s *Server) newestEvents(ctx context.Context, kind string) ([]api.Event, error) {
	events, err := s.Store.Events(ctx, store.EventFilter{Kind: kind, Newest: true, Limit: maxEvents})
	list := make([]api.Event, len(events))
	for i := range events {
		list[i] = toEvent(&events[i])
	}

	return list, err
}
