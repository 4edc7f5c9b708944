package yardview

import (
	"context"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/job"
	"trainyard/internal/sim"
)

// Recent returns what was submitted in the last period before the view as the workload of a like period to come, at
// most so many jobs, the oldest first: each comes so long after the beginning of the period as it came before. Those
// that never ran, and those that still do, are left out; how many there are is among the gaps.
func (v *View) Recent(ctx context.Context, s Source, period time.Duration, most int) ([]sim.Job, error) {
	r := &reader{Source: s, view: v}
	begin := v.Now.Add(-period)

	jobs, err := r.jobs(ctx, api.JobFilter{Since: begin})
	if err != nil {
		return nil, err
	}

	var list []sim.Job
	short, dropped := 0, 0

	for i := range jobs {
		j := &jobs[i]

		switch {
		case j.Ended == nil:
			continue // it is in the yard
		case j.Ran <= 0:
			short++
			continue
		case len(list) == most:
			dropped++
			continue
		}

		one, err := r.again(ctx, j, begin)
		if fault.KindOf(err) == fault.NotFound {
			continue // it was removed meanwhile
		}
		if err != nil {
			return nil, err
		}

		list = append(list, one)
	}

	if short > 0 {
		r.gap("%s not submitted again: they never ran", jobsAre(short))
	}

	if dropped > 0 {
		r.gap("%s not submitted again: the first %d stand for all", jobsAre(dropped), most)
	}

	return list, nil
}

// again returns a job that has ended as one that comes again and runs as long as it did.
func (r *reader) again(ctx context.Context, j *api.Job, begin time.Time) (sim.Job, error) {
	d, err := r.Job(ctx, j.ID)
	if err != nil {
		return sim.Job{}, err
	}

	was, err := jobOf(&d)
	if err != nil {
		return sim.Job{}, err
	}

	// What only a real run needs is left out, and what belongs to the day on which it was submitted.
	spec := *was.Spec
	spec.Run, spec.Setup, spec.Workdir, spec.Image, spec.Python, spec.Env = "again", "", "", "", nil, nil
	spec.Needs, spec.Data, spec.Deadline, spec.Budget, spec.Target = nil, nil, nil, 0, nil
	if spec.Place == "" {
		spec.Place = job.PlaceAny
	}

	return sim.Job{
		Name: spec.Name, At: j.Submitted.Sub(begin), Owner: j.Owner, Spec: &spec, Duration: time.Duration(j.Ran),
	}, nil
}
