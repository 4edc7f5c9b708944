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
	"trainyard/internal/job"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/tenant"
)

func (s *Server) utilizationRoutes() {
	const tag = "jobs"
	huma.Register(
		s.api,
		s.op("list-utilization", http.MethodGet, "/api/v1/utilization", "Show what running jobs use of their nodes", tag),
		s.listUtilization,
	)
	huma.Register(
		s.api,
		s.op("get-utilization", http.MethodGet, "/api/v1/jobs/{job}/utilization",
			"Show what a job uses of its nodes, or has used", tag),
		s.getUtilization,
	)
}

// listUtilization shows the running jobs that the caller may read.
func (s *Server) listUtilization(ctx context.Context, _ *struct{}) (*httpapi.Body[api.UtilizationPage], error) {
	who := callerOf(ctx)
	page := api.UtilizationPage{Jobs: []api.Utilization{}}

	for _, name := range s.use.Running() {
		j, err := s.Store.Job(ctx, name)
		if fault.KindOf(err) == fault.NotFound {
			continue
		}
		if err != nil {
			return nil, s.fail(ctx, err)
		}

		if !who.MayIn(tenant.ReadJob, j.Owner, j.Project) || j.State.Final() {
			continue
		}

		one, err := s.utilizationOf(ctx, &j)
		if err != nil {
			return nil, s.fail(ctx, err)
		}

		if one != nil {
			one.Points, one.Earlier = nil, nil // of one job at a time
			page.Jobs = append(page.Jobs, *one)
		}
	}

	slices.SortFunc(page.Jobs, func(a, b api.Utilization) int { return compareJobs(a.Job, b.Job) })

	return &httpapi.Body[api.UtilizationPage]{Body: page}, nil
}

// compareJobs orders jobs by number.
func compareJobs(a, b id.Job) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}

	return strings.Compare(string(a), string(b))
}

func (s *Server) getUtilization(ctx context.Context, in *jobInput) (*httpapi.Body[api.Utilization], error) {
	j, err := s.readJob(ctx, in.Job)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	runs, err := s.Store.Runs(ctx, j.ID)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	one, err := s.use.Of(ctx, &j, runs)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	return &httpapi.Body[api.Utilization]{Body: one}, nil
}

// utilizationOf is what a job uses or has used; nil if nothing was measured.
func (s *Server) utilizationOf(ctx context.Context, j *job.Job) (*api.Utilization, error) {
	runs, err := s.Store.Runs(ctx, j.ID)
	if err != nil {
		return nil, err
	}

	one, err := s.use.Of(ctx, j, runs)
	if fault.KindOf(err) == fault.NotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}

	return &one, nil
}
