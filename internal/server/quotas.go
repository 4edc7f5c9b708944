package server

import (
	"context"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"trainyard/internal/admit"
	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

func (s *Server) quotaRoutes() {
	const tag, path = "limits", "/api/v1/limits/{kind}/{name}"
	huma.Register(s.api, s.op("list-limits", http.MethodGet, "/api/v1/limits", "List limits, and where everyone stands", tag), s.listLimits)
	huma.Register(s.api, s.op("put-limit", http.MethodPut, path, "Set what a user or project may have", tag), s.putLimit)
	remove := s.op("remove-limit", http.MethodDelete, path, "Take a limit away", tag)
	remove.DefaultStatus = http.StatusNoContent
	huma.Register(s.api, remove, s.removeLimit)
}

// listLimits shows an admin all; others the limits that may bind them, and themselves.
func (s *Server) listLimits(ctx context.Context, in *struct{ Paging }) (*body[api.LimitPage], error) {
	who := callerOf(ctx)
	owner, err := ownerFilter(ctx, tenant.ReadBooks, "")
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	var limits []tenant.Limit
	var bound []admit.Standing
	var own admit.Standing
	if err := s.query(ctx, func(y *yardmaster.Yard) { limits, bound, own = y.Limits(s.Clock.Now(), who.User) }); err != nil {
		return nil, s.fail(ctx, err)
	}
	page := api.LimitPage{Limits: []api.Limit{}, Standings: []api.Standing{}}
	for i := range limits {
		if l := &limits[i]; in.Cursor == "" && (owner == "" || l.Subject.Each != "" || l.Subject.User == owner) {
			page.Limits = append(page.Limits, *toLimit(l))
		}
	}
	if owner != "" {
		bound = []admit.Standing{own}
	}
	for i := range bound {
		one := toStanding(&bound[i])
		if one.Subject <= in.Cursor {
			continue
		}
		if len(page.Standings) == in.Limit {
			page.Next = page.Standings[in.Limit-1].Subject
			break
		}
		page.Standings = append(page.Standings, one)
	}
	return &body[api.LimitPage]{page}, nil
}

func toLimit(l *tenant.Limit) *api.Limit {
	return &api.Limit{Subject: l.Subject.String(), LimitRequest: api.LimitRequest{
		GPUs: l.GPUs, Nodes: l.Nodes, GPUHours: l.GPUHours, Money: l.Money, Period: l.Period, At: l.At, Borrow: l.Borrow, WarnAt: l.WarnAt,
	}}
}

func toStanding(s *admit.Standing) api.Standing {
	out := api.Standing{
		Subject: s.Subject.String(), GPUs: s.Local + s.Reserved + s.OnDemand, Local: s.Local, Reserved: s.Reserved, OnDemand: s.OnDemand,
		Nodes: s.Nodes, Hourly: s.Hourly, Begin: s.Begin, Ends: s.Ends, Money: toCourse(&s.Money), GPUHours: toCourse(&s.GPUHours),
	}
	if s.Limit.Subject != (tenant.Subject{}) {
		out.Limit = toLimit(&s.Limit)
	}
	return out
}

func toCourse(c *admit.Course) api.Course {
	return api.Course{Limit: c.Limit, Used: c.Used, Expected: c.Expected, UsedUp: timeOrNil(c.UsedUp)}
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

func (s *Server) putLimit(ctx context.Context, in *limitInput) (*body[api.Limit], error) {
	if err := allow(ctx, tenant.ManageLimits, ""); err != nil {
		return nil, s.fail(ctx, err)
	}
	subject := (&subjectInput{Kind: in.Kind, Name: in.Name}).subject()
	if err := s.knownUser(ctx, subject.User); err != nil {
		return nil, s.fail(ctx, err)
	}
	r := &in.Body
	if r.GPUs == 0 && r.Nodes == 0 && r.GPUHours == 0 && r.Money == 0 {
		return nil, s.fail(ctx, fault.New(fault.Invalid, "empty_limit", "this limits nothing").
			WithRemedy("say at least one of gpus, nodes, gpu_hours and money, or remove the limit"))
	}
	l := tenant.Limit{Subject: subject, GPUs: r.GPUs, Nodes: r.Nodes, GPUHours: r.GPUHours, Money: r.Money, Period: r.Period, At: r.At, Borrow: r.Borrow, WarnAt: r.WarnAt}
	if _, err := s.do(ctx, yardmaster.PutLimit{Limit: l, By: string(callerOf(ctx).User)}); err != nil {
		return nil, s.fail(ctx, err)
	}
	var out *api.Limit
	err := s.query(ctx, func(y *yardmaster.Yard) {
		limits, _, _ := y.Limits(s.Clock.Now(), "")
		for i := range limits {
			if limits[i].Subject == subject {
				out = toLimit(&limits[i])
			}
		}
	})
	if err == nil && out == nil {
		err = noLimit(subject) // removed by someone else since
	}
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	return &body[api.Limit]{*out}, nil
}

func noLimit(subject tenant.Subject) error {
	return fault.New(fault.NotFound, "limit_not_found", "there is no limit for %s", subject)
}

// knownUser refuses a limit for someone who is not there: it would be a slip of the pen.
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

func (s *Server) removeLimit(ctx context.Context, in *subjectInput) (*struct{}, error) {
	err := allow(ctx, tenant.ManageLimits, "")
	if err == nil {
		_, err = s.do(ctx, yardmaster.PutLimit{Limit: tenant.Limit{Subject: in.subject(), Removed: true}, By: string(callerOf(ctx).User)})
	}
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	return nil, nil
}
