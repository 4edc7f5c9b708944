package office

import (
	"context"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/quota"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

func (o *Office) limitRoutes() {
	const tag, path = "limits", "/api/v1/limits/{kind}/{name}"
	huma.Register(o.API, o.op("list-limits", http.MethodGet, "/api/v1/limits", "List limits, and where everyone stands", tag), o.listLimits)
	huma.Register(o.API, o.op("put-limit", http.MethodPut, path, "Set what a user or project may have", tag), o.putLimit)
	remove := o.op("remove-limit", http.MethodDelete, path, "Take a limit away", tag)
	remove.DefaultStatus = http.StatusNoContent
	huma.Register(o.API, remove, o.removeLimit)
}

// listLimits shows an admin all; others the limits that may bind them, and themselves.
func (o *Office) listLimits(ctx context.Context, in *struct{ Paging }) (*body[api.LimitPage], error) {
	who := o.Caller(ctx)
	owner, err := o.of(ctx, tenant.ReadUsage, "")
	if err != nil {
		return nil, o.Fail(ctx, err)
	}
	var limits []tenant.Quota
	var bound []quota.Status
	var own quota.Status
	if err := o.Query(ctx, func(y *yardmaster.Yard) { limits, bound, own = y.Quotas(o.Clock.Now(), who.User) }); err != nil {
		return nil, o.Fail(ctx, err)
	}
	page := api.LimitPage{Limits: []api.Limit{}, Standings: []api.Standing{}}
	for i := range limits {
		if l := &limits[i]; in.Cursor == "" && (owner == "" || l.Subject.Each != "" || l.Subject.User == owner) {
			page.Limits = append(page.Limits, *toLimit(l))
		}
	}
	if owner != "" {
		bound = []quota.Status{own}
	}
	for i := range bound {
		s := toStanding(&bound[i])
		if s.Subject <= in.Cursor {
			continue
		}
		if len(page.Standings) == in.Limit {
			page.Next = page.Standings[in.Limit-1].Subject
			break
		}
		page.Standings = append(page.Standings, s)
	}
	return &body[api.LimitPage]{page}, nil
}

func toLimit(l *tenant.Quota) *api.Limit {
	return &api.Limit{Subject: l.Subject.String(), LimitRequest: api.LimitRequest{
		GPUs: l.GPUs, Nodes: l.Nodes, GPUHours: l.GPUHours, Money: l.Budget, Period: l.Period, At: l.OnExceeded, Borrow: l.Borrow, WarnAt: l.WarnAt,
	}}
}

func toStanding(s *quota.Status) api.Standing {
	out := api.Standing{
		Subject: s.Subject.String(), GPUs: s.Local + s.Reserved + s.OnDemand, Local: s.Local, Reserved: s.Reserved, OnDemand: s.OnDemand,
		Nodes: s.Nodes, Hourly: s.Hourly, Begin: s.Begin, Ends: s.End, Money: toCourse(&s.Cost), GPUHours: toCourse(&s.GPUHours),
	}
	if s.Quota.Subject != (tenant.Subject{}) {
		out.Limit = toLimit(&s.Quota)
	}
	return out
}

func toCourse(c *quota.Projection) api.Course {
	return api.Course{Limit: c.Limit, Used: c.Used, Expected: c.Expected, UsedUp: timeOrNil(c.Exhausted)}
}

type subjectInput struct {
	Kind string `path:"kind" enum:"user,project,each"`
	Name string `path:"name" maxLength:"63" doc:"of the user or project; user or project where the limit is for each"`
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

type limitInput struct {
	Kind string `path:"kind" enum:"user,project,each"`
	Name string `path:"name" maxLength:"63" doc:"of the user or project; user or project where the limit is for each"`
	Body api.LimitRequest
}

func (o *Office) putLimit(ctx context.Context, in *limitInput) (*body[api.Limit], error) {
	if err := o.Allow(ctx, tenant.ManageQuotas, ""); err != nil {
		return nil, o.Fail(ctx, err)
	}
	s := (&subjectInput{Kind: in.Kind, Name: in.Name}).subject()
	if err := o.knownUser(ctx, s.User); err != nil {
		return nil, o.Fail(ctx, err)
	}
	r := &in.Body
	if r.GPUs == 0 && r.Nodes == 0 && r.GPUHours == 0 && r.Money == 0 {
		return nil, o.Fail(ctx, fault.New(fault.Invalid, "empty_limit", "this limits nothing").
			WithRemedy("say at least one of gpus, nodes, gpu_hours and money, or remove the limit"))
	}
	l := tenant.Quota{Subject: s, GPUs: r.GPUs, Nodes: r.Nodes, GPUHours: r.GPUHours, Budget: r.Money, Period: r.Period, OnExceeded: r.At, Borrow: r.Borrow, WarnAt: r.WarnAt}
	if _, err := o.Do(ctx, yardmaster.PutQuota{Quota: l, By: string(o.Caller(ctx).User)}); err != nil {
		return nil, o.Fail(ctx, err)
	}
	var out *api.Limit
	err := o.Query(ctx, func(y *yardmaster.Yard) {
		limits, _, _ := y.Quotas(o.Clock.Now(), "")
		for i := range limits {
			if limits[i].Subject == s {
				out = toLimit(&limits[i])
			}
		}
	})
	if err == nil && out == nil {
		err = noLimit(s) // removed by someone else since
	}
	if err != nil {
		return nil, o.Fail(ctx, err)
	}
	return &body[api.Limit]{*out}, nil
}

func noLimit(s tenant.Subject) error {
	return fault.New(fault.NotFound, "limit_not_found", "there is no limit for %s", s)
}

// knownUser refuses a limit for someone who is not there: it would be a slip of the pen.
func (o *Office) knownUser(ctx context.Context, u id.User) error {
	if u == "" {
		return nil
	}
	known := false
	if err := o.Query(ctx, func(y *yardmaster.Yard) { _, known = y.User(u) }); err != nil || known {
		return err
	}
	return fault.New(fault.NotFound, "user_not_found", "there is no user %s", strings.TrimSpace(string(u)))
}

func (o *Office) removeLimit(ctx context.Context, in *subjectInput) (*struct{}, error) {
	err := o.Allow(ctx, tenant.ManageQuotas, "")
	if err == nil {
		_, err = o.Do(ctx, yardmaster.PutQuota{Quota: tenant.Quota{Subject: in.subject(), Removed: true}, By: string(o.Caller(ctx).User)})
	}
	if err != nil {
		return nil, o.Fail(ctx, err)
	}
	return nil, nil
}
