package server

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"trainyard/internal/api"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

func (s *Server) scheduleRoutes() {
	const tag = "schedules"
	huma.Register(
		s.api,
		s.op("list-schedules", http.MethodGet, "/api/v1/schedules", "List schedules, the oldest first", tag),
		s.listSchedules,
	)

	huma.Register(
		s.api,
		s.op("stop-schedule", http.MethodPost, "/api/v1/schedules/{schedule}/stop",
			"Stop a schedule; the jobs that it submitted go on", tag),
		s.stopSchedule,
	)
}

type listSchedulesInput struct {
	Paging
	Owner string `query:"owner" maxLength:"63"`
	All   bool   `query:"all" doc:"also schedules that were stopped"`
}

// listSchedules shows a caller the schedules whose jobs they may read.
func (s *Server) listSchedules(
	ctx context.Context,
	in *listSchedulesInput,
) (*httpapi.Body[api.SchedulePage], error) {
	var all []job.Schedule
	if err := s.query(ctx, func(y *yardmaster.Yard) { all = y.Schedules() }); err != nil {
		return nil, s.fail(ctx, err)
	}

	after := uint64(0)
	if in.Cursor != "" {
		n, ok := id.Schedule(in.Cursor).Number()
		if !ok {
			return nil, s.fail(ctx, badCursor(in.Cursor))
		}

		after = n
	}

	page := api.SchedulePage{Schedules: []api.Schedule{}}
	for i := range all {
		one := &all[i]
		number, _ := one.ID.Number()

		switch {
		case number <= after, in.Owner != "" && one.Owner != id.User(in.Owner), !one.Stopped.IsZero() && !in.All:
			continue
		case !mayReadSchedule(ctx, one):
			continue
		case len(page.Schedules) == in.Limit:
			page.Next = string(page.Schedules[in.Limit-1].ID)
			return &httpapi.Body[api.SchedulePage]{Body: page}, nil
		}

		page.Schedules = append(page.Schedules, toSchedule(one))
	}

	return &httpapi.Body[api.SchedulePage]{Body: page}, nil
}

// mayReadSchedule reports whether a caller may see a schedule, as they may its jobs.
func mayReadSchedule(ctx context.Context, s *job.Schedule) bool {
	return callerOf(ctx).MayIn(tenant.ReadJob, s.Owner, id.Project(s.Jobs[0].Project))
}

func toSchedule(s *job.Schedule) api.Schedule {
	out := api.Schedule{
		ID: s.ID, Owner: s.Owner, Name: s.Name(), Every: s.Every, Overlap: s.Overlap, Jobs: len(s.Jobs),
		Added: shown(s.Added), Next: timeOrNil(s.Next), Last: timeOrNil(s.Last), LastJobs: s.LastJobs,
		Submitted: s.Submitted, Skipped: s.Skipped, Missed: s.Missed, Problem: s.Problem,
		Stopped: timeOrNil(s.Stopped), StoppedBy: s.StoppedBy,
	}

	if out.Overlap == "" {
		out.Overlap = job.OverlapSkip
	}

	return out
}

type scheduleInput struct {
	Schedule string `path:"schedule" maxLength:"40"`
}

func (s *Server) stopSchedule(ctx context.Context, in *scheduleInput) (*httpapi.Body[api.Schedule], error) {
	var found *job.Schedule
	if err := s.query(ctx, func(y *yardmaster.Yard) {
		for _, one := range y.Schedules() {
			if one.ID == id.Schedule(in.Schedule) {
				found = &one
			}
		}
	}); err != nil {
		return nil, s.fail(ctx, err)
	}

	if found == nil || !mayReadSchedule(ctx, found) {
		hide(ctx)
		return nil, s.fail(ctx, yardmaster.ScheduleNotFound(id.Schedule(in.Schedule)))
	}

	project := id.Project(found.Jobs[0].Project)
	if err := allowIn(ctx, "stop schedules", tenant.ChangeJob, found.Owner, project); err != nil {
		return nil, s.fail(ctx, err)
	}

	answer, err := s.do(ctx, yardmaster.StopSchedule{Schedule: found.ID, By: callerOf(ctx).User})
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	stopped, _ := answer.(job.Schedule)

	return &httpapi.Body[api.Schedule]{Body: toSchedule(&stopped)}, nil
}

// addSchedule adds a schedule for the jobs of a file, or says that it was added before under the same key.
func (s *Server) addSchedule(ctx context.Context, m *yardmaster.Submit, reply *api.SubmitReply) error {
	first := m.Jobs[0].Spec
	answer, err := s.do(ctx, yardmaster.AddSchedule{
		Owner: m.Owner, Key: m.Key, KeyHash: m.KeyHash, Every: first.Every, Overlap: first.Overlap, Jobs: m.Jobs,
	})
	if err != nil {
		return err
	}

	added, _ := answer.(job.Schedule)
	shown := toSchedule(&added)
	reply.Schedule = &shown

	return nil
}
