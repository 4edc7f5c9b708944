package server

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/humanize"
	"trainyard/internal/job"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/spec"
	"trainyard/internal/tenant"
)

// draftRoutes are what a submission is begun with: templates, and the files of past jobs.
func (s *Server) draftRoutes() {
	huma.Register(s.api, s.op("list-templates", http.MethodGet, "/api/v1/templates", "List job files to start from",
		"jobs"), s.listTemplates)
	huma.Register(s.api, s.op("get-job-file", http.MethodGet, "/api/v1/jobs/{job}/file",
		"Show the job file with which a job can be submitted again", "jobs"), s.getJobFile)
}

func (s *Server) listTemplates(ctx context.Context, _ *struct{}) (*httpapi.Body[api.TemplateList], error) {
	if err := allow(ctx, tenant.Identify, callerOf(ctx).User); err != nil {
		return nil, httpapi.ToProblem(err)
	}

	all, err := spec.Templates()
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	list := api.TemplateList{Templates: make([]api.Template, len(all))}
	for i, t := range all {
		list.Templates[i] = api.Template{Name: t.Name, Title: t.Title, File: t.Text}
	}

	return &httpapi.Body[api.TemplateList]{Body: list}, nil
}

// getJobFile answers with what a job was submitted with, without what would be wrong today or is for its owner alone.
func (s *Server) getJobFile(ctx context.Context, in *jobInput) (*httpapi.Body[api.JobFile], error) {
	j, err := s.readJob(ctx, in.Job)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	var out api.JobFile

	again := *j.Spec
	if value, _, ok := j.Element(); ok {
		spec.OfElement(&again, value)
		out.Notes = append(out.Notes, "it was an element of "+string(j.Array)+"; the array has its value alone")
	}

	left := spec.Again(&again, s.Clock.Now())
	if left.Deadline {
		out.Notes = append(out.Notes, "its deadline has passed and is left out")
	}
	if len(left.Needs) > 0 {
		needed := humanize.List(left.Needs...)
		out.Notes = append(out.Notes, "it needed "+needed+" of its file, which is left out")
	}

	out.Notes = append(out.Notes, withoutEnv(ctx, &j, &again)...)

	text, err := spec.Render(again)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	out.File = string(text)

	if j.Workdir != "" {
		err := s.content.CheckWorkdir(ctx, callerOf(ctx).User, j.Workdir)

		switch {
		case err == nil:
			out.Workdir = j.Workdir
		case fault.KindOf(err) == fault.Invalid:
			out.Notes = append(out.Notes, "the files of its working directory are not stored for you: upload the folder")
		default:
			return nil, s.fail(ctx, err)
		}
	}

	return &httpapi.Body[api.JobFile]{Body: out}, nil
}

// withoutEnv takes the variables out of a spec whose values the caller may not read, and says so.
func withoutEnv(ctx context.Context, j *job.Job, s *job.Spec) []string {
	if len(s.Env) == 0 || mayReadEnv(ctx, j) == nil {
		return nil
	}

	names := slices.Sorted(maps.Keys(s.Env))
	s.Env = nil

	return []string{fmt.Sprintf("the variables %s of env are left out: their values are for %s alone",
		humanize.List(names...), j.Owner)}
}
