package forecaster

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/forecast/calibrate"
	"trainyard/internal/forecast/curve"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/metric"
	"trainyard/internal/store"
	"trainyard/internal/tenant"
)

// Routes adds the forecaster's endpoints to the API.
func (f *Forecaster) Routes(e Edge) {
	op := func(name, path, summary, tag string) huma.Operation {
		return huma.Operation{
			OperationID: name,
			Method:      http.MethodGet,
			Path:        path,
			Summary:     summary,
			Security:    e.Security,
			Tags:        []string{tag},
		}
	}

	huma.Register(
		e.API,
		op("get-forecast", "/api/v1/jobs/{job}/forecast", "Get the forecast of a job", "forecasts"),
		answer(e, f.getForecast),
	)

	huma.Register(
		e.API,
		op("list-metrics", "/api/v1/jobs/{job}/metrics", "List the metrics of a job", "forecasts"),
		answer(e, f.listMetrics),
	)

	huma.Register(
		e.API,
		op("get-curve", "/api/v1/jobs/{job}/curve", "Get one metric of a job and its expected curve", "forecasts"),
		func(ctx context.Context, in *curveInput) (*body[api.Curve], error) {
			j, err := e.Job(ctx, in.Job)
			if err != nil {
				return nil, e.Fail(ctx, err)
			}

			out, err := f.getCurve(ctx, &j, in)
			if err != nil {
				return nil, e.Fail(ctx, err)
			}

			return &body[api.Curve]{out}, nil
		},
	)

	huma.Register(
		e.API,
		op("list-curves", "/api/v1/curves", "Get the main metric of several jobs, for small plots", "forecasts"),
		func(ctx context.Context, in *curvesInput) (*body[api.CurveList], error) {
			return f.listCurves(ctx, e, in)
		},
	)

	f.importRoutes(e)

	huma.Register(e.API, op("get-forecast-record", "/api/v1/forecasts", "Get the accuracy of past forecasts", "forecasts"),
		func(ctx context.Context, _ *struct{}) (*body[api.ForecastRecord], error) {
			if err := e.Allow(ctx, tenant.ReadNodes, ""); err != nil {
				return nil, e.Fail(ctx, err)
			}

			out, record := f.trainer.report()
			addQuality(&out, record)

			worst, err := f.worstForecasts(ctx, e, record)
			if err != nil {
				return nil, e.Fail(ctx, err)
			}

			out.Worst = worst

			return &body[api.ForecastRecord]{out}, nil
		})
}

type body[T any] struct{ Body T }

type jobInput struct {
	Job string `path:"job" maxLength:"68" doc:"its id, its name, name@last or @last"`
}

type curveInput struct {
	Job    string `path:"job" maxLength:"68" doc:"its id, its name, name@last or @last"`
	Metric string `query:"metric" maxLength:"128" required:"true"`
	Points int    `query:"points" minimum:"2" maximum:"1024" default:"500" doc:"maximum number of points"`
}

// answer wraps a request about one job, which the caller must be allowed to see.
func answer[T any](
	e Edge,
	ask func(context.Context, *job.Job) (T, error),
) func(context.Context, *jobInput) (*body[T], error) {
	return func(ctx context.Context, in *jobInput) (*body[T], error) {
		j, err := e.Job(ctx, in.Job)
		if err != nil {
			return nil, e.Fail(ctx, err)
		}

		out, err := ask(ctx, &j)
		if err != nil {
			return nil, e.Fail(ctx, err)
		}

		return &body[T]{out}, nil
	}
}

func (f *Forecaster) getForecast(ctx context.Context, j *job.Job) (api.Forecast, error) {
	if j.State.Final() {
		return api.Forecast{}, fault.New(fault.Conflict, "job_state", "job %s has ended (%s)", j.ID, j.Status())
	}

	made, err := f.Forecast(ctx, j)
	if err != nil {
		return api.Forecast{}, err
	}

	if made == nil {
		made = &job.Forecast{At: f.Clock.Now(), Why: "Nothing has been reported yet."}
	}

	out := *made
	out.Methods, err = f.methodEstimates(ctx, j, &out)
	if err != nil {
		return api.Forecast{}, err
	}

	return *api.NewForecast(&out), nil
}

// methodEstimates returns the estimates of a forecast's methods, and for comparison those of textbook fits to
// the same curve, which do not enter the forecast.
func (f *Forecaster) methodEstimates(
	ctx context.Context,
	j *job.Job,
	made *job.Forecast,
) ([]job.MethodForecast, error) {
	all, err := f.seriesOf(ctx, j.ID)
	if err != nil {
		return nil, err
	}

	says := slices.Clone(made.Methods)

	at := slices.IndexFunc(all, func(s metric.Series) bool { return s.Name == made.Metric })
	if at < 0 {
		return says, nil
	}

	c, now, until := curveOf(j, &all[at], made)
	if now <= 0 || until <= now || !c.Goal.Set || slices.ContainsFunc(c.Y, c.Goal.Met) {
		return says, nil
	}

	perStep := made.Remaining.Mid / (until - now)

	for _, name := range []string{"poly3", "regression"} {
		m, known := curve.ByName(name)
		if !known || len(c.X) < m.Points {
			continue
		}

		say := job.MethodForecast{Method: name, Remaining: -1, Error: -1}
		if e := m.Estimate(&c); !e.Fails() {
			say.Remaining = max((e.End-now)*perStep, 0)
		}

		says = append(says, say)
	}

	return says, nil
}

func (f *Forecaster) listMetrics(ctx context.Context, j *job.Job) (api.MetricList, error) {
	all, err := f.seriesOf(ctx, j.ID)
	if err != nil {
		return api.MetricList{}, err
	}

	list := api.MetricList{Metrics: []api.Metric{}}
	for i := range all {
		list.Metrics = append(list.Metrics, toMetric(j, &all[i]))
	}

	return list, nil
}

func toMetric(j *job.Job, s *metric.Series) api.Metric {
	out := api.Metric{Name: s.Name, Source: s.Source, Count: s.Count, NonFinite: s.NonFinite}
	if p, ok := s.Last(); ok {
		out.Step, out.Value, out.At = p.Step, p.Value, p.At
	}

	if t := j.Spec.Target; t != nil && t.Metric == s.Name {
		out.Goal = t.AtMost
		if out.Goal == nil {
			out.Goal = t.AtLeast
		}
	}

	return out
}

// seriesOf returns the metrics of a job by name: from memory, or else from the store.
func (f *Forecaster) seriesOf(ctx context.Context, j id.Job) ([]metric.Series, error) {
	f.mu.Lock()

	if w, ok := f.jobs[j]; ok && w.loaded {
		all := w.curves()
		f.mu.Unlock()
		return all, nil
	}

	f.mu.Unlock()

	docs, err := f.Store.Documents(
		ctx,
		store.DocumentFilter{Kind: store.CurveDocument, Under: string(j), Limit: metric.MaxSeries},
	)
	if err != nil {
		return nil, err
	}

	all := make([]metric.Series, len(docs))
	for i := range docs {
		if err := json.Unmarshal([]byte(docs[i].Text), &all[i]); err != nil {
			return nil, fmt.Errorf("read curve %s: %w", docs[i].ID, err)
		}
	}

	slices.SortFunc(all, func(a, b metric.Series) int {
		if a.Name == b.Name {
			return 0
		}

		return less(a.Name < b.Name)
	})

	return all, nil
}

func (f *Forecaster) getCurve(ctx context.Context, j *job.Job, in *curveInput) (api.Curve, error) {
	all, err := f.seriesOf(ctx, j.ID)
	if err != nil {
		return api.Curve{}, err
	}

	at := slices.IndexFunc(all, func(s metric.Series) bool { return s.Name == in.Metric })
	if at < 0 {
		names := make([]string, len(all))
		for i := range all {
			names[i] = all[i].Name
		}

		missing := fault.New(fault.NotFound, "metric_not_found", "job %s has no metric %q", j.ID, in.Metric).
			WithField("metric")
		if len(names) > 0 {
			missing = missing.WithRemedy("choose one of %q", names)
		}

		return api.Curve{}, missing
	}

	s := &all[at]
	out := api.Curve{Metric: toMetric(j, s), Points: []api.MetricPoint{}}
	for _, p := range metric.Downsample(s.Points, in.Points) {
		out.Points = append(out.Points, api.WirePoint(p))
	}

	out.Fit = f.fit(j, s)

	return out, nil
}

// fitPoints is the number of points of a drawn fit.
const fitPoints = 200

// fit returns the expected course of a metric up to the expected end of the job, nil if there is no
// forecast based on it.
func (f *Forecaster) fit(j *job.Job, s *metric.Series) *api.Fit {
	f.mu.Lock()
	w, ok := f.jobs[j.ID]
	if !ok || w.forecast == nil || w.forecast.Metric != s.Name || !w.endedAt.IsZero() {
		f.mu.Unlock()
		return nil
	}

	made := *w.forecast
	f.mu.Unlock()

	c, now, until := curveOf(j, s, &made)
	if len(c.X) == 0 {
		return nil
	}

	d := curve.Fit(&c, until, fitPoints)
	if r := made.Remaining; now > 0 && r.Mid > 0 && made.Basis != job.BasisSteps { // it ends at its goal
		e := curve.Estimate{End: until, Low: now + (until-now)*r.Low/r.Mid, High: now + (until-now)*r.High/r.Mid}
		d = curve.FitTo(&c, e, until, fitPoints)
	}

	for _, line := range [][]float64{d.X, d.Mid, d.Low, d.High} {
		if slices.ContainsFunc(line, func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) }) {
			return nil // overflow: JSON has no NaN and no infinity
		}
	}

	return &api.Fit{Step: d.X, Mid: d.Mid, Low: d.Low, High: d.High}
}

// curveOf returns a metric over the steps of the program, the step at which the forecast was made (0
// if unknown), and the step at which the forecast expects the end.
func curveOf(j *job.Job, s *metric.Series, made *job.Forecast) (c curve.Curve, now, until float64) {
	c.Goal = goalOf(j)
	for _, p := range s.Points {
		if p.Step > 0 {
			c.X, c.Y = append(c.X, p.Step), append(c.Y, p.Value)
		}
	}

	if len(c.X) == 0 {
		return c, 0, 0
	}

	until = c.X[len(c.X)-1]
	for _, p := range slices.Backward(s.Points) {
		if p.At <= seconds(made.At) && made.Done > 0 && made.Done < 1 {
			return c, p.Step, max(until, p.Step/made.Done)
		}
	}

	return c, 0, until
}

// goalOf returns the goal of a job's metric.
func goalOf(j *job.Job) curve.Goal {
	switch t := j.Spec.Target; {
	case t == nil:
	case t.AtMost != nil:
		return curve.Goal{Value: *t.AtMost, Set: true}
	case t.AtLeast != nil:
		return curve.Goal{Value: *t.AtLeast, Rising: true, Set: true}
	}

	return curve.Goal{}
}

// report returns how accurate past forecasts were, and the record of that, which does not change.
func (s *trainer) report() (api.ForecastRecord, *calibrate.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()

	out := api.ForecastRecord{
		Jobs:    len(s.past),
		Scored:  s.record.Jobs(),
		Wanted:  calibrate.MinJobs,
		NoModel: s.noModelReason,
		Methods: []api.MethodAccuracy{},
	}

	out.Covered, out.CoveredOf = s.record.Coverage()
	for _, l := range s.record.Table() {
		if n := len(out.Methods); n == 0 || out.Methods[n-1].Method != l.Method {
			out.Methods = append(out.Methods, api.MethodAccuracy{Method: l.Method})
		}

		m := &out.Methods[len(out.Methods)-1]
		m.Errors = append(
			m.Errors,
			api.Accuracy{Quarter: l.Quarter, Median: l.Median, P80: l.P80, Failed: l.Failed, Count: l.Forecasts},
		)
	}

	if m := s.model; m != nil {
		out.Model = &api.DurationModel{Version: m.Version, Trained: s.trainedAt, Records: m.Records, Digest: m.Digest}
		for _, v := range m.Validation {
			out.Model.Validation = append(
				out.Model.Validation,
				api.LearnerErrors{Learner: v.Learner, Median: v.Median, P80: v.P80, Within25: v.Within25, Weight: v.Weight},
			)
		}
	}

	return out, s.record
}
