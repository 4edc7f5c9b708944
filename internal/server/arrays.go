package server

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/store"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

func (s *Server) arrayRoutes() {
	const tag = "arrays"
	huma.Register(s.api, s.op("list-arrays", http.MethodGet, "/api/v1/arrays", "List arrays, newest first", tag),
		s.listArrays)
	huma.Register(s.api, s.op("get-array", http.MethodGet, "/api/v1/arrays/{array}",
		"Show an array with how many of its elements have which status", tag), s.getArray)

	for _, verb := range []struct {
		change  yardmaster.ArrayChange
		summary string
	}{
		{yardmaster.CancelElements, "Cancel all elements of an array: SIGTERM, then SIGKILL after their grace period"},
		{yardmaster.KillElements, "Kill all elements of an array immediately"},
		{yardmaster.PauseElements, "Stop all elements of an array until they are resumed"},
		{yardmaster.ResumeElements, "Requeue the paused elements of an array"},
	} {
		name := string(verb.change)
		huma.Register(s.api, s.op(name+"-array", http.MethodPost, "/api/v1/arrays/{array}/"+name, verb.summary, tag),
			s.changeArray(verb.change))
	}
}

type listArraysInput struct {
	Paging
	Owner   string `query:"owner" maxLength:"63"`
	Project string `query:"project" maxLength:"63"`
	Name    string `query:"name" maxLength:"63" doc:"substring of the name"`
	Active  bool   `query:"active" doc:"only arrays with elements that have not ended"`
}

func (s *Server) listArrays(ctx context.Context, in *listArraysInput) (*httpapi.Body[api.ArrayPage], error) {
	jobs := store.JobFilter{Owner: id.User(in.Owner), Project: id.Project(in.Project)}
	if err := confineJobs(ctx, &jobs); err != nil {
		return nil, httpapi.ToProblem(err)
	}

	f := store.ArrayFilter{
		Owner: jobs.Owner, Projects: jobs.Projects, Project: jobs.Project, Name: in.Name, Active: in.Active,
		Limit: in.Limit + 1,
	}

	if in.Cursor != "" {
		number, ok := id.Array(in.Cursor).Number()
		if !ok {
			return nil, httpapi.ToProblem(badCursor(in.Cursor))
		}

		f.Before = number
	}

	list, err := s.Store.Arrays(ctx, f)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	page := api.ArrayPage{Arrays: make([]api.Array, 0, len(list))}
	if len(list) > in.Limit {
		list = list[:in.Limit]
		page.Next = string(list[len(list)-1].ID)
	}

	for i := range list {
		page.Arrays = append(page.Arrays, toArray(&list[i]))
	}

	return &httpapi.Body[api.ArrayPage]{Body: page}, nil
}

type arrayInput struct {
	Array string `path:"array" maxLength:"21" doc:"its id, such as a12"`
}

// readArray returns an array if the caller may see it. One they may not see is not there.
func (s *Server) readArray(ctx context.Context, name string) (store.Array, error) {
	missing := fault.New(fault.NotFound, "array_not_found", "array %s not found", name).
		WithRemedy("an array of somebody else is shown to admins and to readers of its project; list yours with: " +
			"trainyard jobs")

	a, err := s.Store.Array(ctx, id.Array(name))

	switch {
	case fault.KindOf(err) == fault.NotFound:
		return store.Array{}, missing
	case err != nil:
		return store.Array{}, err
	case !callerOf(ctx).MayIn(tenant.ReadJob, a.Owner, a.Project):
		hide(ctx)
		return store.Array{}, missing
	}

	return a, nil
}

func (s *Server) getArray(ctx context.Context, in *arrayInput) (*httpapi.Body[api.Array], error) {
	a, err := s.readArray(ctx, in.Array)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	return &httpapi.Body[api.Array]{Body: toArray(&a)}, nil
}

func (s *Server) changeArray(
	change yardmaster.ArrayChange,
) func(context.Context, *arrayInput) (*httpapi.Body[api.ArrayChange], error) {
	return func(ctx context.Context, in *arrayInput) (*httpapi.Body[api.ArrayChange], error) {
		a, err := s.readArray(ctx, in.Array)
		if err != nil {
			return nil, s.fail(ctx, err)
		}
		if err := allowIn(ctx, string(change)+" jobs", tenant.ChangeJob, a.Owner, a.Project); err != nil {
			return nil, httpapi.ToProblem(err)
		}

		answer, err := s.do(ctx, yardmaster.ChangeArray{Array: a.ID, By: callerOf(ctx).User, Change: change})
		if err != nil {
			return nil, s.fail(ctx, err)
		}

		done, _ := answer.(yardmaster.ArrayChanged)

		a, err = s.Store.Array(ctx, a.ID)
		if err != nil {
			return nil, s.fail(ctx, err)
		}

		return &httpapi.Body[api.ArrayChange]{Body: api.ArrayChange{
			Array: toArray(&a), Changed: done.Changed, Refused: done.Refused, Reason: done.Reason,
		}}, nil
	}
}

func toArray(a *store.Array) api.Array {
	first, _ := a.ID.Number()
	out := api.Array{
		ID: a.ID, Name: a.Spec.Name, Owner: a.Owner, Project: a.Project, First: id.NewJob(first), Last: id.NewJob(first),
		Resources: resourcesText(&a.Spec.Resources), Priority: a.Spec.Priority, Submitted: shown(a.Submitted),
		Cost: float64(a.Cost), Counts: []api.JobCount{},
	}

	if spec := a.Spec.Array; spec != nil {
		out.Values, out.Size, out.Limit = valuesText(spec), spec.Len(), spec.Limit
		out.Last = id.NewJob(first + uint64(spec.Len()) - 1)
	}

	for _, status := range job.Statuses() {
		if n := a.Counts[status]; n > 0 {
			out.Counts = append(out.Counts, api.JobCount{Status: status, Jobs: n})
		}
	}

	if !a.Active {
		out.Ended = timeOrNil(a.Ended)
	}

	return out
}

// maxValues bounds the length of the values of an array as they are shown.
const maxValues = 200

// valuesText writes the values of an array for people: long lists are cut.
func valuesText(a *job.Array) string {
	text := a.String()
	if len(text) <= maxValues {
		return text
	}

	cut := []rune(text[:maxValues])

	return string(cut[:len(cut)-1]) + "…"
}

// newArray is an array whose first element has just been stored.
func newArray(first *job.Job) api.Array {
	out := toArray(&store.Array{
		ID: first.Array, Owner: first.Owner, Project: first.Project, Spec: first.Spec, Submitted: first.Submitted,
		Active: true,
	})
	out.Counts = []api.JobCount{{Status: job.StatusPending, Jobs: out.Size}}

	return out
}
