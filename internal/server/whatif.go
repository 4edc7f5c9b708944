package server

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/place"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/tenant"
)

// WhatIf simulates the yard that it reads, as it is and with a change. It ends when ctx does.
type WhatIf func(ctx context.Context, yard *Reader, q *api.WhatIfRequest) (*api.WhatIf, error)

// Simulations cost much: each user has one under way, and two go on at the same time beside the loop.
const (
	whatIfEach  = 1
	whatIfAtAll = 2
	whatIfWait  = 5 * time.Second // for a turn
)

func (s *Server) whatIfRoutes() {
	huma.Register(s.api, s.op("what-if", http.MethodPost, "/api/v1/whatif",
		"Simulate the yard as it is now and with a change: nodes, policy, prices, load, priorities", "server"), s.whatIf)
	huma.Register(s.api, s.op("list-policies", http.MethodGet, "/api/v1/policies",
		"List placement policies with their parameters, and the one in force", "server"), s.listPolicies)
}

// whatIf simulates what the caller may see; who is not an admin gets what that leaves out as gaps.
func (s *Server) whatIf(
	ctx context.Context, in *struct{ Body api.WhatIfRequest },
) (*httpapi.Body[*api.WhatIf], error) {
	if err := allow(ctx, tenant.ReadNodes, ""); err != nil {
		return nil, s.fail(ctx, err)
	}

	end, err := s.whatIfs.begin(ctx, callerOf(ctx).User)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	defer end()

	out, err := s.WhatIf(ctx, &Reader{s}, &in.Body)

	var problem *api.Problem
	if errors.As(err, &problem) { // of what was read
		return nil, problem
	}
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	return &httpapi.Body[*api.WhatIf]{Body: out}, nil
}

func (s *Server) listPolicies(ctx context.Context, _ *struct{}) (*httpapi.Body[api.PolicyList], error) {
	if err := allow(ctx, tenant.ReadNodes, ""); err != nil {
		return nil, s.fail(ctx, err)
	}

	list := api.PolicyList{Policy: s.PolicyName, Policies: []api.PolicyText{}}

	for _, name := range s.Policies.Names() {
		p, err := policyText(s.Policies, name)
		if err != nil {
			return nil, s.fail(ctx, err)
		}

		list.Policies = append(list.Policies, p)
	}

	return &httpapi.Body[api.PolicyList]{Body: list}, nil
}

func policyText(all place.Registry, name string) (api.PolicyText, error) {
	e, err := all.Find(name)
	if err != nil {
		return api.PolicyText{}, err
	}

	params, err := all.Params(name)
	if err != nil {
		return api.PolicyText{}, err
	}

	out := api.PolicyText{Name: name, Rule: e.Rule, Params: []api.PolicyParam{}}
	for _, p := range params {
		out.Params = append(out.Params, api.PolicyParam(p))
	}

	return out, nil
}

// Reader reads the yard as the API shows it to the caller of a context. It is for simulations, which are made of what
// the caller may see.
type Reader struct{ server *Server }

// body returns the answer of a handler.
func body[T any](answer *httpapi.Body[T], err error) (T, error) {
	if err != nil {
		var none T
		return none, err
	}

	return answer.Body, nil
}

// Info says what the server is.
func (r *Reader) Info(ctx context.Context) (api.Info, error) { return body(r.server.info(ctx, nil)) }

// Whoami says who asks.
func (r *Reader) Whoami(ctx context.Context) (api.Whoami, error) {
	return body(r.server.whoami(ctx, nil))
}

// Nodes returns one page of the nodes.
func (r *Reader) Nodes(ctx context.Context, p api.Page) (api.NodePage, error) {
	return body(r.server.listNodes(ctx, &struct{ Paging }{Paging(p)}))
}

// Jobs returns one page of the jobs.
func (r *Reader) Jobs(ctx context.Context, f api.JobFilter) (api.JobPage, error) {
	in := &listJobsInput{Paging: Paging(f.Page), Since: f.Since}
	for _, state := range f.States {
		in.State = append(in.State, string(state))
	}

	page, err := r.server.pageOfJobs(ctx, in)
	if err != nil {
		return api.JobPage{}, err
	}

	return page.shown(), nil
}

// Job returns one job.
func (r *Reader) Job(ctx context.Context, j id.Job) (api.JobDetail, error) {
	return body(r.server.getJob(ctx, &getJobInput{Job: string(j)}))
}

// Users returns one page of the users.
func (r *Reader) Users(ctx context.Context, p api.Page) (api.UserPage, error) {
	return body(r.server.listUsers(ctx, &struct{ Paging }{Paging(p)}))
}

// Datasets returns one page of the datasets.
func (r *Reader) Datasets(ctx context.Context, p api.Page) (api.DatasetPage, error) {
	return body(r.server.listDatasets(ctx, &struct{ Paging }{Paging(p)}))
}

// Events returns the last events of a job.
func (r *Reader) Events(ctx context.Context, f api.EventFilter) (api.EventPage, error) {
	return body(r.server.listEvents(ctx, &eventInput{
		Paging: Paging{Cursor: f.Cursor, Limit: max(f.Limit, f.Tail)}, Kind: f.Kind, Job: string(f.Job), Tail: f.Tail,
	}))
}

// noSimulator is the answer of a server that has none.
func noSimulator(context.Context, *Reader, *api.WhatIfRequest) (*api.WhatIf, error) {
	return nil, fault.New(fault.Conflict, "no_simulator", "this server has no simulator").
		WithRemedy("simulate with trainyard simulate --from-yard")
}
