package server

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/quota"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

func (s *Server) quotaRoutes() {
	const tag, path = "quotas", "/api/v1/quotas/{kind}/{name}"
	huma.Register(
		s.api,
		s.op("list-quotas", http.MethodGet, "/api/v1/quotas", "List quotas and their usage", tag),
		s.listQuotas,
	)

	huma.Register(s.api, s.op("put-quota", http.MethodPut, path, "Set the quota of a user or project", tag), s.putQuota)
	remove := s.op("remove-quota", http.MethodDelete, path, "Remove a quota", tag)
	remove.DefaultStatus = http.StatusNoContent
	huma.Register(s.api, remove, s.removeQuota)
}

// listQuotas shows an admin or operator all; others the quotas that may apply to them, their own usage, and that of the
// projects whose usage they may read.
func (s *Server) listQuotas(ctx context.Context, in *struct{ Paging }) (*httpapi.Body[api.QuotaPage], error) {
	who := callerOf(ctx)
	owner, err := ownerFilter(ctx, tenant.ReadUsage, "", "")
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	var limits []tenant.Quota
	var bound []quota.Status

	var own quota.Status
	page := api.QuotaPage{Quotas: []api.Quota{}, Usage: []api.QuotaUsage{}}

	if err := s.query(ctx, func(y *yardmaster.Yard) {
		limits, bound, own = y.Quotas(s.Clock.Now(), who.User)
		page.NoTariff = y.Tariff() == nil
	}); err != nil {
		return nil, s.fail(ctx, err)
	}

	for i := range limits {
		if l := &limits[i]; in.Cursor == "" && (owner == "" || concerns(who.Caller, l.Subject)) {
			page.Quotas = append(page.Quotas, *toQuota(l))
		}
	}

	if owner != "" {
		seen := who.Sees(tenant.ReadUsage)
		bound = slices.DeleteFunc(bound, func(one quota.Status) bool {
			return !slices.Contains(seen, one.Subject.Project)
		})
		bound = append(bound, own)
		slices.SortFunc(bound, func(a, b quota.Status) int {
			return strings.Compare(a.Subject.String(), b.Subject.String())
		})
	}

	for i := range bound {
		one := toQuotaUsage(&bound[i])
		if one.Subject <= in.Cursor {
			continue
		}

		if len(page.Usage) == in.Limit {
			page.Next = page.Usage[in.Limit-1].Subject
			break
		}

		page.Usage = append(page.Usage, one)
	}

	return &httpapi.Body[api.QuotaPage]{Body: page}, nil
}

// concerns reports whether a quota may apply to jobs of a caller.
func concerns(who tenant.Caller, of tenant.Subject) bool {
	return of.Each != "" || of.User == who.User || of.Project != "" && slices.Contains(who.Member, of.Project)
}

func toQuota(l *tenant.Quota) *api.Quota {
	return &api.Quota{Subject: l.Subject.String(), QuotaRequest: api.QuotaRequest{
		GPUs: l.GPUs, Nodes: l.Nodes, GPUHours: l.GPUHours, Budget: l.Budget, Period: l.Period, OnExceeded: l.OnExceeded,
		Borrow: l.Borrow, WarnAt: l.WarnAt,
	}}
}

func toQuotaUsage(s *quota.Status) api.QuotaUsage {
	out := api.QuotaUsage{
		Subject:  s.Subject.String(),
		GPUs:     s.Local + s.Reserved + s.OnDemand,
		Local:    s.Local,
		Reserved: s.Reserved,
		OnDemand: s.OnDemand,
		Nodes:    s.Nodes,
		Hourly:   float64(s.Hourly),
		Begin:    s.Begin,
		Ends:     s.End,
		Cost:     toPeriodUsage(&s.Cost),
		GPUHours: toPeriodUsage(&s.GPUHours),
	}

	if s.Quota.Subject != (tenant.Subject{}) {
		out.Quota = toQuota(&s.Quota)
	}

	return out
}

func toPeriodUsage(c *quota.Projection) api.PeriodUsage {
	return api.PeriodUsage{Limit: c.Limit, Used: c.Used, Expected: c.Expected, UsedUp: timeOrNil(c.Exhausted)}
}

type subjectInput struct {
	Kind string `path:"kind" enum:"user,project,each"`
	Name string `path:"name" maxLength:"63" doc:"name of the user or project; user or project if the scope is each"`
}

func (in *subjectInput) subject() tenant.Subject {
	switch in.Kind {
	case "user":
		return tenant.Subject{User: id.User(in.Name)}
	case "project":
		return tenant.Subject{Project: id.Project(in.Name)}
	}

	return tenant.Subject{Each: in.Name}
}

type quotaInput struct {
	Kind string `path:"kind" enum:"user,project,each"`
	Name string `path:"name" maxLength:"63" doc:"name of the user or project; user or project if the scope is each"`
	Body api.QuotaRequest
}

func (s *Server) putQuota(ctx context.Context, in *quotaInput) (*httpapi.Body[api.Quota], error) {
	if err := allow(ctx, tenant.ManageQuotas, ""); err != nil {
		return nil, s.fail(ctx, err)
	}

	subject := (&subjectInput{Kind: in.Kind, Name: in.Name}).subject()
	if err := s.knownUser(ctx, subject.User); err != nil {
		return nil, s.fail(ctx, err)
	}

	r := &in.Body
	if r.GPUs == 0 && r.Nodes == 0 && r.GPUHours == 0 && r.Budget == 0 {
		return nil, s.fail(ctx, fault.New(fault.Invalid, "empty_quota", "the quota limits nothing").
			WithRemedy("set at least one of gpus, nodes, gpu_hours and budget, or remove the quota"))
	}

	l := tenant.Quota{
		Subject: subject, GPUs: r.GPUs, Nodes: r.Nodes, GPUHours: r.GPUHours, Budget: r.Budget, Period: r.Period,
		OnExceeded: r.OnExceeded, Borrow: r.Borrow, WarnAt: r.WarnAt,
	}

	set := yardmaster.PutQuota{Quota: l, By: string(callerOf(ctx).User), Restrict: true}
	if _, err := s.do(ctx, set); err != nil {
		return nil, s.fail(ctx, err)
	}

	var out *api.Quota
	err := s.query(ctx, func(y *yardmaster.Yard) {
		limits, _, _ := y.Quotas(s.Clock.Now(), "")
		for i := range limits {
			if limits[i].Subject == subject {
				out = toQuota(&limits[i])
			}
		}
	})

	if err == nil && out == nil {
		err = noQuota(subject) // removed by someone else since
	}

	if err != nil {
		return nil, s.fail(ctx, err)
	}

	return &httpapi.Body[api.Quota]{Body: *out}, nil
}

func noQuota(subject tenant.Subject) error {
	return fault.New(fault.NotFound, "quota_not_found", "there is no quota for %s", subject)
}

// knownUser refuses a quota for a user who does not exist: it would be a typing error.
func (s *Server) knownUser(ctx context.Context, u id.User) error {
	if u == "" {
		return nil
	}

	known := false
	if err := s.query(ctx, func(y *yardmaster.Yard) { _, known = y.User(u) }); err != nil || known {
		return err
	}

	return fault.New(fault.NotFound, "user_not_found", "there is no user %s", strings.TrimSpace(string(u)))
}

func (s *Server) removeQuota(ctx context.Context, in *subjectInput) (*struct{}, error) {
	err := allow(ctx, tenant.ManageQuotas, "")
	if err == nil {
		_, err = s.do(
			ctx,
			yardmaster.PutQuota{Quota: tenant.Quota{Subject: in.subject(), Removed: true}, By: string(callerOf(ctx).User)},
		)
	}

	if err != nil {
		return nil, s.fail(ctx, err)
	}

	return nil, nil
}
