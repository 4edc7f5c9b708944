package server

import (
	"context"
	"fmt"
	"strings"

	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/store"
	"trainyard/internal/tenant"
)

// readJob returns the job that a caller means by its id, its name, name@last or @last, if they may see it. One they may
// not see is not there.
func (s *Server) readJob(ctx context.Context, handle string) (job.Job, error) {
	if h, ok := id.ParseHandle(handle); ok && h.Job == "" {
		return s.findJob(ctx, h)
	}

	j, err := s.Store.Job(ctx, id.Job(handle))

	switch {
	case fault.KindOf(err) == fault.NotFound:
		return job.Job{}, jobNotFound(handle)
	case err != nil:
		return job.Job{}, err
	case !seesJob(ctx, &j):
		hide(ctx)
		return job.Job{}, jobNotFound(handle)
	}

	return j, nil
}

// seesJob reports whether the caller may read a job.
func seesJob(ctx context.Context, j *job.Job) bool {
	return callerOf(ctx).MayIn(tenant.ReadJob, j.Owner, j.Project)
}

// jobNotFound says that there is no job of a name, or none that the caller may see: the answer is the same.
func jobNotFound(name string) error {
	return fault.New(fault.NotFound, "job_not_found", "job %s not found", name).
		WithRemedy("a job of somebody else is shown to admins and to readers of its project; list yours with: trainyard jobs")
}

// jobFilter returns the id of the job that a list is asked about, "" if it is not. The id of a job that does not exist
// is no mistake: nothing is listed for it.
func (s *Server) jobFilter(ctx context.Context, handle string) (id.Job, error) {
	if h, ok := id.ParseHandle(handle); !ok || h.Job != "" {
		return id.Job(handle), nil
	}

	j, err := s.readJob(ctx, handle)

	return j.ID, err
}

// findJob returns the job that a caller means by a name: of their own, and if none is called so, of those they may see.
func (s *Server) findJob(ctx context.Context, h id.Handle) (job.Job, error) {
	own := store.JobFilter{Owner: callerOf(ctx).User, Called: h.Name}

	j, err := s.pickJob(ctx, h, own)
	if fault.KindOf(err) != fault.NotFound || h.Name == "" {
		return j, err
	}

	seen := store.JobFilter{Called: h.Name}
	if err := confineJobs(ctx, &seen); err != nil {
		return job.Job{}, err
	}

	return s.pickJob(ctx, h, seen)
}

// mostNamed bounds how many jobs of one name are listed to who has to choose.
const mostNamed = 10

// pickJob chooses among the jobs that a filter lets through: the newest if that is asked for, else the only one
// that has not ended, else the newest.
func (s *Server) pickJob(ctx context.Context, h id.Handle, f store.JobFilter) (job.Job, error) {
	if !h.Last {
		active := f
		active.Limit = mostNamed + 1
		for _, state := range job.States() {
			if !state.Final() {
				active.States = append(active.States, state)
			}
		}

		jobs, err := s.Store.Jobs(ctx, active)
		switch {
		case err != nil:
			return job.Job{}, err
		case len(jobs) == 1:
			return jobs[0], nil
		case len(jobs) > 1:
			return job.Job{}, sharedName(h.Name, jobs)
		}
	}

	f.Limit = 1
	jobs, err := s.Store.Jobs(ctx, f)
	switch {
	case err != nil:
		return job.Job{}, err
	case len(jobs) > 0:
		return jobs[0], nil
	case h.Name == "":
		return job.Job{}, fault.New(fault.NotFound, "job_not_found", "job %s not found: you have not submitted a job", h).
			WithRemedy("name a job by its id; list jobs with: trainyard jobs")
	}

	return job.Job{}, fault.New(fault.NotFound, "job_not_found", "job %s not found: no job has this name", h).
		WithRemedy("list jobs with: trainyard jobs --all")
}

// sharedName refuses a name that several jobs have that have not ended, newest first, and lists them.
func sharedName(name string, jobs []job.Job) error {
	var list []string
	for i := range jobs[:min(len(jobs), mostNamed)] {
		list = append(list, fmt.Sprintf("%s (%s, %s)", jobs[i].ID, jobs[i].Owner, jobs[i].Status()))
	}

	if len(jobs) > mostNamed {
		list = append(list, "and more")
	}

	shared := fault.New(fault.Conflict, "job_name_shared", "several active jobs are called %s: %s", name,
		strings.Join(list, ", "))
	if array := jobs[0].Array; array != "" {
		return shared.WithRemedy("use an id, as %s for all jobs of the array, or %s@last for the newest", array, name)
	}

	return shared.WithRemedy("use an id, or %s@last for the newest", name)
}
