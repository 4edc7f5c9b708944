package forecaster

import (
	"context"
	"math"
	"slices"
	"strings"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/job"
	"trainyard/internal/metric"
)

type curvesInput struct {
	Jobs   []string `query:"job,explode" required:"true" minItems:"1" maxItems:"50" doc:"ids of jobs"`
	Points int      `query:"points" minimum:"2" maximum:"200" default:"40" doc:"maximum number of points of a curve"`
}

// listCurves returns the main metric of several jobs. Jobs that the caller may not see, and those that have reported
// nothing, are left out.
func (f *Forecaster) listCurves(ctx context.Context, e Edge, in *curvesInput) (*body[api.CurveList], error) {
	out := api.CurveList{Curves: []api.JobCurve{}}

	for _, name := range in.Jobs {
		j, err := e.Job(ctx, name)
		if fault.KindOf(err) == fault.NotFound {
			continue
		}

		var s *metric.Series
		if err == nil {
			s, err = f.mainSeries(ctx, &j)
		}

		if err != nil {
			return nil, e.Fail(ctx, err)
		}

		if s != nil {
			out.Curves = append(out.Curves, toJobCurve(&j, s, in.Points))
		}
	}

	return &body[api.CurveList]{out}, nil
}

// mainSeries returns the metric that says most about how far a job is, nil if it has reported none.
func (f *Forecaster) mainSeries(ctx context.Context, j *job.Job) (*metric.Series, error) {
	f.mu.Lock()

	if w, ok := f.jobs[j.ID]; ok && w.loaded {
		defer f.mu.Unlock()

		s := w.series[mainMetric(j, w.forecast, sortedKeys(w.series))]
		if s == nil {
			return nil, nil
		}

		c := *s
		c.Points = slices.Clone(s.Points) // points may be added while the copy is read

		return &c, nil
	}

	f.mu.Unlock()

	all, err := f.seriesOf(ctx, j.ID)
	if err != nil {
		return nil, err
	}

	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].Name
	}

	at := slices.Index(names, mainMetric(j, nil, names))
	if at < 0 {
		return nil, nil
	}

	return &all[at], nil
}

// mainMetric chooses one of the metrics of a job: that of its target, that on which its forecast is based, a loss, or
// else the first. It returns "" if there is none.
func mainMetric(j *job.Job, made *job.Forecast, names []string) string {
	if t := j.Spec.Target; t != nil && slices.Contains(names, t.Metric) {
		return t.Metric
	}

	if made != nil && slices.Contains(names, made.Metric) {
		return made.Metric
	}

	for _, name := range names {
		if strings.Contains(strings.ToLower(name), "loss") {
			return name
		}
	}

	if len(names) == 0 {
		return ""
	}

	return names[0]
}

func toJobCurve(j *job.Job, s *metric.Series, points int) api.JobCurve {
	out := api.JobCurve{Job: j.ID, Metric: s.Name, Goal: toMetric(j, s).Goal, Values: []float64{}}

	for _, p := range metric.Downsample(s.Points, points) {
		if !math.IsNaN(p.Value) && !math.IsInf(p.Value, 0) {
			out.Values = append(out.Values, p.Value)
		}
	}

	return out
}
